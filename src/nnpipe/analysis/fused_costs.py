"""What several operations cost that are computed in one step: values that only pass between them are no traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnpipe.analysis.live_memory import bytes_of
from nnpipe.analysis.operation_costs import OperationCost
from nnpipe.core.graph import Graph

_MOVING = ("quantisation", "movement", "view")


@dataclass(frozen=True)
class FusedCost:
    """The sums over operations that are computed in one step.

    Parameters
    ----------
    macs, others
        Multiply-accumulates and other operations on numbers; ``None`` if an operation has no rule.
    bytes_read, bytes_written
        The traffic from and to the step.
    parameters
        The parameters that it uses.
    live_bytes
        The most live memory of its operations.
    values
        The number of values that it computes.
    """

    macs: int | None = None
    others: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    parameters: int = 0
    live_bytes: int | None = None
    values: int | None = None


def importance(cost: OperationCost) -> tuple[int, bool, int]:
    """Return what orders the operations of a step: the greatest says what the step mainly computes."""
    known = cost.arithmetic
    computes = cost.primitive not in _MOVING  # a sum with quantised inputs is a sum
    return (0 if known is None else known.macs, computes, 0 if known is None else known.others)


def users_of(graph: Graph) -> dict[str, set[str]]:
    """Return the operations that read each tensor; an output of the model is read by the caller as well."""
    found: dict[str, set[str]] = {name: {""} for name in graph.outputs}
    for operation in graph.operations:
        for tensor in operation.inputs:
            found.setdefault(tensor, set()).add(operation.name)
    return found


def fused_cost(operations: Sequence[OperationCost], users: Mapping[str, set[str]]) -> FusedCost:
    """Return the sums over operations that are computed in one step.

    Parameters
    ----------
    operations
        Their costs.
    users
        What :func:`users_of` returned.
    """
    if not operations:
        return FusedCost()
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
    return FusedCost(
        _sum([None if each.arithmetic is None else each.arithmetic.macs for each in operations]),
        _sum([None if each.arithmetic is None else each.arithmetic.others for each in operations]),
        None if read is None else max(read - reads, 0),
        None if written is None else max(written - writes, 0),
        sum(each.parameters for each in operations),
        max(live, default=None),
        sum(math.prod(length or 0 for length in spec.shape) for spec in results),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
