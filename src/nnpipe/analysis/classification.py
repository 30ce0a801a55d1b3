"""Quality metrics of a classification, computed from class numbers, in reports and in trainings.

All metrics follow from the confusion matrix, whose **rows are the true classes
and columns the predicted ones**, and from the rank of the true class for top-k.

For each class, with tp, fp and fn counted against all others:

* support: samples of the class
* precision: tp / (tp + fp); NaN for a class that was never predicted
* sensitivity (recall): tp / (tp + fn); NaN for a class without samples
* F1: 2 tp / (2 tp + fp + fn), so 0 if tp = 0; NaN for a class without samples and predictions

Means are taken over the classes that have samples, with equal weights.  Of these, a
class that was never predicted counts with precision 0.  A class without samples is
left out (wrong predictions of it already count against the other classes).  This
equals scikit-learn with
``labels=np.unique(truth), average="macro", zero_division=0``, and the mean
sensitivity equals its ``balanced_accuracy_score``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis._labels import check_lengths, checked_labels
from nnpipe.analysis.ranking import checked_k, top_k_accuracy, true_class_rank
from nnpipe.core.errors import ConfigError, SpecMismatch

__all__ = ["ClassificationMetrics", "confusion_matrix", "top_k_accuracy", "true_class_rank", "wilson_interval"]


def confusion_matrix(truth: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int) -> npt.NDArray[np.int64]:
    """Count how often each class was predicted for each true class.

    Parameters
    ----------
    truth, predicted
        Shape (samples,), integers from 0 to ``num_classes - 1``.
    num_classes
        The number of classes, including those that do not occur.

    Returns
    -------
    ndarray
        Shape (num_classes, num_classes), int64; rows are the truth, columns
        the prediction.

    Raises
    ------
    ConfigError
        If ``num_classes`` is below 1.
    SpecMismatch
        If the arrays are not vectors of integers of one length, or a label is
        out of range.
    """
    if num_classes < 1:
        raise ConfigError(f"a classification needs at least one class, not {num_classes}")
    rows = checked_labels("truth", truth, num_classes)
    columns = checked_labels("predicted", predicted, num_classes)
    check_lengths(truth=rows, predicted=columns)
    # The "unsafe" cast is safe: the labels, possibly uint64, have been checked to be small.
    cells = np.multiply(rows, num_classes, dtype=np.intp, casting="unsafe")
    np.add(cells, columns, out=cells, casting="unsafe")
    counts = np.bincount(cells, minlength=num_classes * num_classes)
    return counts.astype(np.int64, copy=False).reshape(num_classes, num_classes)


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of a probability after ``successes`` in ``trials``.

    It is the score interval of E. B. Wilson, "Probable Inference, the Law of
    Succession, and Statistical Inference", Journal of the American Statistical
    Association 22 (1927), 209-212.  It stays within 0 to 1 and is valid for few
    trials and for shares near 0 and 1, where p ± 1.96 s is not.

    Returns
    -------
    tuple of float
        Lower and upper limit.

    Raises
    ------
    ConfigError
        If there are no trials, more successes than trials, or ``confidence``
        is not between 0 and 1.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ConfigError(f"{successes} successes out of {trials} trials have no confidence interval")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be between 0 and 1, not {confidence!r}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = successes / trials, z * z / trials
    centre = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low = 0.0 if successes == 0 else (centre - half) / (1 + spread)
    high = 1.0 if successes == trials else (centre + half) / (1 + spread)
    return low, high


def probability_of_at_most(successes: int, trials: int, share: float) -> float:
    """Return how often ``trials`` have at most so many successes if ``share`` of all succeed (binomial distribution).

    Near shares of 0 and 1, Wilson's interval excludes the true share several times as often as it says, see
    L. D. Brown, T. T. Cai, A. DasGupta, "Interval Estimation for a Binomial Proportion", Statistical Science 16 (2001).
    """
    if successes >= trials or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    number = np.arange(1, successes + 1)
    steps = np.log((trials - number + 1) / number * (share / (1 - share)))
    logarithms = trials * math.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    return float(np.exp(logarithms).sum())


@dataclass(frozen=True, eq=False)
class ClassificationMetrics:
    """The metrics of a classification; made by :meth:`from_predictions` or :meth:`from_confusions`.

    The docstring of the module defines the metrics and the treatment of classes
    without samples.  Arrays are read-only.

    Attributes
    ----------
    class_names
        The names of the classes, ordered by class number.
    confusion_matrix
        int64 (classes, classes); rows are the truth, columns the prediction.
    support
        int64 (classes,), samples of each class.
    precision, sensitivity, f1
        float64 (classes,), NaN where undefined.
    accuracy
        Share of predictions that are right.
    accuracy_interval
        Its 95 % Wilson interval, see :func:`wilson_interval`.
    k, top_k_accuracy
        Share of samples whose true class is among the ``k`` with the highest
        scores; ``None`` without ranks, or if there are at most ``k`` classes.
    mean_precision, mean_sensitivity, macro_f1
        Means over the classes that have samples.
    g_mean
        Geometric mean of the sensitivities of the classes that have samples;
        0 if one class is never predicted correctly.  Kubat and Matwin (Proc. ICML
        1997, 179-186) define it for two classes as the root of the product of
        both accuracies; with n classes it is the n-th root (Sun, Kamel and
        Wang, Proc. ICDM 2006, 592-602).
    """

    class_names: tuple[str, ...]
    confusion_matrix: npt.NDArray[np.int64]
    support: npt.NDArray[np.int64]
    precision: npt.NDArray[np.float64]
    sensitivity: npt.NDArray[np.float64]
    f1: npt.NDArray[np.float64]
    accuracy: float
    accuracy_interval: tuple[float, float]
    k: int
    top_k_accuracy: float | None
    mean_precision: float
    mean_sensitivity: float
    macro_f1: float
    g_mean: float

    @classmethod
    def from_predictions(
        cls,
        truth: npt.ArrayLike,
        predicted: npt.ArrayLike,
        class_names: Sequence[str],
        rank: npt.ArrayLike | None = None,
        k: int = 5,
    ) -> ClassificationMetrics:
        """Compute all metrics from one class number per sample.

        Parameters
        ----------
        truth, predicted
            Shape (samples,), integers from 0 to ``len(class_names) - 1``.
        class_names
            The names of the classes, ordered by class number.
        rank
            Shape (samples,), from :func:`~nnpipe.analysis.ranking.true_class_rank`.
        k
            The k of the top-k accuracy.

        Raises
        ------
        ConfigError
            If there are no classes or no samples, or ``k`` is below 1.
        SpecMismatch
            If an array is not a vector of integers, their lengths differ, or
            a label is out of range.
        """
        k, names = checked_k(k), tuple(class_names)
        matrix = confusion_matrix(truth, predicted, len(names))
        samples = int(matrix.sum())
        if not samples:
            raise ConfigError("there is nothing to judge: truth and predictions are empty")
        top = None
        if rank is not None:
            ranks = checked_labels("rank", rank, len(names))
            if len(ranks) != samples:
                raise SpecMismatch(f"rank has {len(ranks):,} entries, but there are {samples:,} predictions")
            share = top_k_accuracy(ranks, k)
            top = share if k < len(names) else None

        return cls.from_confusions(matrix, names, k=k, top=top)

    @classmethod
    def from_confusions(
        cls, matrix: npt.NDArray[np.int64], class_names: Sequence[str], *, k: int = 5, top: float | None = None
    ) -> ClassificationMetrics:
        """Compute all metrics from a confusion matrix, int64 ``(classes, classes)`` with the truth in rows.

        ``top`` is the top-k accuracy, which does not follow from the matrix.
        """
        names, matrix = tuple(class_names), matrix.copy()
        samples = int(matrix.sum())
        hits, support, claims = matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)
        present = support > 0
        precision, sensitivity = _ratio(hits, claims), _ratio(hits, support)
        f1 = _ratio(2 * hits, support + claims)
        right = int(hits.sum())
        for array in (matrix, support, precision, sensitivity, f1):
            array.flags.writeable = False
        return cls(
            class_names=names,
            confusion_matrix=matrix,
            support=support,
            precision=precision,
            sensitivity=sensitivity,
            f1=f1,
            accuracy=right / samples,
            accuracy_interval=wilson_interval(right, samples),
            k=k,
            top_k_accuracy=top,
            mean_precision=float(np.where(claims > 0, precision, 0.0)[present].mean()),
            mean_sensitivity=float(sensitivity[present].mean()),
            macro_f1=float(f1[present].mean()),
            g_mean=_geometric_mean(sensitivity[present]),
        )

    @property
    def samples(self) -> int:
        """The number of predictions."""
        return int(self.support.sum())

    def to_json(self) -> dict[str, Any]:
        """Return the metrics in their JSON form; undefined numbers are ``None``."""
        return {
            "samples": self.samples,
            "class_names": list(self.class_names),
            "confusion_matrix": self.confusion_matrix.tolist(),
            "support": self.support.tolist(),
            "precision": _jsonable(self.precision),
            "sensitivity": _jsonable(self.sensitivity),
            "f1": _jsonable(self.f1),
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.accuracy_interval),
            "k": self.k,
            "top_k_accuracy": self.top_k_accuracy,
            "mean_precision": self.mean_precision,
            "mean_sensitivity": self.mean_sensitivity,
            "macro_f1": self.macro_f1,
            "g_mean": self.g_mean,
        }


def _ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio


def _geometric_mean(values: npt.NDArray[np.float64]) -> float:
    # With logarithms, since the product of 1,000 sensitivities may leave the range of float64.
    return 0.0 if (values == 0).any() else float(np.exp(np.log(values).mean()))


def _jsonable(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
