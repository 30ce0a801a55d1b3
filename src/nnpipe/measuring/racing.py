"""Decide which candidates of a race are measured further, and which can no longer win.

Every candidate is measured a little, then more, then in full.  After each measurement, whoever
cannot win any more is left behind (O. Maron and A. W. Moore, "The racing algorithm", Artificial
Intelligence Review 11 (1997), 193-225). Of the others, the one that seems best comes first, then
the one that may still be best by most (S. Kalyanakrishnan, A. Tewari, P. Auer and P. Stone, "PAC
subset selection in stochastic multi-armed bandits", ICML 2012).

The results are looked at many times, which would make mistakes more frequent.  The number of stages
is known in advance, so each interval gets an equal part of the allowed error (error spending; K. K.
G. Lan and D. L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983),
659-663; the parts add up by Bonferroni's inequality): all intervals hold together with the stated
confidence, however often they are looked at and whenever the race stops.

Everything here is computed from its arguments alone, so the same measurements lead to the same
decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SHARES = (0.05, 0.25, 1.0)
"""The share of a full measurement that each stage takes."""

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Racer:
    """What is known of a candidate.

    Parameters
    ----------
    stage
        The number of stages that it was measured in, from 0; ``len(SHARES)`` if it was measured in
        full.
    possible
        Whether it may still qualify; of a candidate measured in full, whether it qualifies.
    unmet
        The number of constraints that its estimates do not meet.
    value, low, high
        The metric to choose by and its interval; less is better.
    """

    stage: int
    possible: bool
    unmet: int = 0
    value: float = math.inf
    low: float = -math.inf
    high: float = math.inf

    @property
    def complete(self) -> bool:
        """Whether it was measured in full."""
        return self.stage >= len(SHARES)


def compute_interval_confidence(confidence: float, candidates: int, metrics: int) -> float:
    """Return the confidence of each interval with which all intervals of a race hold together
    with ``confidence``.
    """
    return 1 - (1 - confidence) / (len(SHARES) * max(candidates, 1) * max(metrics, 1))


def find_leaders(racers: Sequence[Racer]) -> list[int]:
    """Return the candidates that are measured in full and qualify, the best first."""
    found = [place for place, racer in enumerate(racers) if racer.complete and racer.possible]
    return sorted(found, key=lambda place: (racers[place].value, place))


def open_for_choice(racers: Sequence[Racer], beaten: Sequence[bool]) -> list[int]:
    """Return the candidates that may still be chosen and are not measured in full, in the order to
    measure them.

    Parameters
    ----------
    racers
        All candidates.
    beaten
        Whether each is surely worse than one of the :func:`find_leaders`.
    """
    waiting = [
        place
        for place, racer in enumerate(racers)
        if racer.possible and not racer.complete and not beaten[place]
    ]
    first = find_leaders(racers)[:1]
    running = [*waiting, *first]
    if not running:
        return []

    def get_apparent_key(place: int) -> tuple[int, float, int]:
        return racers[place].unmet, racers[place].value, place

    def get_optimistic_key(place: int) -> tuple[int, float, int]:
        return racers[place].unmet, racers[place].low, place

    order = sorted(waiting, key=get_optimistic_key)
    best = min(running, key=get_apparent_key)
    if best in order:
        order.remove(best)
        order.insert(0, best)
    return order


def find_front_places(
    low: Floats, high: Floats, twins: npt.NDArray[np.int64], shared: Flags
) -> tuple[Flags, Flags]:
    """Return which candidates are surely dominated, and which are surely on the Pareto front.

    Parameters
    ----------
    low, high
        The intervals of the objectives, less is better: ``(candidates, objectives)``, without NaN.
    twins
        ``(candidates,)``: those with the same number are equal in the ``shared`` objectives,
        whatever their values.
    shared
        ``(objectives,)``.

    Returns
    -------
    tuple of ndarray
        Two of ``(candidates,)`` bool; where both are false, more measurements may decide.
    """
    dominated, surely = np.zeros(len(low), bool), np.zeros(len(low), bool)
    for place in range(len(low)):
        equal = (twins == twins[place])[:, None] & shared
        as_good, better = (high <= low[place]) | equal, (high < low[place]) & ~equal
        dominated[place] = bool((as_good.all(axis=1) & better.any(axis=1)).any())
        # Another may dominate it if it may be as good in everything and better in something.
        may = ((low <= high[place]) | equal).all(axis=1) & ((low < high[place]) & ~equal).any(
            axis=1
        )
        may[place] = False
        surely[place] = not may.any()
    return dominated, surely
