"""Reading samples of a sequence by id, and drawing those that are pictures."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np


def each_sample(
    sequence: Any, epoch: int, ids: Collection[int] | None = None
) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """Yield the samples of a sequence, or those of some ids, in its order, as batches of one.

    They are as the model sees them in an epoch.  Call this between epochs only,
    and close the iterator: it reads the sequence until all ids are found.
    An id that does not occur is left out.
    """
    wanted = None if ids is None else set(ids)
    sequence.set_epoch(epoch)
    batches = iter(sequence)
    try:
        while wanted is None or wanted:
            batch = next(batches, None)
            if batch is None:
                break
            for place, own in enumerate(np.asarray(batch["sample_id"]).tolist()):
                if wanted is None or own in wanted:
                    if wanted is not None:
                        wanted.discard(own)
                    yield own, {name: _cut(value, place) for name, value in batch.items()}
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def samples_of(sequence: Any, epoch: int, ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return some samples by id, each feature as an array without the first axis; see :func:`each_sample`."""
    with closing(each_sample(sequence, epoch, ids)) as found:
        return {own: features_of(sample) for own, sample in found}


def batches_of(sequence: Any, epoch: int, wanted: int | Collection[int]) -> list[dict[str, Any]]:
    """Return samples as batches of one: the first so many, or those of some ids, in that order."""
    if isinstance(wanted, int):
        with closing(each_sample(sequence, epoch)) as every:
            return [sample for _, sample in islice(every, wanted)]
    with closing(each_sample(sequence, epoch, wanted)) as some:
        found = dict(some)
    return [found[own] for own in dict.fromkeys(wanted) if own in found]


def first_batch(sequence: Any, epoch: int) -> dict[str, Any] | None:
    """Return the first batch of an epoch, if there is one; call this between epochs only."""
    sequence.set_epoch(epoch)
    batches = iter(sequence)
    found = next(batches, None)
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    return None if found is None else dict(found)


def features_of(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the features of a batch of one sample without the first axis."""
    found = {}
    for name, value in sample.items():
        if name != "sample_id" and hasattr(value, "__getitem__") and not isinstance(value, (str, dict)):
            found[name] = value[0] if isinstance(value[0], str) else np.array(value[0])
    return found


def _cut(value: Any, place: int) -> Any:
    """Return a sample's part of a feature, with a first axis of length 1."""
    if not hasattr(value, "__getitem__") or isinstance(value, (str, dict)):
        return value
    part = value[place : place + 1]
    return part.copy() if isinstance(part, np.ndarray) else part


def image_of(sample: dict[str, Any]) -> np.ndarray | None:
    """Return the first feature that looks like a picture: ``(rows, columns)`` or ``(rows, columns, 3)`` from 0 to 1.

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
    """Return an array as a picture if it looks like one; see :func:`image_of`."""
    if value.ndim == 3 and value.shape[0] in (1, 3) and min(value.shape[1:]) >= 4:
        value = np.moveaxis(value, 0, -1)
    if value.ndim == 3 and value.shape[-1] == 1:
        value = value[..., 0]
    if not (value.ndim == 2 or (value.ndim == 3 and value.shape[-1] == 3)) or min(value.shape[:2]) < 4:
        return None
    values = np.nan_to_num(value.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low if high > low else 1.0)


def called(name: str, value: Any, classes: Sequence[str] = ()) -> str:
    """Return the text of a sample's label for its picture, with the class's name if it is known.

    Features under ``input`` are inputs of the model, not labels.
    """
    number = int(value)
    if not name.startswith("input/") and 0 <= number < len(classes):
        return f"{name.removeprefix('truth/')} {classes[number]}"
    return f"{name} {number}"


def show_images(figure: Any, images: list[np.ndarray], titles: list[str], columns: int) -> None:
    """Draw pictures with their titles into a figure."""
    rows = -(-len(images) // columns)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, image, title in zip(grid, images, titles, strict=False):
        axes.imshow(image, cmap="gray" if image.ndim == 2 else None, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=8)
