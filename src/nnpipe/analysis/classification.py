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

from nnpipe.core.errors import ConfigError, SpecMismatch

__all__ = [
    "ClassificationMetrics",
    "check_lengths",
    "compute_true_class_rank",
    "confusion_matrix",
    "top_k_accuracy",
    "validate_k",
    "validate_labels",
    "wilson_interval",
]


def validate_labels(name: str, labels: npt.ArrayLike, num_classes: int) -> npt.NDArray[Any]:
    """Return ``labels`` as an array of shape ``(samples,)`` after checking that each is from 0 to
    ``num_classes - 1``.

    Raises
    ------
    SpecMismatch
        If they are not one-dimensional, not integers, or out of range; the
        message names the first wrong one.
    """
    array = np.asarray(labels)
    if array.ndim != 1:
        raise SpecMismatch(
            f"{name} must have one class number per sample, but its shape is {array.shape}"
        )
    if array.size == 0:
        return array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise SpecMismatch(
            f"{name} must hold integer class numbers, but is {array.dtype}; convert it with astype"
        )
    if array.min() < 0 or array.max() >= num_classes:
        first = int(np.argmax((array < 0) | (array >= num_classes)))
        raise SpecMismatch(
            f"{name}[{first}] is {array[first]}, but with {num_classes} classes labels go from 0 "
            f"to {num_classes - 1}"
        )
    return array


