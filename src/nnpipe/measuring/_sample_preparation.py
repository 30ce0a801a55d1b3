"""The record of sample preparation in a run: what determined it, and the values at the model's
inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import Preparation
from nnpipe.core.preprocessing import get_representable_range, match_inputs
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.measuring.sample_route import get_fixed_size

# The value ranges of samples before and after preprocessing, and the range that each model input
# can represent.
#
# They are taken from a few samples outside the timed part and recorded with the run, so that a
# report can compare them with the ranges that the model expects.

_MOST_SAMPLES, _MOST_BYTES = 64, 64 << 20


def measure_input_ranges(
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
        By input: ``sample_range``, ``sample_dtype`` and ``numbers`` (least and greatest number
        after preprocessing, before quantising).  For quantised inputs also ``holds`` (the range
        that they can represent), ``beyond`` (the share of numbers outside that range) and ``used``
        (the share of the range that the numbers fill).  For images also ``size`` and
        ``taken_size``.
    """
    found: dict[str, dict[str, Any]] = {}
    seen = 0
    chosen = indices[
        np.linspace(0, len(indices) - 1, min(len(indices), _MOST_SAMPLES)).astype(np.int64)
    ]
    sums: dict[str, tuple[int, int]] = {}
    for samples, _ in dataset.batches(np.unique(chosen), 1):
        real = wrapper.preprocess_real(samples)
        for name, numbers in real.items():
            _record_range(found.setdefault(name, {}), "numbers", numbers)
        for spec in session_io.inputs:
            held = get_representable_range(spec)
            # Integers are stored unchanged: they are pixels, or already quantised.
            if held is not None and spec.name in real and real[spec.name].dtype.kind == "f":
                beyond = _count_outside(real[spec.name], held)
                before = sums.get(spec.name, (0, 0))
                sums[spec.name] = before[0] + beyond, before[1] + real[spec.name].size
                found[spec.name]["holds"] = list(held)
        _record_samples(found, samples, wrapper)
        seen += sum(array.nbytes for array in samples.values())
        if seen > _MOST_BYTES:
            break
    for name, (outside, total) in sums.items():
        (low, high), ends = found[name]["holds"], found[name].get("numbers")
        found[name]["beyond"] = outside / total if total else 0.0
        if ends is not None:
            found[name]["used"] = max(0.0, (min(ends[1], high) - max(ends[0], low)) / (high - low))
    return found


def _record_samples(
    found: dict[str, dict[str, Any]], samples: Batch, wrapper: ModelWrapper
) -> None:
    inputs = wrapper.io.inputs
    if not (len(inputs) == len(samples) == 1 or samples.keys() == {spec.name for spec in inputs}):
        return  # the wrapper's own code uses tensors with other names
    for name, spec in match_inputs(type(wrapper).__name__, inputs, tuple(samples)).items():
        entry = found.setdefault(spec.name, {})
        _record_range(entry, "sample_range", samples[name])
        entry["sample_dtype"] = samples[name].dtype.name
        if spec.scale is not None:
            entry["taken_dtype"] = spec.dtype
        if samples[name].ndim == 4:
            entry["size"] = [int(length) for length in samples[name].shape[1:3]]


