"""The times of a network's layers in a runtime: what each step computes, how long it takes, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nnpipe.analysis.kernel_sources import is_conversion, sources_of
from nnpipe.analysis.live_memory import bytes_of
from nnpipe.analysis.operation_costs import GraphCost, OperationCost
from nnpipe.core.graph import Graph
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.measuring.operation_statistics import middle_half, usual_times

ADDED, CONVERSION = "added by the runtime", "conversion"
"""The kinds of steps that compute no operation of the model: conversions of a type or a layout, and others."""

_MOVING = ("quantisation", "movement", "view")


@dataclass(frozen=True)
class LayerTime:
    """A step of a runtime, with the operations of the model that it computes.

    Parameters
    ----------
    step
        The runtime's name of the step.
    kind
        The kind of what it mainly computes, in the words of the cost tables; :data:`CONVERSION` or :data:`ADDED`.
    operations
        The operations of the model; several if they are fused.
    converts
        The operations whose results a conversion hands on, or whose input it is.
    operator, kernel, precision
        The operator and the implementation in the runtime's words, and the type of the numbers.
    time_ns, low_ns, high_ns
        The time in a run, and the ends of its interval, in nanoseconds.
    share
        The time as a share of the whole run.
    macs, others
        Multiply-accumulates and other operations on numbers; ``None`` if an operation has no rule.
    bytes_read, bytes_written
        The traffic from and to the step; values that only pass between its operations do not count.
    parameters
        The parameters that it uses.
    live_bytes
        The most live memory of its operations.
    values
        The number of values that it computes.
    """

    step: str
    kind: str
    operations: tuple[str, ...]
    operator: str
    kernel: str
    precision: str
    time_ns: float
    low_ns: float
    high_ns: float
    share: float
    macs: int | None = None
    others: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    parameters: int = 0
    live_bytes: int | None = None
    values: int | None = None
    converts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the operation that matters most in it, or the step if it computes none of the model's."""
        return self.operations[0] if self.operations else self.step

    @property
    def ns_per_value(self) -> float | None:
        """Return the time for each value that is computed, in nanoseconds (density)."""
        return self.time_ns / self.values if self.values else None

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        return {**asdict(self), "operations": list(self.operations), "converts": list(self.converts)}


@dataclass(frozen=True)
class LayerTimes:
    """The times of all layers of a run, which add up to the run.

    Parameters
    ----------
    runtime
        What ran the model.
    layers
        The steps, in the order in which they ran.
    unattributed
        The part of the run that belongs to no step.
    run_ns
        The time of the whole run, which is the sum of all of them, in nanoseconds.
    plain_ns
        The median time of a run that was not recorded.
    coverage
        The share of a run that belongs to steps, as the median over the runs.
    overhead
        The share by which the recording lengthened a run.
    doubts
        Reasons why times of single layers are not to be relied on.
    times
        The times of every run.
    """

    runtime: str
    layers: tuple[LayerTime, ...]
    unattributed: LayerTime
    run_ns: float
    plain_ns: float | None
    coverage: float
    overhead: float | None
    doubts: tuple[str, ...]
    times: OperationTimes = field(repr=False, compare=False)

    @property
    def mapped(self) -> float:
        """Return the share of the attributed time whose steps compute operations of the model, or convert for them."""
        whole = sum(each.time_ns for each in self.layers)
        known = sum(each.time_ns for each in self.layers if each.operations or each.converts)
        return known / whole if whole else 1.0

    @property
    def rows(self) -> tuple[LayerTime, ...]:
        """Return all layers, and the part that belongs to none."""
        return (*self.layers, self.unattributed)

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        return {
            "runtime": self.runtime,
            "run_ns": self.run_ns,
            "plain_ns": self.plain_ns,
            "runs": self.times.runs,
            "coverage": self.coverage,
            "overhead": self.overhead,
            "mapped": self.mapped,
            "doubts": list(self.doubts),
            "layers": [each.to_json() for each in self.rows],
        }


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
                **_figures(counted, users),
            )
        )
    rest = LayerTime(
        "not attributed", "not attributed", (), "", "", "", usual[-1], low[-1], high[-1], usual[-1] / whole
    )
    plain = float(times.plain_ns[middle_half(times.plain_ns)].mean()) if len(times.plain_ns) else None
    return LayerTimes(
        runtime, tuple(layers), rest, whole, plain, times.coverage, times.overhead, times.doubts, times
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
