"""Two runs of one network side by side: what each takes for the same operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnpipe.analysis.layer_times import LayerTime, LayerTimes
from nnpipe.core.errors import ConfigError


@dataclass(frozen=True)
class PairedLayers:
    """The time of the same operations in two runs.

    Parameters
    ----------
    name, kind
        The operation that matters most, and its kind.
    operations
        All of them; more than one if one of the two fuses them.
    first_ns, second_ns
        Their time in each run in nanoseconds; the conversions that follow them are not included.
    first_precision, second_precision
        The types of the numbers that each computed with.
    """

    name: str
    kind: str
    operations: tuple[str, ...]
    first_ns: float
    second_ns: float
    first_precision: str
    second_precision: str

    def to_json(self) -> dict[str, Any]:
        """Return the pair as JSON can hold it."""
        return {**asdict(self), "operations": list(self.operations)}


def side_by_side(first: LayerTimes, second: LayerTimes) -> tuple[PairedLayers, ...]:
    """Return the times of the same operations, in the order of the first run, and then what belongs to none.

    Steps that share an operation are put together, so that each operation counts once and the times add up to both
    runs.

    Raises
    ------
    ConfigError
        If the two have no operation in common.
    """
    sides = (first.layers, second.layers)
    if not {name for each in sides[0] for name in each.operations} & {
        name for each in sides[1] for name in each.operations
    }:
        raise ConfigError("the two runs have no operation in common: explain both by the graph of one network")
    leader: dict[str, str] = {}
    for layers in sides:
        for each in layers:
            _join(leader, each.operations)
    groups: dict[str, tuple[list[LayerTime], list[LayerTime]]] = {}
    for side, layers in enumerate(sides):
        for each in layers:
            if each.operations:
                groups.setdefault(_leader(leader, each.operations[0]), ([], []))[side].append(each)
    found = [_pair(*members) for members in groups.values()]
    rest = [
        [each for each in times.rows if not each.operations and each.step != times.unattributed.step]
        for times in (first, second)
    ]
    found.append(_named("conversions and others", *(_sum(each) for each in rest)))
    found.append(_named("not attributed", first.unattributed.time_ns, second.unattributed.time_ns))
    return tuple(found)


def _pair(first: Sequence[LayerTime], second: Sequence[LayerTime]) -> PairedLayers:
    main = max((*first, *second), key=lambda each: (each.macs or 0, each.time_ns))
    operations = tuple(dict.fromkeys(name for each in (*first, *second) for name in each.operations))
    return PairedLayers(
        main.name, main.kind, operations, _sum(first), _sum(second), _types(first), _types(second),
    )  # fmt: skip


def _named(name: str, first_ns: float, second_ns: float) -> PairedLayers:
    return PairedLayers(name, name, (), first_ns, second_ns, "", "")


def _sum(layers: Sequence[LayerTime]) -> float:
    return sum(each.time_ns for each in layers)


def _types(layers: Sequence[LayerTime]) -> str:
    return ", ".join(sorted({each.precision for each in layers} - {""}))


def _join(leader: dict[str, str], names: Sequence[str]) -> None:
    """Put names into one group."""
    for name in names:
        leader.setdefault(name, name)
        leader[_leader(leader, name)] = _leader(leader, names[0])


def _leader(leader: dict[str, str], name: str) -> str:
    while leader[name] != name:
        leader[name] = leader[leader[name]]
        name = leader[name]
    return name
