"""Why a network takes the time that it takes, in words."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.layer_times import CONVERSION, LayerTime, LayerTimes
from nnpipe.core.errors import ConfigError
from nnpipe.report.formatting import clean, format_duration, format_number, format_share, shorten

_INTEGERS = ("int8", "uint8")
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_LEAST_SHARE = 0.03  # a reason has at least this share of the run
_TIMES_SLOWER = 4.0  # an operation is slow if it takes this many times what the others suggest
_FEWEST_PEERS = 5
_NAME = 60


@dataclass(frozen=True)
class Reason:
    """Something that costs time and might be avoided.

    Parameters
    ----------
    text
        The reason in words.
    share
        The share of the run that it concerns.
    layers
        The steps that it concerns.
    """

    text: str
    share: float
    layers: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the reason as JSON can hold it."""
        return {"text": self.text, "share": self.share, "layers": list(self.layers)}


def find_reasons(times: LayerTimes) -> tuple[Reason, ...]:
    """Return the reasons for a run's time, the greatest share first; none if nothing stands out."""
    in_floats = _find_float_steps(times)
    known = {name for each in in_floats for name in each.layers}
    found = [*in_floats, *_find_conversions(times, known), *_find_slow_steps(times)]
    return tuple(
        sorted((each for each in found if each.share >= _LEAST_SHARE), key=lambda each: -each.share)
    )


def _find_float_steps(times: LayerTimes) -> list[Reason]:
    """Return the arithmetic of a quantised network that ran in floats, by kind, with the
    conversions around it.
    """
    arithmetic = [each for each in times.layers if each.macs]
    if not any(each.precision in _INTEGERS for each in arithmetic):
        return []
    found = []
    readers = {name: each.step for each in times.layers for name in each.after}
    for kind in dict.fromkeys(each.kind for each in arithmetic):
        members = [each for each in arithmetic if each.kind == kind and each.precision in _FLOATS]
        if not members:
            continue
        names, steps = (
            {name for each in members for name in each.operations},
            {each.step for each in members},
        )
        around = [
            each
            for each in times.layers
            if each.kind == CONVERSION
            and (not names.isdisjoint(each.converts) or readers.get(each.step) in steps)
        ]
        part = _compute_share([*members, *around])
        between = f", with {_format_count(len(around), CONVERSION)} around them" if around else ""
        types = " and ".join(sorted({each.precision for each in members}))
        text = (
            f"{_format_count(len(members), kind)} ran in {types}{between}, although the network "
            f"has integers: {format_share(part, 0)} of the time"
        )
        found.append(Reason(text, part, tuple(each.step for each in (*members, *around))))
    return found


def _find_conversions(times: LayerTimes, known: set[str]) -> list[Reason]:
    members = [each for each in times.layers if each.kind == CONVERSION and each.step not in known]
    if not members:
        return []
    part = _compute_share(members)
    text = (
        f"{_format_count(len(members), CONVERSION)} of types or layouts: {format_share(part, 0)} "
        f"of the time"
    )
    return [Reason(text, part, tuple(each.step for each in members))]


def _find_slow_steps(times: LayerTimes) -> list[Reason]:
    """Return the steps that take far longer than the others with the same kind suggest.

    The time that the others suggest is their median time for each MAC, or for each byte of traffic
    without MACs; of the two for steps with MACs, the one that suggests more.
    """
    found = []
    usual = _compute_usual_rates(times.layers)
    for each in times.layers:
        expected = _compute_expected_time(each, usual)
        if expected is None or each.low_ns < _TIMES_SLOWER * expected:
            continue
        # What it would save counts, not what it takes.
        part = each.share * (1 - expected / each.time_ns)
        text = (
            f"{shorten(clean(each.name), _NAME)} takes {format_number(each.time_ns / expected, 2)} "
            f"times as long as other steps of its kind suggest ({each.kind}, "
            f"{clean(each.kernel or each.operator, 80)}): {format_share(part, 0)} of the time"
        )
        found.append(Reason(text, part, (each.step,)))
    return found


