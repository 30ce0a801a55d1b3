"""What a run would take if some of its steps were faster (G. M. Amdahl, AFIPS 1967)."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnpipe.analysis.layer_times import LayerTime, LayerTimes
from nnpipe.core.errors import ConfigError
from nnpipe.report.formatting import digits, duration, share


@dataclass(frozen=True)
class Speedup:
    """Steps that are assumed to be faster.

    Parameters
    ----------
    pattern
        A shell pattern of the names of operations or steps, of their operators, or of kinds: ``"Conv*"``.
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
            f"if {self.speedup.pattern} were {digits(self.speedup.factor)} times as fast ({self.steps} steps), a run "
            f"would take {duration(self.after_ns)} instead of {duration(self.before_ns)} ({share(gain, 1)} less)"
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


def what_if(times: LayerTimes, speedups: Sequence[Speedup]) -> tuple[WhatIf, ...]:
    """Return what a run would take under each assumption alone.

    The steps' shares are those of recorded runs, and the time is that of runs that are not recorded, if it is known.

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
