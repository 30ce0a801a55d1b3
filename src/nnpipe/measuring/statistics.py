"""Statistics of latencies, with confidence intervals.

They assume neither a normal distribution, which latencies do not have, nor
independent calls: the intervals are those of :mod:`nnpipe.measuring.quantile_intervals`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.quantile_intervals import (
    CONFIDENCE,
    Floats,
    Sample,
    compute_correlated_mean_interval,
    count_samples_needed,
    find_interval_ranks,
)

__all__ = (
    "CONFIDENCE",
    "SHARES",
    "Percentile",
    "Summary",
    "compute_percentile",
    "count_samples_needed",
    "find_interval_ranks",
)

SHARES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Percentile:
    """A percentile of a sample, or the number of samples that it would need.

    Parameters
    ----------
    share
        The percentile, 0.99 for p99.
    needed
        The least number of samples for an interval, if they depend on each other as these do.
    value, interval
        The percentile and its confidence interval; ``None`` if there are too few samples.
    effective
        The number of independent samples that these are worth for this percentile.
    """

    share: float
    needed: int
    value: float | None
    interval: tuple[float, float] | None
    effective: float

    @property
    def name(self) -> str:
        """The name, such as ``median``, ``p90`` or ``p99.9``."""
        return "median" if self.share == 0.5 else f"p{100 * self.share:g}"


class Summary:
    """Statistics of a series of latencies, in nanoseconds; each is computed on first access.

    Parameters
    ----------
    values
        ``(samples,)`` latencies in the order of time; at least one.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._times = np.asarray(values)

    @classmethod
    def from_values(cls, values: npt.NDArray[Any]) -> Summary:
        """Make the summary of ``(samples,)`` values in the order of time; at least one."""
        return cls(values)

    @functools.cached_property
    def sample(self) -> Sample:
        """The series, from which any quantile with its interval can be computed."""
        return Sample(self._times)

    @property
    def ordered(self) -> Floats:
        """The values in ascending order, ``(samples,)``."""
        return self.sample.ordered

    @functools.cached_property
    def mean(self) -> float:
        """The mean of the series."""
        return float(self.ordered.mean())

    @functools.cached_property
    def mean_interval(self) -> tuple[float, float] | None:
        """The confidence interval of the mean; ``None`` if there are too few samples."""
        return compute_correlated_mean_interval(self._times.astype(np.float64, copy=False))

    @functools.cached_property
    def deviation(self) -> float | None:
        """The sample's standard deviation (divided by n - 1), or ``None`` for a single value."""
        return float(self.ordered.std(ddof=1)) if len(self) > 1 else None

    @functools.cached_property
    def percentiles(self) -> tuple[Percentile, ...]:
        """The percentiles at each of ``SHARES``."""
        return tuple(compute_percentile(self.sample, share) for share in SHARES)

    def __len__(self) -> int:
        return len(self._times)

    @property
    def least(self) -> float:
        """The lowest value."""
        return float(self.ordered[0])

    @property
    def greatest(self) -> float:
        """The highest value."""
        return float(self.ordered[-1])

    @property
    def median(self) -> float:
        """The sample median, for any number of samples."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> float:
        """Return a quantile of the sample even if there are too few samples for an interval; use
        it for plots only.
        """
        return compute_ordered_quantile(self.ordered, share)

    def percentile(self, share: float) -> Percentile:
        """Return one of ``percentiles``."""
        return next(found for found in self.percentiles if found.share == share)


def compute_ordered_quantile(ordered: Floats, share: float) -> float:
    """Return what ``numpy.quantile`` returns, from values in ascending order and without
    partitioning them again.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    part = place - below
    # The two forms of the interpolation, as in numpy, so that the result never passes either value.
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def compute_percentile(sample: Sample, share: float) -> Percentile:
    """Return a quantile with its interval, or without both if there are too few samples."""
    samples, effective, needed = (
        len(sample),
        sample.count_effective(share),
        count_samples_needed(share),
    )
    interval = sample.interval(share)
    if interval is None:
        return Percentile(
            share, max(samples + 1, math.ceil(needed * samples / effective)), None, None, effective
        )
    return Percentile(
        share, needed, compute_ordered_quantile(sample.ordered, share), interval, effective
    )
