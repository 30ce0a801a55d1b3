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

# Find the dominated rows of tables without comparing all pairs of rows.
#
# A row dominates another if it is nowhere greater and somewhere less.  Rows are sorted, so that
# only an earlier row can dominate a later one; its first number is then at most as large.  With two
# columns, a row is dominated if the least second number of the earlier rows is at most its own.
# With three columns, the least third number is needed among earlier rows whose second number is at
# most its own.  A tree of minima finds it in log n steps (P. M. Fenwick, "A new data structure for
# cumulative frequency tables", 1994; for the sweep H. T. Kung, F. Luccio and F. P. Preparata, "On
# finding the maxima of a set of vectors", 1975).  With more columns, the rows that are at most as
# large are stored as bits, 64 per word.  Each step is done for all tables together.

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


def find_dominated(tables: Floats) -> Flags:
    """Return which rows are dominated by another row of their table.

    Parameters
    ----------
    tables
        Shape (tables, rows, columns), without NaN.

    Returns
    -------
    ndarray
        Shape (tables, rows), bool.
    """
    columns = tables.shape[-1]
    if columns > 3:
        return np.stack([_find_dominated_by_bits(table) for table in tables])
    order = np.lexsort([tables[..., column] for column in reversed(range(columns))], axis=-1)
    ordered = np.take_along_axis(tables, order[..., None], axis=1)
    lost = [_find_dominated_1d, _find_dominated_2d, _find_dominated_3d][columns - 1](ordered)
    # Equal rows are dominated together or not at all.
    lost = np.take_along_axis(
        lost, _find_group_starts((ordered[:, 1:] != ordered[:, :-1]).any(-1)), axis=1
    )
    found = np.empty_like(lost)
    np.put_along_axis(found, order, lost, axis=1)
    return found


def _find_dominated_1d(ordered: Floats) -> Flags:
    """Return which rows of one column are not the least; only the first of equal rows is used."""
    return ordered[..., 0] > ordered[:, :1, 0]


def _find_dominated_2d(ordered: Floats) -> Flags:
    """Return which have a row further up that is at most as large; of rows that are equal, the
    first matters.
    """
    lost = np.zeros(ordered.shape[:-1], bool)
    lost[:, 1:] = np.minimum.accumulate(ordered[:, :-1, 1], axis=1) <= ordered[:, 1:, 1]
    return lost


def _find_dominated_3d(ordered: Floats) -> Flags:
    """Return which have a row further up that is at most as large; of rows that are equal, the
    first matters.
    """
    tables, rows, _ = ordered.shape
    places = np.ascontiguousarray(_compute_ranks(ordered[..., 1]).T) + 1
    thirds = np.ascontiguousarray(ordered[..., 2].T)
    depth = rows.bit_length()
    width = (1 << depth) + 1  # one more, in which steps that leave the tree end
    # NaN marks an empty place: no number compares with it, not even infinity
    tree = np.full(tables * width, np.nan)
    begin = np.arange(tables) * width
    lost = np.zeros((rows, tables), bool)
    for row in range(rows):
        lost[row] = _find_prefix_minimum(tree, begin, places[row]) <= thirds[row]
        _enter(tree, begin, places[row], thirds[row], depth, width)
    return np.asarray(lost.T)


def _find_prefix_minimum(tree: Floats, begin: Numbers, places: Numbers) -> Floats:
    """Return the least number at or before a position in each tree."""
    least = tree.take(begin + places)
    while True:
        places = places & (places - 1)
        if not places.any():
            return least
        np.fmin(least, tree.take(begin + places), out=least)


def _enter(
    tree: Floats, begin: Numbers, places: Numbers, numbers: Floats, depth: int, width: int
) -> None:
    for _ in range(depth):
        at = begin + places
        tree[at] = np.fmin(tree.take(at), numbers)
        places = np.minimum(places + (places & -places), width - 1)


def _find_dominated_by_bits(table: Floats) -> Flags:
    """Return which rows of one table are dominated."""
    distinct, back = np.unique(table, axis=0, return_inverse=True)
    rows = len(distinct)
    itself = np.zeros((rows, -(-rows // 64)), np.uint64)
    number = np.arange(rows)
    itself[number, number // 64] = np.uint64(1) << (number % 64).astype(np.uint64)
    within = ~itself
    for column in distinct.T:
        order = np.argsort(column)
        ordered = column[order]
        up_to = np.bitwise_or.accumulate(itself[order], axis=0)
        last = np.searchsorted(ordered, ordered, side="right") - 1
        within[order] &= up_to[last]
    return np.asarray(within.any(axis=-1))[back.reshape(-1)]


def _compute_ranks(values: Floats) -> Numbers:
    """Return for each number how many numbers of its row are less."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(ranks, order, _find_group_starts(ordered[:, 1:] != ordered[:, :-1]), axis=1)
    return ranks


def _find_group_starts(changes: Flags) -> Numbers:
    """Return where each number's group of equal numbers begins; ``changes`` marks the first
    number of each group.
    """
    tables, length = changes.shape[0], changes.shape[1] + 1
    begins = np.zeros((tables, length), np.int64)
    begins[:, 1:] = np.where(changes, np.arange(1, length), 0)
    return np.maximum.accumulate(begins, axis=1)


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
    return ~find_dominated(tables).reshape(known.shape[:-1])


def compute_front_shares(draws: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
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
