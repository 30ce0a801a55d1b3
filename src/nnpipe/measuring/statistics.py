"""Statistics of latencies, and how sure they are.

Nothing here assumes a normal distribution, since latencies have none, nor that
calls are independent of each other: intervals are those of
:mod:`nnpipe.measuring.autocorrelation`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.autocorrelation import Sample, mean_interval
from nnpipe.measuring.order_statistics import CONFIDENCE, Floats, interval_ranks, samples_needed

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


class Summary:
    """What a series of latencies comes down to, in nanoseconds; each part is computed when it is first asked for.

    Parameters
    ----------
    values
        The series, ``(samples,)``, in the order of time; at least one.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._times = np.asarray(values, np.float64)

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Summary:
        """Summarise ``values`` (samples,), of which there is at least one, in the order of time."""
        return cls(values)

    @functools.cached_property
    def sample(self) -> Sample:
        """The series, of which any quantile can be asked with its interval."""
        return Sample(self._times)

    @property
    def ordered(self) -> Floats:
        """The series, ascending, ``(samples,)``."""
        return self.sample.ordered

    @functools.cached_property
    def mean(self) -> float:
        """The mean of the series."""
        return float(self.ordered.mean())

    @functools.cached_property
    def mean_interval(self) -> tuple[float, float] | None:
        """What covers the mean of the process; ``None`` if there are too few samples for it."""
        return mean_interval(self._times)

    @functools.cached_property
    def deviation(self) -> float | None:
        """The sample's standard deviation (divided by n - 1), or ``None`` for a single value."""
        return float(self.ordered.std(ddof=1)) if len(self) > 1 else None

    @functools.cached_property
    def percentiles(self) -> tuple[Percentile, ...]:
        """The percentiles at each of ``SHARES``."""
        return tuple(percentile(self.sample, share) for share in SHARES)

    def __len__(self) -> int:
        return len(self._times)

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
        """Return a quantile without asking whether the sample supports it: to draw, not to state."""
        return float(np.quantile(self.ordered, share))

    def percentile(self, share: float) -> Percentile:
        """Return one of ``percentiles``."""
        return next(found for found in self.percentiles if found.share == share)


def percentile(sample: Sample, share: float) -> Percentile:
    """Return a quantile with its interval, or neither if the sample does not support it."""
    samples, effective, needed = len(sample), sample.effective(share), samples_needed(share)
    interval = sample.interval(share)
    if interval is None:
        return Percentile(share, max(samples + 1, math.ceil(needed * samples / effective)), None, None, effective)
    return Percentile(share, needed, float(np.quantile(sample.ordered, share)), interval, effective)
