"""Quality metrics: what is computed from an evaluation, and how its uncertainty can be told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation

Floats = npt.NDArray[np.float64]
Values = Callable[[Evaluation], Floats]
"""Computes the value of each sample, ``(samples,)``; NaN for one that does not count."""
Statistic = Callable[[Floats], float]
"""Computes a metric if each sample counts as often as its weight, ``(samples,)``, says; NaN if
it is not defined.
"""
Prepare = Callable[[Evaluation], Statistic]
Numbers = Callable[[Evaluation], npt.NDArray[np.integer[Any]]]


@dataclass(frozen=True)
class QualityMetric:
    """A metric of a task: its name, its unit, and the function that computes it.

    A metric either is the mean of ``values`` of single samples, or follows from all samples
    together.  Of the second kind, ``statistic`` is given an evaluation and returns a function of
    weights: intervals are found by computing the metric of many weightings, so what does not depend
    on weights (sorting, matching) is done once.

    Parameters
    ----------
    name
        The name in files, constraints and commands: lower case, digits and underscores.
    heading
        A short column heading.
    title
        A longer name for text.
    meaning
        The definition, in a clause.
    kind
        ``"share"`` for numbers from 0 to 1 that are shown in per cent, ``"ratio"`` for other
        numbers without a unit, ``"time"`` in seconds, ``"rate"`` per second.
    less_is_better
        Whether smaller values are better.
    values, statistic
        One of the two.
    clusters
        Numbers of the groups of samples that depend on each other, ``(samples,)``, such as windows
        of one series; by default, each sample is alone.
    alike
        Of a statistic: numbers of kinds of samples, ``(samples,)``, if those of one kind can stand
        for each other, such as those with the same truth and prediction.  The statistic is then
        computed from one sample of each kind.
    bounds
        The least and the greatest value that there can be; by default 0 and 1 for shares, 0 and
        infinity for times and rates, and none for other numbers.
    draws
        How often samples are drawn again where random values of a metric are needed, as for a
        Pareto front.

    Examples
    --------
    >>> right = QualityMetric(
    ...     "accuracy", "Accuracy", "Accuracy", "share of the samples whose class is right", "share", False,
    ...     values=lambda found: (found.arrays["truth"] == found.arrays["predicted"]).astype(float),
    ... )
    >>> right.compute(Evaluation("cats and dogs", {"truth": np.array([0, 1]), "predicted": np.array([0, 0])}))
    0.5
    """

    name: str
    heading: str
    title: str
    meaning: str
    kind: Literal["share", "ratio", "time", "rate"]
    less_is_better: bool
    values: Values | None = None
    statistic: Prepare | None = None
    clusters: Numbers | None = None
    alike: Numbers | None = None
    draws: int = 1000
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_call(QualityMetric, vars(self))
        if not (self.name.isidentifier() and self.name == self.name.lower()):
            raise ConfigError(
                f"a metric's name is of lower-case letters, digits and underscores, not "
                f"{self.name!r}"
            )
        if (self.values is None) == (self.statistic is None):
            raise ConfigError(
                f"the metric {self.name!r} needs either values of samples or a statistic"
            )
        if self.alike is not None and self.statistic is None:
            raise ConfigError(
                f"the metric {self.name!r} is a mean of values: samples that are alike have equal "
                f"ones"
            )

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest value that there can be; infinite where there is none."""
        if self.bounds is not None:
            return self.bounds
        return {"share": (0.0, 1.0), "ratio": (-math.inf, math.inf)}.get(self.kind, (0.0, math.inf))

    def compute(self, evaluation: Evaluation) -> float:
        """Return the metric of an evaluation; NaN if it is not defined."""
        return self.build_statistic(evaluation)(np.ones(len(evaluation)))

    def build_statistic(self, evaluation: Evaluation) -> Statistic:
        """Return the function that computes the metric from the weights of samples."""
        if self.alike is not None:
            kinds, statistic = self.by_kind(evaluation)
            return lambda weights: statistic(np.bincount(kinds, weights).astype(np.float64))
        if self.statistic is not None:
            return self.statistic(evaluation)
        return build_mean_statistic(self.sample_values(evaluation))

    def sample_values(self, evaluation: Evaluation) -> Floats:
        """Return the value of each sample, ``(samples,)``; NaN for one that does not count.

        A sample without an answer, since the outputs were not finite, has the worst value that
        there can be.

        Raises
        ------
        ConfigError
            If ``values`` does not give one number for each sample.
        """
        assert self.values is not None
        values = np.asarray(self.values(evaluation), np.float64)
        if values.shape != (len(evaluation),):
            raise ConfigError(
                f"the metric {self.name!r} must give a number for each of {len(evaluation)} "
                f"samples, not an array of the shape {values.shape}; do predictions and truth have "
                f"the same shape?"
            )
        lost = evaluation.not_finite
        return (
            np.where(lost, self.limits[1 if self.less_is_better else 0], values)
            if lost.any()
            else values
        )

    def by_kind(self, evaluation: Evaluation) -> tuple[npt.NDArray[np.int64], Statistic]:
        """Return the kind of each sample, ``(samples,)`` from 0, and the metric as a function of
        the kinds' weights.

        Only for a metric with ``alike``.
        """
        assert self.alike is not None
        assert self.statistic is not None
        kinds, first = index_distinct(np.asarray(self.alike(evaluation)))
        return kinds, self.statistic(evaluation.take(first))


def build_mean_statistic(values: Floats) -> Statistic:
    """Return the mean of values ``(samples,)`` as a function of weights; NaN does not count, and
    infinity does.
    """
    counts, infinite = ~np.isnan(values), np.isinf(values)
    known = np.where(counts & ~infinite, values, 0.0)

    def compute_mean(weights: Floats) -> float:
        total = float(weights @ counts)
        if infinite.any() and (weights[infinite] > 0).any():
            return float(values[infinite & (weights > 0)].sum())
        return float(weights @ known) / total if total > 0 else float("nan")

    return compute_mean


def index_distinct(
    found: npt.NDArray[np.integer[Any]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the index of each number among the distinct ones in ascending order, and the place
    of one of each.
    """
    least, most = int(found.min(initial=0)), int(found.max(initial=0))
    if most - least > 4 * len(found):
        _, first, kinds = np.unique(found, return_index=True, return_inverse=True)
        return kinds.astype(np.int64), first.astype(np.int64)
    # Without sorting, which takes ten times as long.
    place = np.full(most - least + 1, -1, np.int64)
    place[found - least] = np.arange(len(found))
    there = place >= 0
    return (np.cumsum(there) - 1)[found - least], place[there]
