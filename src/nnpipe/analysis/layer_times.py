"""The times of a network's layers in a runtime: what each step computes, how long it takes, and
how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnpipe.core.errors import ConfigError

ADDED, CONVERSION, FURTHER = "added by the runtime", "conversion", "further steps"
"""The kinds of steps that compute no operation of the model (conversions of a type or a layout, and
others), and of a row with the sums of many steps.
"""


@dataclass(frozen=True)
class LayerTime:
    """A step of a runtime, with the operations of the model that it computes.

    Parameters
    ----------
    step
        The runtime's name of the step.
    kind
        The kind of what it mainly computes, in the words of the cost tables; :data:`CONVERSION` or
        :data:`ADDED`.
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
    after
        The steps whose results it reads, if the runtime tells them.
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
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the operation that matters most in it, or the step if it computes none of the
        model's.
        """
        return self.operations[0] if self.operations else self.step

    @property
    def ns_per_value(self) -> float | None:
        """Return the time for each value that is computed, in nanoseconds (density)."""
        return self.time_ns / self.values if self.values else None

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        found = asdict(self)
        return found | {name: list(found[name]) for name in ("operations", "converts", "after")}


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
    runs
        The number of runs.
    """

    runtime: str
    layers: tuple[LayerTime, ...]
    unattributed: LayerTime
    run_ns: float
    plain_ns: float | None
    coverage: float
    overhead: float | None
    doubts: tuple[str, ...]
    runs: int

    @property
    def mapped(self) -> float:
        """Return the share of the attributed time whose steps compute operations of the model,
        or convert for them.
        """
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
            "runs": self.runs,
            "coverage": self.coverage,
            "overhead": self.overhead,
            "mapped": self.mapped,
            "doubts": list(self.doubts),
            "layers": [each.to_json() for each in self.rows],
        }


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


def match_layer_times(first: LayerTimes, second: LayerTimes) -> tuple[PairedLayers, ...]:
    """Return the times of the same operations, in the order of the first run, and then what belongs
    to none.

    Steps that share an operation are put together, so that each operation counts once and the times
    add up to both runs.

    Raises
    ------
    ConfigError
        If the two have no operation in common.
    """
    sides = (first.layers, second.layers)
    if not {name for each in sides[0] for name in each.operations} & {
        name for each in sides[1] for name in each.operations
    }:
        raise ConfigError(
            "the two runs have no operation in common: explain both by the graph of one network"
        )
    leader: dict[str, str] = {}
    for layers in sides:
        for each in layers:
            _join(leader, each.operations)
    groups: dict[str, tuple[list[LayerTime], list[LayerTime]]] = {}
    for side, layers in enumerate(sides):
        for each in layers:
            if each.operations:
                groups.setdefault(_find_root(leader, each.operations[0]), ([], []))[side].append(
                    each
                )
    found = [_build_pair(*members) for members in groups.values()]
    rest = [
        [
            each
            for each in times.rows
            if not each.operations and each.step != times.unattributed.step
        ]
        for times in (first, second)
    ]
    found.append(_build_remainder("conversions and others", *(_sum_times(each) for each in rest)))
    found.append(
        _build_remainder("not attributed", first.unattributed.time_ns, second.unattributed.time_ns)
    )
    return tuple(found)


def _build_pair(first: Sequence[LayerTime], second: Sequence[LayerTime]) -> PairedLayers:
    main = max((*first, *second), key=lambda each: (each.macs or 0, each.time_ns))
    operations = tuple(
        dict.fromkeys(name for each in (*first, *second) for name in each.operations)
    )
    return PairedLayers(
        main.name,
        main.kind,
        operations,
        _sum_times(first),
        _sum_times(second),
        _format_precisions(first),
        _format_precisions(second),
    )


def _build_remainder(name: str, first_ns: float, second_ns: float) -> PairedLayers:
    return PairedLayers(name, name, (), first_ns, second_ns, "", "")


def _sum_times(layers: Sequence[LayerTime]) -> float:
    return sum(each.time_ns for each in layers)


def _format_precisions(layers: Sequence[LayerTime]) -> str:
    return ", ".join(sorted({each.precision for each in layers} - {""}))


def _join(leader: dict[str, str], names: Sequence[str]) -> None:
    """Put names into one group."""
    for name in names:
        leader.setdefault(name, name)
        leader[_find_root(leader, name)] = _find_root(leader, names[0])


def _find_root(leader: dict[str, str], name: str) -> str:
    while leader[name] != name:
        leader[name] = leader[leader[name]]
        name = leader[name]
    return name
