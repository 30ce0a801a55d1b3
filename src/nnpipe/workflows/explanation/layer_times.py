"""From the steps of a runtime to the layers of the network: which operations each step computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnpipe.analysis.kernel_sources import is_conversion, match_kernels_to_operations
from nnpipe.analysis.kernels import compute_fused_cost, get_importance
from nnpipe.analysis.layer_times import ADDED, CONVERSION, LayerTime, LayerTimes
from nnpipe.analysis.operation_costs import OperationCost, compute_graph_cost
from nnpipe.core.graph import Graph
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.measuring.quantile_intervals import compute_usual_times, select_middle_half


def compute_layer_times(runtime: str, graph: Graph, times: OperationTimes) -> LayerTimes:
    """Return the times of a model's layers.

    Parameters
    ----------
    runtime
        What ran the model.
    graph
        The model's graph with known lengths.
    times
        What :meth:`~nnpipe.InferenceSession.profile` returned.
    """
    usual, low, high = (array.tolist() for array in compute_usual_times(times))
    whole = sum(usual)
    sources = match_kernels_to_operations(graph, times.kernels)
    cost = compute_graph_cost(graph, _find_separate_conversions(graph, sources))
    costs = {each.name: each for each in cost.operations}
    # The figures of an operation that several steps compute count once, in the longest of them.
    longest: dict[str, int] = {}
    for number, kernel in enumerate(times.kernels):
        for name in sources[kernel.name]:
            longest[name] = max(longest.get(name, number), number, key=lambda each: usual[each])
    converted = _find_neighbour_operations(times.kernels, sources)
    layers = []
    for number, kernel in enumerate(times.kernels):
        names = [name for name in sources[kernel.name] if name in costs]
        counted = [costs[name] for name in names if longest[name] == number]
        names.sort(key=lambda name: get_importance(costs[name]), reverse=True)
        layers.append(
            LayerTime(
                kernel.name,
                _choose_kind(names, costs, kernel),
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
                **vars(compute_fused_cost(counted, cost.stored)),
            )
        )
    rest = LayerTime(
        "not attributed",
        "not attributed",
        (),
        "",
        "",
        "",
        usual[-1],
        low[-1],
        high[-1],
        usual[-1] / whole,
    )
    plain = (
        float(times.plain_ns[select_middle_half(times.plain_ns)].mean())
        if len(times.plain_ns)
        else None
    )
    return LayerTimes(
        runtime,
        tuple(layers),
        rest,
        whole,
        plain,
        times.coverage,
        times.overhead,
        times.doubts,
        times.runs,
    )


def _find_separate_conversions(graph: Graph, sources: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return the conversions to and from integers that are steps of their own."""
    converting = {
        each.name
        for each in graph.operations
        if {every.kind for every in each.primitives} == {"quantisation"}
    }
    return {name for names in sources.values() if converting.issuperset(names) for name in names}


def _choose_kind(
    names: Sequence[str], costs: Mapping[str, OperationCost], kernel: KernelTime
) -> str:
    if names:
        return costs[names[0]].primitive
    return CONVERSION if is_conversion(kernel.kind) else ADDED


def _find_neighbour_operations(
    kernels: Sequence[KernelTime], sources: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return for each step the operations of the steps before it, or else of those behind it,
    conversions aside.
    """
    before = dict(sources)
    for kernel in kernels:
        if not sources[kernel.name]:
            before[kernel.name] = tuple(
                dict.fromkeys(name for each in kernel.after for name in before.get(each, ()))
            )
    behind = dict(sources)
    for kernel in reversed(kernels):
        for each in kernel.after:
            if not sources.get(each, ()):
                behind[each] = tuple(dict.fromkeys((*behind.get(each, ()), *behind[kernel.name])))
    return {kernel.name: before[kernel.name] or behind[kernel.name] for kernel in kernels}
