"""A reason to distrust a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "too few",
    "warming up",
    "drifting",
    "unstable",
    "dependent",
    "throttled",
    "loaded",
    "preempted",
    "clock",
    "not repeated",
    "preprocessing",
    "overridden",
    "range",
    "quantised twice",
    "saturation",
    "not finite",
    "chance",
    "constant",
    "collapsed",
    "different",
    "settings",
    "slow",
]
"""The kinds of doubt; ``docs/measuring.md`` says how each is found."""

OF_QUALITY: tuple[Kind, ...] = (
    "preprocessing",
    "overridden",
    "range",
    "quantised twice",
    "saturation",
    "not finite",
    "chance",
    "constant",
    "collapsed",
    "different",
)
"""The kinds that concern predictions, not times."""

BARRING: tuple[Kind, ...] = (
    "not finite",
    "quantised twice",
    "chance",
    "constant",
    "collapsed",
    "different",
)
"""The kinds with which no candidate is chosen, by a comparison, sweep or search: a model that
predicts nothing is often the fastest.
"""


@dataclass(frozen=True)
class ValidityWarning:
    """One reason to distrust the measured values of a run.

    Parameters
    ----------
    kind
        The kind of problem.
    reason
        The observation, with numbers; a clause without a full stop.
    """

    kind: Kind
    reason: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"{self.kind!r} is no kind of doubt; there are {', '.join(get_args(Kind))}"
            )
