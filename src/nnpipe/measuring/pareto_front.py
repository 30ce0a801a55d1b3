"""The Pareto front, and its uncertainty.

A candidate is on the front if no other is at least as good in every objective
and better in one (V. Pareto; see K. Miettinen, "Nonlinear Multiobjective
Optimization", 1998, definition 2.2.1).  Measured values are uncertain, and so is
the front.  So it is computed for many random draws of the values, and each
candidate's share of these fronts is reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.measuring import _dominance

_AT_ONCE = 1 << 22  # values of one objective that are processed together


def on_front(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which candidates are not dominated by another.

    For n candidates, the time grows with n log n for up to three objectives, and
    with n squared for more.

    Parameters
    ----------
    values
        Floats of shape ``(..., candidates, objectives)``; less is better.  NaN, an
        unknown value, is worse than every known one.

    Returns
    -------
    ndarray
        Bool, of shape ``(..., candidates)``.

    Raises
    ------
    ConfigError
        If there is no candidate or no objective.
    """
    given = np.asarray(values, np.float64)
    if given.ndim < 2 or not given.shape[-1] or not given.shape[-2]:
        raise ConfigError("a front needs at least one candidate and one objective")
    known = np.where(np.isnan(given), np.inf, given)
    tables = known.reshape(-1, *known.shape[-2:])
    return ~_dominance.dominated(tables).reshape(known.shape[:-1])


def front_shares(draws: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return how often each candidate is on the front.

    Parameters
    ----------
    draws
        Floats of shape ``(draws, candidates, objectives)``; less is better.  If
        the errors of candidates are correlated (they use the same test samples),
        they must be drawn jointly, otherwise independently.

    Returns
    -------
    ndarray
        Float64 from 0 to 1, of shape ``(candidates,)``.
    """
    step = max(1, _AT_ONCE // max(draws.shape[1], 1))
    counts = sum(on_front(draws[i : i + step]).sum(0) for i in range(0, len(draws), step))
    return np.asarray(counts / len(draws), np.float64)
