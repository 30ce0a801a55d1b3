"""Small pictures and curves of the samples with which a model did worst, kept with its evaluation
for reports.

They are bounded: a few samples, each a JPEG file of some kilobytes, or a curve of some hundred
numbers.  In an evaluation they are ragged arrays, empty for all other samples.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import NNPipeError
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.layout import has_channels_first
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.tensors import Batch

PICTURE, CURVE = "sample_picture", "sample_curve"
"""Names of the arrays: bytes of JPEG files, and ``(points, 2)``, the least and greatest numbers
of short stretches.
"""

LARGEST = 16 << 10
"""The greatest number of bytes of a picture."""

_SIDE = 240  # pixels of the longer side
_QUALITIES = (80, 60, 40, 20)
_POINTS = 160
# numbers of a sample that is shown as a curve; fewer may well be features without an order
_LEAST_WAVE = 1000
_LEAST_ROWS = 8  # of a series, whose first column is shown
_MOST_PIXELS = 64 << 20


def with_worst_samples(
    evaluation: Evaluation, dataset: Dataset, indices: npt.NDArray[Any], count: int
) -> Evaluation:
    """Return an evaluation with pictures or curves of the samples with which the model did worst.

    Parameters
    ----------
    evaluation
        The evaluation of all samples.
    dataset
        The data set, from which these samples are read again.
    indices
        The sample of each entry of the evaluation, ``(n,)``.
    count
        The greatest number of samples; 0 for none.

    Returns
    -------
    Evaluation
        The same evaluation if samples are neither images nor series of numbers, if the task does
        not tell which are worst, or if the model is right about all.
    """
    if not count or len(evaluation) != len(indices):
        return evaluation
    errors = dataset.task.sample_errors(evaluation)
    if errors is None:
        return evaluation
    known = np.where(np.isnan(errors), 0, errors)
    order = np.argsort(-known, kind="stable")[:count]
    chosen = order[known[order] > 0]
    rows: dict[str, list[npt.NDArray[Any]]] = {}
    ranges = dataset.spec.ranges
    empty: dict[str, npt.NDArray[Any]] = {
        PICTURE: np.zeros(0, np.uint8),
        CURVE: np.zeros((0, 2), np.float32),
    }
    for place in chosen.tolist():
        try:
            inputs, _ = dataset.read(indices[place : place + 1])
        # a file may have gone meanwhile, and the measurement is worth more than its picture
        except NNPipeError:
            continue
        name, found = _reduce_sample(inputs, ranges)
        if name:
            rows.setdefault(name, [empty[name]] * len(evaluation))[place] = found
    if not rows:
        return evaluation
    ragged = {**evaluation.ragged, **{name: Ragged.from_rows(each) for name, each in rows.items()}}
    return Evaluation(
        evaluation.task, evaluation.arrays, evaluation.class_names, ragged, evaluation.settings
    )


def _reduce_sample(
    inputs: Batch, ranges: Mapping[str, tuple[float, float]]
) -> tuple[str, npt.NDArray[Any]]:
    """Return what is kept of a sample, and as which array; an empty name for nothing."""
    for name, values in inputs.items():
        if name == IMAGE_SIZE or values.dtype.kind not in "uif":
            continue
        sample = np.asarray(values[0])
        if sample.ndim == 2 and sample.dtype == np.uint8:  # an image without an axis of channels
            sample = sample[..., None]
        if sample.ndim == 3 and has_channels_first(sample.shape):
            sample = np.moveaxis(sample, 0, -1)
        if sample.ndim == 3 and sample.shape[2] in (1, 3) and min(sample.shape[:2]) > 1:
            picture = _encode_jpeg(_to_pixels(_remove_padding(sample, inputs), ranges.get(name)))
            return (PICTURE, np.frombuffer(picture, np.uint8)) if picture else ("", values)
        if sample.ndim == 1 and len(sample) >= _LEAST_WAVE:
            return CURVE, _reduce_curve(sample.astype(np.float64))
        if sample.ndim == 2 and len(sample) >= _LEAST_ROWS and sample.shape[1]:
            return CURVE, _reduce_curve(sample[:, 0].astype(np.float64))
    return "", np.zeros(0)


def _remove_padding(sample: npt.NDArray[Any], inputs: Batch) -> npt.NDArray[Any]:
    """Return an image without the padding that brings images of a batch to one size."""
    if IMAGE_SIZE not in inputs:
        return sample
    height, width = np.asarray(inputs[IMAGE_SIZE][0]).tolist()
    return sample[: int(height), : int(width)]


def _to_pixels(
    image: npt.NDArray[Any], stated: tuple[float, float] | None
) -> npt.NDArray[np.uint8]:
    """Return an image as bytes; numbers that are no bytes already are stretched from the stated
    range, or their own.
    """
    if image.dtype == np.uint8 and stated is None:
        return np.asarray(image)
    real = np.nan_to_num(image.astype(np.float64), posinf=0, neginf=0)
    least, most = (
        (0.0, 1.0)
        if real.min() >= 0 and real.max() <= 1
        else (float(real.min()), float(real.max()))
    )
    if least >= 0 and 1 < most <= 255:
        least, most = 0.0, 255.0
    least, most = stated or (least, most)
    shares = np.clip((real - least) / max(most - least, 1e-12), 0, 1)
    found: npt.NDArray[np.uint8] = np.rint(255 * shares).astype(np.uint8)
    return found


def _encode_jpeg(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return a small JPEG file; nothing if Pillow is not installed or the picture does not
    become small enough.
    """
    try:
        from PIL import Image
    except ImportError:
        return b""
    if not pixels.size or pixels.size > 3 * _MOST_PIXELS:
        return b""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    for quality in _QUALITIES:
        target = io.BytesIO()
        image.save(target, "JPEG", quality=quality)
        if len(target.getvalue()) <= LARGEST:
            return target.getvalue()
    return b""


def _reduce_curve(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the least and the greatest number of each of up to 160 stretches of a series,
    ``(points, 2)``.
    """
    parts = np.array_split(np.nan_to_num(values), min(len(values), _POINTS))
    return np.array([(part.min(), part.max()) for part in parts], np.float32)
