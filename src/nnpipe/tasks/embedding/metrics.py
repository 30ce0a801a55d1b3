"""The metrics of embeddings, from the ranks of the samples that queries should find."""

from __future__ import annotations

import functools
import re

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Values
from nnpipe.tasks.embedding.search import GALLERY

DEPTH = 100
"""The number of first places that are kept, beyond which no metric looks."""

_NAME = re.compile(r"(recall|map)_at_([1-9][0-9]{0,3})")


def _counting(found: Evaluation, values: Floats) -> Floats:
    """Return values with NaN for samples that are no queries, or have nothing to find."""
    asked = (found.arrays["role"] != GALLERY) & (found.arrays["relevant"] > 0)
    return np.where(asked, values, np.nan)


def _ranks(found: Evaluation) -> npt.NDArray[np.int64]:
    return found.ragged["ranks"].values.astype(np.int64)


def _owners(found: Evaluation) -> npt.NDArray[np.int64]:
    """Return the number of the query that each rank belongs to."""
    return np.repeat(np.arange(len(found)), found.ragged["ranks"].counts)


def _recall(k: int) -> Values:
    def values(found: Evaluation) -> Floats:
        hits = _ranks(found) <= k
        return _counting(found, (np.bincount(_owners(found), hits, len(found)) > 0).astype(np.float64))

    return values


def _average_precision(k: int) -> Values:
    def values(found: Evaluation) -> Floats:
        rows = found.ragged["ranks"]
        place = np.arange(len(rows.values)) - np.repeat(np.cumsum(rows.counts) - rows.counts, rows.counts)
        ranks = _ranks(found)
        precision = np.where(ranks <= k, (place + 1) / np.maximum(ranks, 1), 0.0)
        best = np.maximum(np.minimum(found.arrays["relevant"], k), 1)
        return _counting(found, np.bincount(_owners(found), precision, len(found)) / best)

    return values


@functools.cache
def retrieval_metric(name: str) -> QualityMetric:
    """Return ``recall_at_K`` or ``map_at_K`` for any K up to :data:`DEPTH`; raise ``KeyError`` for another name."""
    matched = _NAME.fullmatch(name)
    if matched is None or int(matched[2]) > DEPTH:
        raise KeyError(name)
    k = int(matched[2])
    if matched[1] == "map":
        return QualityMetric(
            name, f"mAP@{k}", f"Mean average precision at {k}",
            f"mean over queries of the precision at each sample of the same class among the first {k}, of as many as "
            f"there are, up to {k}", "share", False,
            values=_average_precision(k),
        )  # fmt: skip
    return QualityMetric(
        name, f"Recall@{k}", f"Recall at {k}",
        f"share of the queries with a sample of the same class among the first {k}", "share", False,
        values=_recall(k),
    )  # fmt: skip


METRICS = tuple(map(retrieval_metric, ("recall_at_1", "recall_at_5", "recall_at_10", "map_at_10")))
