"""The Pareto front, and how sure it is.

A candidate is on the front if no other is at least as good in every objective
and better in one (V. Pareto; see K. Miettinen, "Nonlinear Multiobjective
Optimization", 1998, definition 2.2.1).  Measured figures scatter, so the
front does too: it is drawn many times from the uncertainty of the figures, and
a candidate's share of these draws is told beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.measuring import _dominance

_AT_ONCE = 1 << 22  # figures of one objective that are looked at together


def on_front(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Tell which candidates no other beats.

    Takes time that grows with n log n for up to three objectives and n
    candidates, and with n squared beyond.

    Parameters
    ----------
    values
        Shape (..., candidates, objectives), floats; less is better.  NaN, an
        unknown figure, is beaten by every known one.

    Returns
    -------
    ndarray
        Shape (..., candidates), bool.

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
    return ~_dominance.beaten(tables).reshape(known.shape[:-1])


def front_shares(draws: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return how often each candidate is on the front.

    Parameters
    ----------
    draws
        Shape (draws, candidates, objectives), floats; less is better.  Drawn
        together for all candidates where their errors belong together (the
        same test samples), and apart where they do not.

    Returns
    -------
    ndarray
        Shape (candidates,), float64, from 0 to 1.
    """
    step = max(1, _AT_ONCE // max(draws.shape[1], 1))
    counts = sum(on_front(draws[i : i + step]).sum(0) for i in range(0, len(draws), step))
    return np.asarray(counts / len(draws), np.float64)
