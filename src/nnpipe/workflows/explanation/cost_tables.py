"""The costs of a graph as tables and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sized
from dataclasses import asdict, dataclass
from typing import Any

from nnpipe.analysis.operation_costs import UNKNOWN_KIND, GraphCost, OperationCost
from nnpipe.report.document import Table
from nnpipe.report.formatting import NOTHING, clean, count, digits, share, shortened, size

_NAME, _DETAILS, _MOST_KINDS = 48, 32, 12


@dataclass(frozen=True)
class KindCost:
    """The sums over all operations of one kind.

    Parameters
    ----------
    kind
        The kind of primitive.
    operations
        The number of operations.
    macs, others
        Multiply-accumulates and other operations on numbers; ``None`` if one of the operations has no rule.
    traffic
        Bytes read and written; ``None`` if it is not known of one of them.
    parameters
        The sum of the parameters that each operation uses.
    """

    kind: str
    operations: int
    macs: int | None
    others: int | None
    traffic: int | None
    parameters: int

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON can hold them."""
        return asdict(self)


def kind_costs(cost: GraphCost) -> tuple[KindCost, ...]:
    """Return the sums by kind, those with the most arithmetic first."""
    groups: dict[str, list[OperationCost]] = {}
    for each in cost.operations:
        groups.setdefault(each.primitive, []).append(each)
    found = [
        KindCost(
            kind,
            len(members),
            _sum(None if each.arithmetic is None else each.arithmetic.macs for each in members),
            _sum(None if each.arithmetic is None else each.arithmetic.others for each in members),
            _sum(each.traffic for each in members),
            sum(each.parameters for each in members),
        )
        for kind, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: (-(each.macs or 0), -(each.others or 0), each.kind)))


def operation_table(cost: GraphCost) -> Table:
    """Return a table with a row for each operation."""
    header = (
        "operation", "kind", "details", "output", "MACs", "parameters", "read", "written", "live", "operations/byte",
    )  # fmt: skip
    rows = tuple(
        (
            shortened(clean(each.name), _NAME),
            each.primitive if each.primitive != UNKNOWN_KIND else f"{UNKNOWN_KIND} ({shortened(clean(each.kind), 24)})",
            shortened(clean(each.details), _DETAILS),
            _shapes(each),
            count(None if each.arithmetic is None else each.arithmetic.macs),
            count(each.parameters),
            _size(each.bytes_read),
            _size(each.bytes_written),
            _size(each.live_bytes),
            digits(each.intensity),
        )
        for each in cost.operations
    )
    return Table(header, rows)


def kind_table(cost: GraphCost) -> Table:
    """Return a table with a row for each kind of primitive, with its share of all."""
    kinds = kind_costs(cost)
    macs, traffic = cost.arithmetic.macs, sum(each.traffic or 0 for each in kinds)
    rows = tuple(
        (
            each.kind,
            count(each.operations),
            count(each.macs),
            _share(each.macs, macs),
            _size(each.traffic),
            _share(each.traffic, traffic),
            count(each.parameters),
        )
        for each in kinds
    )
    return Table(("kind", "operations", "MACs", "share", "traffic", "of it", "parameters"), rows)


def sentences(cost: GraphCost) -> list[str]:
    """Return the totals, and what they do not include, as sentences."""
    total, peak = cost.arithmetic, cost.peak
    least = "at least " if cost.unknown else ""
    told = [
        f"total: {least}{count(total.macs)} MACs and {count(total.others)} other operations; "
        f"{count(cost.parameters)} parameters"
    ]
    if peak is not None:
        told.append(
            f"peak of live memory: {count(peak.live_bytes)} bytes, at {shortened(clean(peak.name), 80)} "
            "(every value is kept until its last use, nothing fused)"
        )
    if cost.folded:
        told.append(f"left out: {_operations(cost.folded)} on constants, which runtimes compute when they load it")
    if cost.unknown:
        kinds = Counter(each.kind for each in cost.unknown)
        named = ", ".join(f"{number} {clean(kind, 60)}" for kind, number in kinds.most_common(_MOST_KINDS))
        more = f" and {len(kinds) - _MOST_KINDS} further kinds" if len(kinds) > _MOST_KINDS else ""
        told.append(f"not counted: {_operations(cost.unknown)} without a rule or of unknown size: {named}{more}")
    return told


def _shapes(each: OperationCost) -> str:
    told = [" x ".join("?" if n is None else str(n) for n in spec.shape) + f" {spec.dtype}" for spec in each.outputs]
    return f"{told[0]}{f' (+{len(told) - 1})' if len(told) > 1 else ''}" if told else NOTHING


def _size(value: int | None) -> str:
    return NOTHING if value is None else size(value)


def _share(part: int | None, whole: int) -> str:
    return share(part / whole, 1) if part is not None and whole else NOTHING


def _sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)


def _operations(found: Sized) -> str:
    return "1 operation" if len(found) == 1 else f"{len(found)} operations"