def _record_range(entry: dict[str, Any], what: str, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind not in "biuf" or not array.size:
        return
    low, high = float(array.min()), float(array.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        return
    least, most = entry.get(what, (low, high))
    entry[what] = [min(low, least), max(high, most)]


def _count_outside(numbers: npt.NDArray[Any], held: tuple[float, float]) -> int:
    low, high = held
    step = (high - low) / 255  # differences by rounding are accepted
    return int(np.count_nonzero((numbers < low - step) | (numbers > high + step)))


# Check whether the inputs of a model's first batch normalisation are distributed as in training.
#
# A batch normalisation holds the mean and variance of its inputs for the training samples.  Samples
# that are prepared differently have another mean or variance there.

_HELD = ("mean", "variance")
_INPUTS = 5  # input, weight, bias, mean and variance


def compare_first_normalisation(
    model: LiveModel, graph: Graph, batches: Sequence[Batch]
) -> dict[str, Any]:
    """Compare the inputs of a model's first batch normalisation with the statistics that it holds.

    Parameters
    ----------
    model
        The loaded model.
    graph
        Its inference graph.
    batches
        Batches of prepared samples.

    Returns
    -------
    dict
        ``name`` of the operation; ``spread``, the median over channels of the ratio of observed to
        stored variance; and ``shift``, the median distance of the means, in standard deviations.
        Empty if there is no such operation, or the framework does not show intermediate values.
    """
    if not model.wrapper.offers("get_weights", "get_intermediates"):
        return {}
    try:
        found = next(filter(_is_normalisation, graph.operations), None)
        if found is None:
            return {}
        names = _find_statistics(found)
        held = model.get_weights(names)
        mean, variance = (held[name].astype(np.float64).reshape(-1) for name in names)
        parts = [_get_arriving_values(model, found.inputs[0], batch) for batch in batches]
        axis = model.wrapper.channel_axis
        values = np.concatenate(
            [np.moveaxis(part, axis, 0).reshape(len(mean), -1) for part in parts], axis=1
        )
    except Exception:  # a failure of any framework here must not stop the measurement
        return {}
    known = variance > 0
    if not known.any() or values.shape[1] < 2:
        return {}
    spread = np.median(values.var(axis=1)[known] / variance[known])
    shift = np.median(np.abs(values.mean(axis=1) - mean)[known] / np.sqrt(variance[known]))
    if not (np.isfinite(spread) and np.isfinite(shift)):
        return {}
    return {"name": found.name, "spread": float(spread), "shift": float(shift)}


def _is_normalisation(operation: Operation) -> bool:
    return bool(_find_statistics(operation))


def _find_statistics(operation: Operation) -> tuple[str, ...]:
    """Return the tensors of an operation's mean and variance; empty if it does not normalise by
    both.
    """
    kind, names = operation.kind.lower().replace("_", ""), operation.inputs
    if kind == "normalization":  # Keras' layer after the input that is adapted to data
        return tuple(name for name in names[1:] if name.rpartition("/")[2] in _HELD)
    if "batchnorm" not in kind:
        return ()
    if len(names) >= _INPUTS:
        return names[3:_INPUTS]
    # Keras omits gamma or beta if a layer has none.
    last = names[-2:]
    return (
        last
        if [name.rpartition("/")[2] for name in last] == ["moving_mean", "moving_variance"]
        else ()
    )


def _get_arriving_values(model: LiveModel, tensor: str, batch: Batch) -> npt.NDArray[Any]:
    if tensor in batch:
        return np.asarray(batch[tensor], np.float64)
    return model.get_intermediates(Selector(tensor=tensor), batch)[tensor].astype(np.float64)


# Check whether samples have already been scaled although the model scales its inputs itself.
#
# Models often begin with operations that bring pixels into a small range: a layer that rescales or
# normalises, or a multiplication and an addition.  Their output shows whether the input had the
# expected range.

_AFFINE = {"rescaling", "normalization", "mul", "add", "sub", "div"}
_CARRYING = {
    "cast",
    "identity",
    "transpose",
    "permute",
    "reshape",
    "copy",
    "clone",
    "contiguous",
    "cropping",
}
_DIVIDES = 0.5  # with a factor below this, a model is considered to scale numbers down


def measure_first_rescaling(
    model: LiveModel, graph: Graph, batches: Sequence[Batch]
) -> dict[str, Any]:
    """Return the value ranges before and after a model's own rescaling of its input.

    Parameters
    ----------
    model
        The loaded model.
    graph
        Its inference graph.
    batches
        Batches of prepared samples.

    Returns
    -------
    dict
        ``name`` of the last operation that scales; ``arrived`` and ``scaled``, the least and
        greatest number before and after it.  Empty if the model does not begin by scaling down, or
        does not show intermediate values.
    """
    if not model.wrapper.offers("get_intermediates"):
        return {}
    try:
        chain = list(_iter_scaling_operations(graph))
        if len(model.io.inputs) != 1 or not chain:
            return {}
        name, last = model.io.inputs[0].name, chain[-1].outputs[0]
        before = np.concatenate([np.ravel(batch[name]) for batch in batches]).astype(np.float64)
        behind = [model.get_intermediates(Selector(tensor=last), batch)[last] for batch in batches]
        after = np.concatenate([np.ravel(part) for part in behind]).astype(np.float64)
    except Exception:  # a failure of any framework here must not stop the measurement
        return {}
    width, scaled = float(np.ptp(before)), float(np.ptp(after))
    if not (np.isfinite(width) and np.isfinite(scaled)) or width == 0 or scaled >= _DIVIDES * width:
        return {}
    ends = ([float(array.min()), float(array.max())] for array in (before, after))
    return {"name": chain[-1].name, **dict(zip(("arrived", "scaled"), ends, strict=True))}


def _iter_scaling_operations(graph: Graph) -> Iterator[Operation]:
    """Yield the operations after the input that scale it, up to the last one."""
    if len(graph.inputs) != 1:
        return
    computed = {name for operation in graph.operations for name in operation.outputs}
    tensor, waiting = graph.inputs[0], list[Operation]()
    while True:
        users = [operation for operation in graph.operations if tensor in operation.inputs]
        if (
            len(users) != 1
            or len(users[0].outputs) != 1
            or computed & (set(users[0].inputs) - {tensor})
        ):
            return
        words = set(re.split(r"[^a-z]+", users[0].kind.lower()))
        if not words & (_AFFINE | _CARRYING):
            return
        waiting.append(users[0])
        tensor = users[0].outputs[0]
        if words & _AFFINE:
            yield from waiting
            waiting = []


_SAMPLES, _CALLS = 32, 4


def sample_preparation(
    preparation: Preparation,
    dataset: Dataset,
    wrapper: ModelWrapper,
    model: LiveModel | None,
    session_io: IOSpec,
    indices: npt.NDArray[Any],
) -> dict[str, Any]:
    """Return how samples were prepared, and statistics of the prepared values, in the form of
    result files.
    """
    found = {
        **preparation.to_json(),
        "arrived": measure_input_ranges(dataset, wrapper, session_io, indices),
    }
    found["read"] = [*dataset.reading_notes, *wrapper.fitting_notes(dataset.spec)]
    # A preparation given by a wrapper or a description needs no check, and a runtime does not show
    # intermediate values.
    if model is not None and (
        preparation.source in ("unknown", "options") or preparation.overridden
    ):
        found |= _measure_first_operations(model, dataset, indices)
    return found


def _measure_first_operations(
    model: LiveModel, dataset: Dataset, indices: npt.NDArray[Any]
) -> dict[str, Any]:
    """Return statistics of some samples at the first operations of a model, if it shows
    intermediate values.
    """
    if not model.wrapper.offers("get_inference_graph", "get_intermediates"):
        return {}
    batches = _select_batches(dataset, model.wrapper, indices)
    try:
        graph = model.get_inference_graph()
    except Exception:  # a failure of any framework here must not stop the measurement
        return {}
    return {
        "first_normalisation": compare_first_normalisation(model, graph, batches),
        "first_rescaling": measure_first_rescaling(model, graph, batches),
    }


def _select_batches(
    dataset: Dataset, wrapper: ModelWrapper, indices: npt.NDArray[Any]
) -> list[Batch]:
    """Return batches of a few prepared samples, spread over the measured ones."""
    fixed = get_fixed_size(wrapper.io)
    size, most = (_SAMPLES, _SAMPLES) if fixed is None else (fixed, _CALLS * fixed)
    chosen = np.unique(
        indices[np.linspace(0, len(indices) - 1, min(len(indices), most)).astype(np.int64)]
    )
    batches = dataset.batches(chosen[: max(len(chosen) // size, 1) * size], size)
    return [wrapper.preprocess(samples) for samples, _ in batches]
