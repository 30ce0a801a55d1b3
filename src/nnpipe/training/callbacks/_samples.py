"""Samples of a sequence by their ids, and what of them can be drawn."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np


def samples_of(sequence: Any, epoch: int, ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """Give some samples by id, as the model saw them in an epoch, each feature as an array without the first axis.

    The sequence is gone through until all are found: call this between epochs
    only.  An id that does not come up is left out.
    """
    wanted, found = set(ids), dict[int, dict[str, Any]]()
    sequence.set_epoch(epoch)
    batches = iter(sequence)
    while wanted:
        batch = next(batches, None)
        if batch is None:
            break
        for place, own in enumerate(np.asarray(batch["sample_id"]).tolist()):
            if own in wanted:
                wanted.discard(own)
                found[own] = {
                    name: np.array(value[place]) if not isinstance(value[place], str) else value[place]
                    for name, value in batch.items()
                    if name != "sample_id" and hasattr(value, "__getitem__") and not isinstance(value, (str, dict))
                }
    _close(batches)
    return found


def batches_of(sequence: Any, epoch: int, wanted: int | Collection[int]) -> list[dict[str, Any]]:
    """Give samples as batches of one: the first so many, or those of some ids, in that order.

    As for :func:`samples_of`, call it between epochs only.
    """
    found: dict[int, dict[str, Any]] = {}
    ids = None if isinstance(wanted, int) else list(wanted)
    most = wanted if isinstance(wanted, int) else len(set(wanted))
    sequence.set_epoch(epoch)
    batches = iter(sequence)
    while len(found) < most:
        batch = next(batches, None)
        if batch is None:
            break
        for place, own in enumerate(np.asarray(batch["sample_id"]).tolist()):
            if len(found) < most and (ids is None or own in ids):
                found.setdefault(own, {name: _cut(value, place) for name, value in batch.items()})
    _close(batches)
    return [found[own] for own in (found if ids is None else dict.fromkeys(ids)) if own in found]


def _cut(value: Any, place: int) -> Any:
    """Give a sample's part of a feature, with a first axis of length 1."""
    if not hasattr(value, "__getitem__") or isinstance(value, (str, dict)):
        return value
    part = value[place : place + 1]
    return part.copy() if isinstance(part, np.ndarray) else part


def _close(batches: Any) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()


def image_of(sample: dict[str, Any]) -> np.ndarray | None:
    """Give the first feature that looks like a picture: ``(rows, columns)`` or ``(rows, columns, 3)`` from 0 to 1.

    A picture has at least 4 rows and columns, and 1 or 3 channels, first or
    last.  Its least value becomes black and its greatest white.
    """
    for value in sample.values():
        if isinstance(value, np.ndarray) and value.dtype.kind in "uif":
            image = as_image(value)
            if image is not None:
                return image
    return None


def as_image(value: np.ndarray) -> np.ndarray | None:
    """Give an array as a picture if it looks like one; see :func:`image_of`."""
    if value.ndim == 3 and value.shape[0] in (1, 3) and min(value.shape[1:]) >= 4:
        value = np.moveaxis(value, 0, -1)
    if value.ndim == 3 and value.shape[-1] == 1:
        value = value[..., 0]
    if not (value.ndim == 2 or (value.ndim == 3 and value.shape[-1] == 3)) or min(value.shape[:2]) < 4:
        return None
    values = np.nan_to_num(value.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low if high > low else 1.0)


def show_images(figure: Any, images: list[np.ndarray], titles: list[str], columns: int) -> None:
    """Fill a figure with pictures and what is written above each."""
    rows = -(-len(images) // columns)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, image, title in zip(grid, images, titles, strict=False):
        axes.imshow(image, cmap="gray" if image.ndim == 2 else None, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=8)
