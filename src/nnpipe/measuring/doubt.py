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
    "chance",
    "constant",
    "settings",
]
"""What may have spoilt a measurement; ``docs/measuring.md`` says how each is found."""

OF_QUALITY: tuple[Kind, ...] = ("preprocessing", "overridden", "range", "quantised twice", "chance", "constant")
"""Those that concern predictions, not times."""

BARRING: tuple[Kind, ...] = ("chance", "constant")
"""Those with which nothing is chosen unless told so: what predicts nothing is often the fastest of all."""


@dataclass(frozen=True)
class Doubt:
    """One reason to distrust the figures of a run.

    Parameters
    ----------
    kind
        The name of what is wrong.
    reason
        What was seen, with figures; a clause without a full stop.
    """

    kind: Kind
    reason: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"{self.kind!r} is no kind of doubt; there are {', '.join(get_args(Kind))}")
