"""The value ranges of samples before and after preprocessing, and the range that each model input can represent.

They are taken from a few samples outside the timed part and recorded with the
run, so that a report can compare them with the ranges that the model expects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.preprocessing import bound, representable_range
from nnpipe.core.tensors import Batch, IOSpec

_MOST_SAMPLES, _MOST_BYTES = 64, 64 << 20


def input_ranges(
    dataset: Dataset, wrapper: ModelWrapper, session_io: IOSpec, indices: npt.NDArray[Any]
) -> dict[str, dict[str, Any]]:
    """Return the value ranges of some samples at each input of a model.

    Parameters
    ----------
    dataset, wrapper
        The data set of the samples, and the wrapper that prepares them.
    session_io
        The inputs and outputs of the loaded model.
    indices
        ``(n,)`` indices of the measured samples.

    Returns
    -------
    dict
        By input: ``sample_range``, ``sample_dtype`` and ``numbers`` (least and greatest number after preprocessing,
        before quantising).  For quantised inputs also ``holds`` (the range that they can represent), ``beyond`` (the
        share of numbers outside that range) and ``used`` (the share of the range that the numbers fill).  For images
        also ``size`` and ``taken_size``.
    """
    found: dict[str, dict[str, Any]] = {}
    seen = 0
    chosen = indices[np.linspace(0, len(indices) - 1, min(len(indices), _MOST_SAMPLES)).astype(np.int64)]
    sums: dict[str, tuple[int, int]] = {}
    for samples, _ in dataset.batches(np.unique(chosen), 1):
        real = wrapper.preprocess_real(samples)
        for name, numbers in real.items():
            _note(found.setdefault(name, {}), "numbers", numbers)
        for spec in session_io.inputs:
            held = representable_range(spec)
            # Integers are stored unchanged: they are pixels, or already quantised.
            if held is not None and spec.name in real and real[spec.name].dtype.kind == "f":
                beyond = _beyond(real[spec.name], held)
                before = sums.get(spec.name, (0, 0))
                sums[spec.name] = before[0] + beyond, before[1] + real[spec.name].size
                found[spec.name]["holds"] = list(held)
        _note_samples(found, samples, wrapper)
        seen += sum(array.nbytes for array in samples.values())
        if seen > _MOST_BYTES:
            break
    for name, (outside, total) in sums.items():
        (low, high), ends = found[name]["holds"], found[name].get("numbers")
        found[name]["beyond"] = outside / total if total else 0.0
        if ends is not None:
            found[name]["used"] = max(0.0, (min(ends[1], high) - max(ends[0], low)) / (high - low))
    return found


def _note_samples(found: dict[str, dict[str, Any]], samples: Batch, wrapper: ModelWrapper) -> None:
    inputs = wrapper.io.inputs
    if not (len(inputs) == len(samples) == 1 or samples.keys() == {spec.name for spec in inputs}):
        return  # the wrapper's own code uses tensors with other names
    for name, spec in bound(type(wrapper).__name__, inputs, tuple(samples)).items():
        entry = found.setdefault(spec.name, {})
        _note(entry, "sample_range", samples[name])
        entry["sample_dtype"] = samples[name].dtype.name
        if spec.scale is not None:
            entry["taken_dtype"] = spec.dtype
        if samples[name].ndim == 4:
            entry["size"] = [int(length) for length in samples[name].shape[1:3]]


def _note(entry: dict[str, Any], what: str, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind not in "biuf" or not array.size:
        return
    low, high = float(array.min()), float(array.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        return
    least, most = entry.get(what, (low, high))
    entry[what] = [min(low, least), max(high, most)]


def _beyond(numbers: npt.NDArray[Any], held: tuple[float, float]) -> int:
    low, high = held
    step = (high - low) / 255  # differences by rounding are accepted
    return int(np.count_nonzero((numbers < low - step) | (numbers > high + step)))