def _compute_usual_rates(layers: Sequence[LayerTime]) -> dict[tuple[str, int], float]:
    """Return the median time for each MAC (0) and for each byte (1) of the steps of a kind, if
    there are enough.
    """
    rates: dict[tuple[str, int], list[float]] = {}
    for each in layers:
        for place, size in enumerate((_count_macs(each), _compute_traffic(each))):
            if size:
                rates.setdefault((each.kind, place), []).append(each.time_ns / size)
    return {
        key: float(np.median(found)) for key, found in rates.items() if len(found) > _FEWEST_PEERS
    }


def _compute_expected_time(each: LayerTime, usual: Mapping[tuple[str, int], float]) -> float | None:
    sizes = enumerate((_count_macs(each), _compute_traffic(each)))
    return max(
        (
            size * usual[each.kind, place]
            for place, size in sizes
            if size and (each.kind, place) in usual
        ),
        default=None,
    )


def _count_macs(each: LayerTime) -> int:
    return each.macs or 0


def _compute_traffic(each: LayerTime) -> int:
    return (each.bytes_read or 0) + (each.bytes_written or 0)


def _compute_share(layers: Sequence[LayerTime]) -> float:
    return sum(each.share for each in layers)


def _format_count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


@dataclass(frozen=True)
class Speedup:
    """Steps that are assumed to be faster.

    Parameters
    ----------
    pattern
        A shell pattern of the names of operations or steps, of their operators, or of kinds:
        ``"Conv*"``.
    factor
        How many times as fast they are; less than 1 for slower ones.
    """

    pattern: str
    factor: float

    @classmethod
    def parse(cls, text: str) -> Speedup:
        """Make it from text such as ``"Conv*=2x"``; a pattern may contain ``=``.

        Raises
        ------
        ConfigError
            If the text has another form.

        Examples
        --------
        >>> Speedup.parse("depthwise*=1.5x")
        Speedup(pattern='depthwise*', factor=1.5)
        """
        pattern, _, number = text.rpartition("=")
        try:
            factor = float(number.removesuffix("x"))
        except ValueError:
            factor = 0.0
        if not pattern or not 0 < factor < float("inf"):
            raise ConfigError(f"{text}: expected PATTERN=FACTOR, such as 'Conv*=2x'")
        return cls(pattern, factor)

    def covers(self, layer: LayerTime) -> bool:
        """Return whether the pattern matches one of a step's names, its operator or its kind."""
        names = (*layer.operations, layer.step, layer.operator, layer.kind)
        return any(fnmatch.fnmatchcase(name, self.pattern) for name in names)


@dataclass(frozen=True)
class WhatIf:
    """The predicted time of a run.

    Parameters
    ----------
    speedup
        The assumption.
    steps
        The number of steps that it covers.
    before_ns, after_ns
        The time of a run now, and then, in nanoseconds.
    """

    speedup: Speedup
    steps: int
    before_ns: float
    after_ns: float

    def __str__(self) -> str:
        gain = 1 - self.after_ns / self.before_ns
        return (
            f"if {self.speedup.pattern} were {format_number(self.speedup.factor)} times as fast "
            f"({self.steps} steps), a run would take {format_duration(self.after_ns)} instead of "
            f"{format_duration(self.before_ns)} ({format_share(gain, 1)} less)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON can hold it."""
        return {
            "pattern": self.speedup.pattern,
            "factor": self.speedup.factor,
            "steps": self.steps,
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
        }


def predict_speedups(times: LayerTimes, speedups: Sequence[Speedup]) -> tuple[WhatIf, ...]:
    """Return what a run would take under each assumption alone.

    The steps' shares are those of recorded runs, and the time is that of runs that are not
    recorded, if it is known.

    Raises
    ------
    ConfigError
        If an assumption covers no step.
    """
    found = []
    whole = times.run_ns if times.plain_ns is None else times.plain_ns
    for each in speedups:
        members = [layer for layer in times.layers if each.covers(layer)]
        if not members:
            raise ConfigError(f"--if {each.pattern}: no operation, step or kind has such a name")
        saved = sum(layer.share for layer in members) * (1 - 1 / each.factor)
        found.append(WhatIf(each, len(members), whole, whole * (1 - saved)))
    return tuple(found)
