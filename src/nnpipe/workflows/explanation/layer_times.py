"""From the steps of a runtime to the layers of the network: which operations each step computes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.analysis.kernel_sources import is_conversion, sources_of
from nnpipe.analysis.layer_times import ADDED, CONVERSION, LayerTime, LayerTimes
from nnpipe.analysis.live_memory import bytes_of
from nnpipe.analysis.operation_costs import GraphCost, OperationCost
from nnpipe.core.graph import Graph
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.measuring.operation_statistics import middle_half, usual_times

_MOVING = ("quantisation", "movement", "view")


def layer_times(runtime: str, graph: Graph, cost: GraphCost, times: OperationTimes) -> LayerTimes:
    """Return the times of a model's layers.

    Parameters
    ----------
    runtime
        What ran the model.
    graph, cost
        The model's graph with known lengths, and the cost of its operations.
    times
        What :meth:`~nnpipe.InferenceSession.profile` returned.
    """
    usual, low, high = (array.tolist() for array in usual_times(times))
    whole = sum(usual)
    sources = sources_of(graph, times.kernels)
    costs = {each.name: each for each in cost.operations}
    # The figures of an operation that several steps compute count once, in the longest of them.
    longest: dict[str, int] = {}
    for number, kernel in enumerate(times.kernels):
        for name in sources[kernel.name]:
            longest[name] = max(longest.get(name, number), number, key=lambda each: usual[each])
    users = _users(graph)
    converted = _converted(times.kernels, sources)
    layers = []
    for number, kernel in enumerate(times.kernels):
        names = [name for name in sources[kernel.name] if name in costs]
        counted = [costs[name] for name in names if longest[name] == number]
        names.sort(key=lambda name: _weight(costs[name]), reverse=True)
        layers.append(
            LayerTime(
                kernel.name,
                _kind(names, costs, kernel),
                tuple(names),
                kernel.kind,
                kernel.kernel,
                kernel.precision,
                usual[number],
                low[number],
                high[number],
                usual[number] / whole,
                converts=() if names else converted[kernel.name],
                after=kernel.after,
                **_figures(counted, users),
            )
        )
    rest = LayerTime(
        "not attributed", "not attributed", (), "", "", "", usual[-1], low[-1], high[-1], usual[-1] / whole
    )
    plain = float(times.plain_ns[middle_half(times.plain_ns)].mean()) if len(times.plain_ns) else None
    return LayerTimes(
        runtime, tuple(layers), rest, whole, plain, times.coverage, times.overhead, times.doubts, times.runs
    )  # fmt: skip


def _kind(names: Sequence[str], costs: Mapping[str, OperationCost], kernel: KernelTime) -> str:
    if names:
        return costs[names[0]].primitive
    return CONVERSION if is_conversion(kernel.kind) else ADDED


def _converted(kernels: Sequence[KernelTime], sources: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return for each step the operations of the steps before it, or else of those behind it, conversions aside."""
    before = dict(sources)
    for kernel in kernels:
        if not sources[kernel.name]:
            before[kernel.name] = tuple(dict.fromkeys(name for each in kernel.after for name in before.get(each, ())))
    behind = dict(sources)
    for kernel in reversed(kernels):
        for each in kernel.after:
            if not sources.get(each, ()):
                behind[each] = tuple(dict.fromkeys((*behind.get(each, ()), *behind[kernel.name])))
    return {kernel.name: before[kernel.name] or behind[kernel.name] for kernel in kernels}


def _weight(cost: OperationCost) -> tuple[int, bool, int]:
    known = cost.arithmetic
    computes = cost.primitive not in _MOVING  # a sum with quantised inputs is a sum
    return (0 if known is None else known.macs, computes, 0 if known is None else known.others)


def _users(graph: Graph) -> dict[str, set[str]]:
    """Return the operations that read each tensor; an output of the model is read by the caller as well."""
    found: dict[str, set[str]] = {name: {""} for name in graph.outputs}
    for operation in graph.operations:
        for tensor in operation.inputs:
            found.setdefault(tensor, set()).add(operation.name)
    return found


def _figures(operations: Sequence[OperationCost], users: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return the sums over fused operations; values that only pass between them are no traffic."""
    if not operations:
        return {}
    names = {each.name for each in operations}
    inner = {
        spec.name: bytes_of(spec) or 0
        for each in operations
        for spec in each.outputs
        if users.get(spec.name, set()) <= names
    }
    reads = sum(inner.get(spec.name, 0) for each in operations if each.bytes_read for spec in each.inputs)
    writes = sum(inner.get(spec.name, 0) for each in operations if each.bytes_written for spec in each.outputs)
    read = _sum([each.bytes_read for each in operations])
    written = _sum([each.bytes_written for each in operations])
    live = [each.live_bytes for each in operations if each.live_bytes is not None]
    results = [spec for each in operations for spec in each.outputs if spec.name not in inner]
    return {
        "macs": _sum([None if each.arithmetic is None else each.arithmetic.macs for each in operations]),
        "others": _sum([None if each.arithmetic is None else each.arithmetic.others for each in operations]),
        "bytes_read": None if read is None else max(read - reads, 0),
        "bytes_written": None if written is None else max(written - writes, 0),
        "parameters": sum(each.parameters for each in operations),
        "live_bytes": max(live, default=None),
        "values": sum(math.prod(length or 0 for length in spec.shape) for spec in results),
    }


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
