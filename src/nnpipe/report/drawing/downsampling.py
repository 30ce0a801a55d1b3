"""Downsampling of long series for plots, which keeps the extreme values of each column of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.report.charts import Floats, Line

COLUMNS = 360  # approximate width of a plot in points


def thinned(label: str, x: npt.NDArray[Any], y: npt.NDArray[Any], columns: int = COLUMNS) -> Line:
    """Return a curve of at most ``columns`` points.

    Each point is the median of a column, with the column's minimum and maximum,
    so that a single outlier among a million samples stays visible.

    Parameters
    ----------
    label
        The label of the curve.
    x, y
        Arrays ``(samples,)``; ``x`` is ascending.
    columns
        The greatest number of points; shorter series are returned unchanged.
    """
    if len(x) <= columns:
        return Line(label, np.asarray(x, np.float64), np.asarray(y, np.float64))
    starts = column_starts(x, columns)
    ends = np.append(starts[1:], len(x))
    ordered = y.copy()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        ordered[start:end].sort()  # the median is then in the middle; np.median of each takes ten times as long
    middle = (ordered[(starts + ends - 1) // 2].astype(np.float64) + ordered[(starts + ends) // 2]) / 2
    return Line(
        label,
        _centres(x, starts, ends),
        middle,
        np.minimum.reduceat(y, starts).astype(np.float64),
        np.maximum.reduceat(y, starts).astype(np.float64),
    )


def column_means(
    x: npt.NDArray[Any], layers: tuple[npt.NDArray[Any], ...], columns: int = COLUMNS
) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the centres of the columns and the mean of each layer in them; the means add up like the layers."""
    if len(x) <= columns:
        return np.asarray(x, np.float64), tuple(np.asarray(layer, np.float64) for layer in layers)
    starts = column_starts(x, columns)
    ends = np.append(starts[1:], len(x))
    means = tuple(np.add.reduceat(layer, starts, dtype=np.float64) / (ends - starts) for layer in layers)
    return _centres(x, starts, ends), means


def column_starts(x: npt.NDArray[Any], columns: int) -> npt.NDArray[np.intp]:
    """Return the first index in each of the columns of equal width that ``x`` is divided into, without empty ones."""
    edges = np.linspace(float(x[0]), float(x[-1]), columns + 1)[:-1]
    starts = np.unique(np.searchsorted(x, edges))
    return starts[starts < len(x)]


def _centres(x: npt.NDArray[Any], starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Floats:
    centres: Floats = (x[starts].astype(np.float64) + x[ends - 1]) / 2
    return centres
