"""Statistics of latencies, and how sure they are.

Nothing here assumes a normal distribution, since latencies have none, nor that
calls are independent of each other: intervals are those of
:mod:`nnpipe.measure.dependence`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measure.dependence import Sample, mean_interval
from nnpipe.measure.ranks import CONFIDENCE, Floats, interval_ranks, samples_needed

__all__ = (
    "CONFIDENCE",
    "SHARES",
    "Percentile",
    "Summary",
    "interval_ranks",
    "percentile",
    "samples_needed",
)

SHARES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Percentile:
    """A percentile of a sample, or ``None`` and how many samples it would take.

    Parameters
    ----------
    share
        Which, 0.99 for p99.
    needed
        The least number of samples that would support it, if they depend on each other as these do.
    value, interval
        ``None`` if the sample does not support them.
    effective
        How many independent samples these are worth here.
    """

    share: float
    needed: int
    value: float | None
    interval: tuple[float, float] | None
    effective: float

    @property
    def name(self) -> str:
        """``median``, ``p90``, ``p99.9``."""
        return "median" if self.share == 0.5 else f"p{100 * self.share:g}"


@dataclass(frozen=True, eq=False)
class Summary:
    """What a series of latencies comes down to, in nanoseconds.

    Parameters
    ----------
    ordered
        The series, ascending, ``(samples,)``.
    mean, mean_interval
        The interval covers the mean of the process; ``None`` if there are too few samples for one.
    deviation
        The sample's standard deviation (divided by n - 1), or ``None`` for a single value.
    percentiles
        At each of ``SHARES``.
    """

    ordered: Floats
    mean: float
    mean_interval: tuple[float, float] | None
    deviation: float | None
    percentiles: tuple[Percentile, ...]

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Summary:
        """Summarise ``values`` (samples,), of which there is at least one, in the order of time."""
        times = np.asarray(values, np.float64)
        sample = Sample(times)
        ordered = sample.ordered
        return cls(
            ordered,
            float(ordered.mean()),
            mean_interval(times),
            float(ordered.std(ddof=1)) if len(ordered) > 1 else None,
            tuple(percentile(sample, share) for share in SHARES),
        )

    def __len__(self) -> int:
        return len(self.ordered)

    @property
    def least(self) -> float:
        """The fastest."""
        return float(self.ordered[0])

    @property
    def greatest(self) -> float:
        """The slowest."""
        return float(self.ordered[-1])

    @property
    def median(self) -> float:
        """The middle, which any number of samples has."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> float:
        """Give a quantile without asking whether the sample supports it: to draw, not to state."""
        return float(np.quantile(self.ordered, share))

    def percentile(self, share: float) -> Percentile:
        """Give one of ``percentiles``."""
        return next(found for found in self.percentiles if found.share == share)


def percentile(sample: Sample, share: float) -> Percentile:
    """Give a quantile with its interval, or neither if the sample does not support it."""
    samples, effective, needed = len(sample), sample.effective(share), samples_needed(share)
    interval = sample.interval(share)
    if interval is None:
        return Percentile(share, max(samples + 1, math.ceil(needed * samples / effective)), None, None, effective)
    return Percentile(share, needed, float(np.quantile(sample.ordered, share)), interval, effective)
