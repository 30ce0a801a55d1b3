"""What several operations cost that are computed in one step: values that only pass between them are no traffic."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nnpipe.analysis.operation_costs import OperationCost
from nnpipe.analysis.stored_values import StoredValues
from nnpipe.core.primitive_shapes import product
from nnpipe.core.tensors import TensorSpec

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


def fused_cost(operations: Sequence[OperationCost], stored: StoredValues) -> FusedCost:
    """Return the sums over operations that are computed in one step.

    Parameters
    ----------
    operations
        Their costs.
    stored
        The values of the graph as they are in memory.
    """
    if not operations:
        return FusedCost()
    names = {each.name for each in operations}
    computing = [each for each in operations if each.name not in stored.passing]
    inner = {
        stored.origin(spec.name)
        for each in computing
        for spec in each.outputs
        if stored.users.get(stored.origin(spec.name), frozenset()) <= names
    }
    reads = sum(_inside(each.inputs, inner, stored) for each in operations if each.bytes_read)
    writes = sum(_inside(each.outputs, inner, stored) for each in operations if each.bytes_written)
    read = _sum([each.bytes_read for each in operations])
    written = _sum([each.bytes_written for each in operations])
    live = [each.live_bytes for each in operations if each.live_bytes is not None]
    results = [
        spec for each in computing or operations for spec in each.outputs if stored.origin(spec.name) not in inner
    ]
    return FusedCost(
        _sum([None if each.arithmetic is None else each.arithmetic.macs for each in operations]),
        _sum([None if each.arithmetic is None else each.arithmetic.others for each in operations]),
        None if read is None else max(read - reads, 0),
        None if written is None else max(written - writes, 0),
        sum(each.parameters for each in operations),
        max(live, default=None),
        sum(product(spec.shape) or 0 for spec in results),
    )


def _inside(specs: Sequence[TensorSpec], inner: Collection[str], stored: StoredValues) -> int:
    """Return the bytes of the tensors that only pass between operations of the step."""
    return sum(stored.sizes[spec.name] or 0 for spec in specs if stored.origin(spec.name) in inner)


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
