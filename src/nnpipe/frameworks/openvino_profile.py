"""Times of the steps of a compiled OpenVINO model, from its performance counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.operation_times import KernelTime

_FAMILIES = {
    "Convolution": "convolution", "GroupConvolution": "convolution", "Deconvolution": "convolution",
    "FullyConnected": "matrix product", "MatMul": "matrix product", "Pooling": "pooling", "AdaptivePooling": "pooling",
    "Softmax": "softmax", "Reduce": "reduction", "MVN": "normalisation", "Interpolate": "resize",
    "LSTMSequence": "lstm", "LSTMCell": "lstm", "GRUSequence": "gru", "GRUCell": "gru",
    "ScaledDotProductAttention": "attention",
}  # fmt: skip
_PRECISIONS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8", "i32": "int32"}
_CONSTANT = ("Const", "Input", "Output", "Parameter", "Result")


def undone(averages: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the time of each run, given the average over it and all runs before, ``(steps, runs)`` microseconds.

    OpenVINO keeps sums of whole microseconds, and returns them divided by the number of runs, rounded down.  So a sum
    is known up to that number.  Of the sums that are possible, the one is taken whose last run is closest to the
    average of all runs.
    """
    counts = np.arange(1, averages.shape[1] + 1)
    least = averages * counts
    usual = averages[:, -1]
    sums = np.zeros((len(averages), len(counts) + 1))
    for place, count in enumerate(counts):
        earliest = np.maximum(least[:, place], sums[:, place])  # no run takes less than nothing
        latest = np.maximum(least[:, place] + count - 1, sums[:, place])
        sums[:, place + 1] = np.clip(sums[:, place] + usual, earliest, latest)
    return np.diff(sums, axis=1)


@dataclass(frozen=True)
class _Node:
    kind: str
    precision: str
    origins: tuple[str, ...]
    after: tuple[str, ...]


def kernels_of(
    compiled: Any, source: Any, names: Sequence[str], kernels: Sequence[str], times: npt.NDArray[np.float64]
) -> tuple[KernelTime, ...]:
    """Return the steps that took time, or all of them if none took a whole microsecond.

    Parameters
    ----------
    compiled
        The ``openvino.CompiledModel``.
    source
        The ``openvino.Model`` that was compiled, whose tensors have the names in the file.
    names, kernels
        The name and the implementation of each step.
    times
        Microseconds in each run, ``(steps, runs)``.
    """
    nodes = _nodes(compiled)
    tensors = {
        each.get_friendly_name(): tuple(name for output in each.outputs() for name in output.get_names())
        for each in source.get_ordered_ops()
    }
    found = []
    ran = {name for name, row in zip(names, times, strict=True) if row.any()}
    ran = ran or {name for name in names if name in nodes and nodes[name].kind not in _CONSTANT}
    for name, kernel, row in zip(names, kernels, times, strict=True):
        if name not in ran:
            continue
        node = nodes.get(name, _Node("", "", (), ()))
        sources = dict.fromkeys(each for origin in node.origins for each in (*tensors.get(origin, ()), origin))
        found.append(
            KernelTime(
                name,
                node.kind,
                1000.0 * row,
                kernel,
                _precision(kernel, node),
                tuple(sources),
                _before(node, nodes, ran),
                _FAMILIES.get(node.kind, ""),
            )
        )
    return tuple(found)


def _nodes(compiled: Any) -> dict[str, _Node]:
    """Return what the compiled model's graph says about each step."""
    found = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        told: Mapping[str, Any] = node.get_rt_info()
        kind = _text(told, "layerType")
        origins = () if kind in _CONSTANT else tuple(filter(None, _text(told, "originalLayersNames").split(",")))
        after = tuple(each.get_source_output().get_node().get_friendly_name() for each in node.inputs())
        precision = _text(told, "runtimePrecision")
        found[node.get_friendly_name()] = _Node(kind, _PRECISIONS.get(precision, precision), origins, after)
    return found


def _text(told: Mapping[str, Any], key: str) -> str:
    return str(told[key].astype(str)) if key in told else ""


def _precision(kernel: str, node: _Node) -> str:
    """Return the type that the implementation names last, or else that of the step's values."""
    named = kernel.rpartition("_")[2].lower()
    return node.precision if named == "i8" else _PRECISIONS.get(named, node.precision)


def _before(node: _Node, nodes: Mapping[str, _Node], ran: set[str]) -> tuple[str, ...]:
    """Return the nearest steps before one that took time."""
    found: dict[str, None] = {}
    waiting, seen = list(node.after), set(node.after)
    while waiting:
        name = waiting.pop()
        if name in ran:
            found[name] = None
            continue
        fresh = [each for each in nodes[name].after if each not in seen] if name in nodes else []
        seen.update(fresh)
        waiting += fresh
    return tuple(found)
