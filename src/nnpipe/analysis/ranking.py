"""The rank of the true class among a sample's scores, from which every top-k accuracy follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis._labels import check_lengths, checked_labels
from nnpipe.core.errors import ConfigError, SpecMismatch

_CHUNK = 1 << 18  # scores that are processed together; with their masks they fit into the cache
_WORD = 8  # mask bytes that are added up as one 64-bit word
_WORDS = 255  # this many words of 0/1 bytes can be added before a byte overflows


def true_class_rank(scores: npt.ArrayLike, truth: npt.ArrayLike) -> npt.NDArray[Any]:
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
    labels = checked_labels("truth", truth, classes)
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
        ranks[start : start + step] = _chunk_rank(chunk, part, mask[: len(chunk)])
    return ranks


def top_k_accuracy(rank: npt.ArrayLike, k: int) -> float:
    """Return the share of samples whose true class is among the ``k`` with the highest scores.

    Parameters
    ----------
    rank
        From :func:`true_class_rank`, shape (samples,).
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
    k = checked_k(k)
    ranks = np.asarray(rank)
    if ranks.ndim != 1 or (ranks.size and ranks.dtype.kind not in "iu"):
        raise SpecMismatch(f"rank must be a vector of integers, but is {ranks.dtype} of shape {ranks.shape}")
    if not ranks.size:
        raise ConfigError("there is no accuracy of no samples; evaluate at least one")
    return float(np.count_nonzero(ranks < k) / ranks.size)


def checked_k(k: int) -> int:
    """Return ``k`` of a top-k accuracy, or raise :class:`ConfigError` if it is not a whole number above 0."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"top-k accuracy needs a whole number k of at least 1, not {k!r}")
    return int(k)


def _chunk_rank(
    scores: npt.NDArray[Any], labels: npt.NDArray[Any], mask: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    rows, classes = scores.shape
    inside = mask[:, :classes]
    own = scores[np.arange(rows), labels][:, np.newaxis]
    lost = np.isnan(own[:, 0])

    np.equal(scores, own, out=inside)
    # One equal score per row is the true class itself; further ones are ties, rare in floats and common in int8.
    tied = np.count_nonzero(mask) > rows - np.count_nonzero(lost)
    if tied:
        inside &= np.arange(classes) < labels[:, np.newaxis]
        ahead = _row_counts(mask)
    np.greater(scores, own, out=inside)
    greater = _row_counts(mask)
    rank = greater + ahead if tied else greater
    rank[lost] = classes - 1
    return rank


def _row_counts(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the number of True values in each row; a row consists of whole words."""
    words = mask.view(np.uint64)
    counts = np.zeros(len(words), np.int64)
    for start in range(0, words.shape[1], _WORDS):
        lanes = np.add.reduce(words[:, start : start + _WORDS], axis=1)
        counts += lanes.view(np.uint8).reshape(-1, _WORD).sum(axis=1, dtype=np.int64)
    return counts