def check_lengths(**arrays: npt.NDArray[Any]) -> None:
    """Raise :class:`SpecMismatch` unless all arrays have the same number of entries."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
        raise SpecMismatch(f"these arrays must have one entry per sample each, but {listed}")


_CHUNK = 1 << 18  # scores that are processed together; with their masks they fit into the cache
_WORD = 8  # mask bytes that are added up as one 64-bit word
_WORDS = 255  # this many words of 0/1 bytes can be added before a byte overflows


def compute_true_class_rank(scores: npt.ArrayLike, truth: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return for each sample the number of classes that rank before the true one.

    Parameters
    ----------
    scores
        Shape (samples, classes), floats or integers (also the raw output of a
        quantised model); greater means more likely.
    truth
        Shape (samples,), integers from 0 to classes - 1.

    Returns
    -------
    ndarray
        Shape (samples,), uint16 (uint32 beyond 65,536 classes).  0 means that
        the true class has the highest score.  Among equal scores, the lower class
        number ranks first: for a finite row, the result is the true class's position
        in ``np.argsort(-row, kind="stable")``, and 0 exactly if ``np.argmax(row)``
        is the true class.

    Raises
    ------
    SpecMismatch
        If shapes or types do not fit, or a label is out of range.

    Notes
    -----
    A true class with the score NaN gets the last rank, classes - 1.  Other classes
    with NaN rank after the true one.  So a model gains nothing by returning NaN,
    although ``np.argmax``, which takes the first NaN for the greatest score, may
    consider such a sample right.

    No row is sorted.  Each chunk of samples needs two comparisons and a sum over
    0/1 bytes, eight at a time, and about 1 MiB of memory beside the result.
    """
    table = np.asarray(scores)
    if table.ndim != 2 or table.shape[1] == 0:
        raise SpecMismatch(f"scores must have the shape (samples, classes), but have {table.shape}")
    if table.dtype.kind not in "fiu":
        raise SpecMismatch(f"scores must be floats or integers, but are {table.dtype}")
    samples, classes = table.shape
    labels = validate_labels("truth", truth, classes)
    check_lengths(scores=table, truth=labels)

    ranks = np.empty(samples, np.uint16 if classes <= 1 << 16 else np.uint32)
    step = max(1, _CHUNK // classes)
    # Columns after the classes stay False, so that rows consist of whole words.
    mask = np.zeros((min(step, samples), -(-classes // _WORD) * _WORD), np.bool_)
    for start in range(0, samples, step):
        chunk = table[start : start + step]
        if chunk.dtype == np.float16:  # numpy compares halves one at a time
            chunk = chunk.astype(np.float32)
        part = labels[start : start + step]
        ranks[start : start + step] = _compute_chunk_rank(chunk, part, mask[: len(chunk)])
    return ranks


def top_k_accuracy(rank: npt.ArrayLike, k: int) -> float:
    """Return the share of samples whose true class is among the ``k`` with the highest scores.

    Parameters
    ----------
    rank
        From :func:`compute_true_class_rank`, shape (samples,).
    k
        At least 1; ``k=1`` is the plain accuracy.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ConfigError
        If ``k`` is not a whole number above 0, or there are no samples.
    SpecMismatch
        If ``rank`` is not a vector of integers.
    """
    k = validate_k(k)
    ranks = np.asarray(rank)
    if ranks.ndim != 1 or (ranks.size and ranks.dtype.kind not in "iu"):
        raise SpecMismatch(
            f"rank must be a vector of integers, but is {ranks.dtype} of shape {ranks.shape}"
        )
    if not ranks.size:
        raise ConfigError("there is no accuracy of no samples; evaluate at least one")
    return float(np.count_nonzero(ranks < k) / ranks.size)


def validate_k(k: int) -> int:
    """Return ``k`` of a top-k accuracy, or raise :class:`ConfigError` if it is not a whole
    number above 0.
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"top-k accuracy needs a whole number k of at least 1, not {k!r}")
    return int(k)


def _compute_chunk_rank(
    scores: npt.NDArray[Any], labels: npt.NDArray[Any], mask: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    rows, classes = scores.shape
    inside = mask[:, :classes]
    own = scores[np.arange(rows), labels][:, np.newaxis]
    lost = np.isnan(own[:, 0])

    np.equal(scores, own, out=inside)
    # One equal score per row is the true class itself; further ones are ties, rare in floats and
    # common in int8.
    tied = np.count_nonzero(mask) > rows - np.count_nonzero(lost)
    if tied:
        inside &= np.arange(classes) < labels[:, np.newaxis]
        ahead = _count_true_in_rows(mask)
    np.greater(scores, own, out=inside)
    greater = _count_true_in_rows(mask)
    rank = greater + ahead if tied else greater
    rank[lost] = classes - 1
    return rank


def _count_true_in_rows(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the number of True values in each row; a row consists of whole words."""
    words = mask.view(np.uint64)
    counts = np.zeros(len(words), np.int64)
    for start in range(0, words.shape[1], _WORDS):
        lanes = np.add.reduce(words[:, start : start + _WORDS], axis=1)
        counts += lanes.view(np.uint8).reshape(-1, _WORD).sum(axis=1, dtype=np.int64)
    return counts


def confusion_matrix(
    truth: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int
) -> npt.NDArray[np.int64]:
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
    rows = validate_labels("truth", truth, num_classes)
    columns = validate_labels("predicted", predicted, num_classes)
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
        raise ConfigError(
            f"{successes} successes out of {trials} trials have no confidence interval"
        )
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be between 0 and 1, not {confidence!r}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = successes / trials, z * z / trials
    centre = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low = 0.0 if successes == 0 else (centre - half) / (1 + spread)
    high = 1.0 if successes == trials else (centre + half) / (1 + spread)
    return low, high


def binomial_cdf(successes: int, trials: int, share: float) -> float:
    """Return how often ``trials`` have at most so many successes if ``share`` of all succeed
    (binomial distribution).

    Near shares of 0 and 1, Wilson's interval excludes the true share several times as often as it
    says, see L. D. Brown, T. T. Cai, A. DasGupta, "Interval Estimation for a Binomial Proportion",
    Statistical Science 16 (2001).
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
            Shape (samples,), from :func:`~nnpipe.analysis.classification.compute_true_class_rank`.
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
        k, names = validate_k(k), tuple(class_names)
        matrix = confusion_matrix(truth, predicted, len(names))
        samples = int(matrix.sum())
        if not samples:
            raise ConfigError("there is nothing to judge: truth and predictions are empty")
        top = None
        if rank is not None:
            ranks = validate_labels("rank", rank, len(names))
            if len(ranks) != samples:
                raise SpecMismatch(
                    f"rank has {len(ranks):,} entries, but there are {samples:,} predictions"
                )
            share = top_k_accuracy(ranks, k)
            top = share if k < len(names) else None

        return cls.from_confusions(matrix, names, k=k, top=top)

    @classmethod
    def from_confusions(
        cls,
        matrix: npt.NDArray[np.int64],
        class_names: Sequence[str],
        *,
        k: int = 5,
        top: float | None = None,
    ) -> ClassificationMetrics:
        """Compute all metrics from a confusion matrix, int64 ``(classes, classes)`` with the truth
        in rows.

        ``top`` is the top-k accuracy, which does not follow from the matrix.
        """
        names, matrix = tuple(class_names), matrix.copy()
        samples = int(matrix.sum())
        hits, support, claims = matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)
        present = support > 0
        precision, sensitivity = _compute_ratio(hits, claims), _compute_ratio(hits, support)
        f1 = _compute_ratio(2 * hits, support + claims)
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
            g_mean=_compute_geometric_mean(sensitivity[present]),
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
            "precision": _to_json_numbers(self.precision),
            "sensitivity": _to_json_numbers(self.sensitivity),
            "f1": _to_json_numbers(self.f1),
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.accuracy_interval),
            "k": self.k,
            "top_k_accuracy": self.top_k_accuracy,
            "mean_precision": self.mean_precision,
            "mean_sensitivity": self.mean_sensitivity,
            "macro_f1": self.macro_f1,
            "g_mean": self.g_mean,
        }


def _compute_ratio(
    part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio


def _compute_geometric_mean(values: npt.NDArray[np.float64]) -> float:
    # With logarithms, since the product of 1,000 sensitivities may leave the range of float64.
    return 0.0 if (values == 0).any() else float(np.exp(np.log(values).mean()))


def _to_json_numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
