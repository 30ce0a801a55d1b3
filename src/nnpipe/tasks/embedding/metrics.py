"""The metrics of embeddings, from the ranks of the samples that queries should find."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import Floats, QualityMetric, Values

# Exact search of the gallery: the ranks of the samples of each query's class.
#
# Similarities are computed for some queries at a time, in double precision, and rounded to
# :data:`_QUANTUM` of their range, so that equal vectors have equal similarities however the
# matrices are multiplied.  A sample of another class that is as similar as one of the query's class
# is ranked before it: a model that maps everything to one point finds nothing, whatever the order
# of the gallery.

GALLERY, QUERY, BOTH = range(3)
"""Roles of samples: one that is searched, one that is searched for, or each in turn."""

Distance = Literal["cosine", "euclidean"]
Indices = npt.NDArray[np.int64]

_BLOCK_BYTES = 32 << 20  # of similarities at a time
_MOST_QUERIES = 256  # at a time
_QUANTUM = 1e-12
_LEAST, _GREATEST = 1e-300, 1e100
_NONE = -1


@dataclass(frozen=True, eq=False)
class GalleryRanks:
    """What the search found for each sample; those of the gallery alone have no ranks.

    Attributes
    ----------
    ranks
        The ranks, from 1, of the samples of the same class that are among the first ``depth``,
        ascending; ragged int32.
    relevant
        The number of samples of the same class in the gallery, ``(n,)`` int64.
    right, wrong
        The most similar sample of the same class and of another one, ``(n,)`` int64; -1 if there is
        none.
    margin
        By how much the similarity of ``right`` is above that of ``wrong``, ``(n,)`` float32; NaN
        without both.
    """

    ranks: Ragged
    relevant: Indices
    right: Indices
    wrong: Indices
    margin: npt.NDArray[np.float32]


def rank_gallery(
    vectors: npt.NDArray[Any],
    labels: npt.NDArray[np.integer],
    roles: npt.NDArray[np.integer],
    distance: Distance,
    depth: int,
) -> GalleryRanks:
    """Search the gallery for every query.

    Parameters
    ----------
    vectors
        ``(n, d)`` numbers; a vector with a number that is not finite is similar to nothing.
    labels, roles
        ``(n,)`` class numbers, and :data:`GALLERY`, :data:`QUERY` or :data:`BOTH`.  A query does
        not find itself.
    distance
        How similar vectors are: the cosine of their angle, or their squared Euclidean distance,
        negated.
    depth
        The number of first places that count.
    """
    points = vectors.astype(np.float64)
    usable: npt.NDArray[np.bool_] = np.all(np.abs(points) < _GREATEST, axis=1)  # false for NaN, too
    points[~usable] = 0
    points = _normalize_vectors(points, roles, distance)
    found = _RankCollector(len(labels))
    # Queries of one class, and the samples that they should find, stand together.
    gallery, queries = (
        chosen[np.argsort(labels[chosen], kind="stable")]
        for chosen in (np.flatnonzero(roles != QUERY), np.flatnonzero(roles != GALLERY))
    )
    held = points[gallery]
    lengths = np.einsum("ij,ij->i", points, points)
    quantum = _QUANTUM * (float(lengths.max(initial=0.0)) or 1.0)
    for block in _iter_query_blocks(queries, len(gallery)):
        similar = points[block] @ held.T
        if distance == "euclidean":
            similar *= 2
            similar -= lengths[gallery]
            similar -= lengths[block, None]
        np.rint(np.divide(similar, quantum, out=similar), out=similar)
        similar *= quantum
        similar[:, ~usable[gallery]] = -np.inf
        similar[~usable[block]] = -np.inf
        _rank(similar, block, gallery, labels, depth, found)
    return found.finish()


class _RankCollector:
    """The findings so far."""

    def __init__(self, count: int) -> None:
        self.ranks: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)] * count
        self.relevant = np.zeros(count, np.int64)
        self.right, self.wrong = np.full(count, _NONE, np.int64), np.full(count, _NONE, np.int64)
        self.margin = np.full(count, np.nan, np.float32)

    def finish(self) -> GalleryRanks:
        counts = np.array([len(each) for each in self.ranks], np.int64)
        values = np.concatenate([np.zeros(0, np.int32), *self.ranks])
        return GalleryRanks(
            Ragged(values, counts), self.relevant, self.right, self.wrong, self.margin
        )


def _normalize_vectors(
    points: Floats, roles: npt.NDArray[np.integer], distance: Distance
) -> Floats:
    """Return vectors whose products and distances give similarities without needless rounding."""
    if distance == "euclidean":  # distances do not depend on the origin, their rounding does
        return points - points[roles != QUERY].mean(axis=0) if (roles != QUERY).any() else points
    # Divided by the greatest number first, so that squares do not vanish.
    points = points / np.maximum(np.abs(points).max(axis=1, initial=0, keepdims=True), _LEAST)
    return np.asarray(points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), _LEAST))


def _iter_query_blocks(queries: Indices, gallery: int) -> Iterator[Indices]:
    step = max(1, min(_MOST_QUERIES, _BLOCK_BYTES // (8 * max(1, gallery))))
    for start in range(0, len(queries), step):
        yield queries[start : start + step]


def _rank(
    similar: Floats,
    block: Indices,
    gallery: Indices,
    labels: npt.NDArray[np.integer],
    depth: int,
    found: _RankCollector,
) -> None:
    """Note what a block of queries finds; ``similar``, ``(queries, gallery)``, is overwritten."""
    if not len(gallery):
        return
    held = labels[gallery]
    own: list[Floats] = []  # similarities of samples of the same class, descending
    for row, query in enumerate(block):
        part = slice(
            *(int(np.searchsorted(held, labels[query], side)) for side in ("left", "right"))
        )
        those, others = similar[row, part].copy(), gallery[part] != query
        similar[row, part] = -np.inf
        those[~others] = -np.inf
        found.relevant[query] = int(others.sum())
        own.append(np.sort(those[those > -np.inf])[::-1][:depth])
        if len(own[row]):
            found.right[query] = gallery[part][int(those.argmax())]
    kept = min(depth, len(gallery))
    nearest = similar.argmax(axis=1)
    rivals = np.sort(
        np.partition(similar, len(gallery) - kept, axis=1)[:, len(gallery) - kept :], axis=1
    )
    for row, query in enumerate(block):
        if rivals[row, -1] > -np.inf:
            found.wrong[query] = gallery[nearest[row]]
            if len(own[row]):
                found.margin[query] = own[row][0] - rivals[row, -1]
        ranks = (
            np.arange(1, len(own[row]) + 1)
            + kept
            - np.searchsorted(rivals[row], own[row], side="left")
        )
        found.ranks[query] = ranks[ranks <= depth].astype(np.int32)


DEPTH = 100
"""The number of first places that are kept, beyond which no metric looks."""

_NAME = re.compile(r"(recall|map)_at_([1-9][0-9]{0,3})")


def _select_counted(found: Evaluation, values: Floats) -> Floats:
    """Return values with NaN for samples that are no queries, or have nothing to find."""
    asked = (found.arrays["role"] != GALLERY) & (found.arrays["relevant"] > 0)
    return np.where(asked, values, np.nan)


def _get_ranks(found: Evaluation) -> npt.NDArray[np.int64]:
    return found.ragged["ranks"].values.astype(np.int64)


def _get_rank_owners(found: Evaluation) -> npt.NDArray[np.int64]:
    """Return the number of the query that each rank belongs to."""
    return np.repeat(np.arange(len(found)), found.ragged["ranks"].counts)


def _create_recall_values(k: int) -> Values:
    def values(found: Evaluation) -> Floats:
        hits = _get_ranks(found) <= k
        return _select_counted(
            found, (np.bincount(_get_rank_owners(found), hits, len(found)) > 0).astype(np.float64)
        )

    return values


def _create_average_precision_values(k: int) -> Values:
    def values(found: Evaluation) -> Floats:
        rows = found.ragged["ranks"]
        place = np.arange(len(rows.values)) - np.repeat(
            np.cumsum(rows.counts) - rows.counts, rows.counts
        )
        ranks = _get_ranks(found)
        precision = np.where(ranks <= k, (place + 1) / np.maximum(ranks, 1), 0.0)
        best = np.maximum(np.minimum(found.arrays["relevant"], k), 1)
        return _select_counted(
            found, np.bincount(_get_rank_owners(found), precision, len(found)) / best
        )

    return values


@functools.cache
def create_retrieval_metric(name: str) -> QualityMetric:
    """Return ``recall_at_K`` or ``map_at_K`` for any K up to :data:`DEPTH`; raise ``KeyError``
    for another name.
    """
    matched = _NAME.fullmatch(name)
    if matched is None or int(matched[2]) > DEPTH:
        raise KeyError(name)
    k = int(matched[2])
    if matched[1] == "map":
        return QualityMetric(
            name,
            f"mAP@{k}",
            f"Mean average precision at {k}",
            f"mean over queries of the precision at each sample of the same class among the first "
            f"{k}, of as many as there are, up to {k}",
            "share",
            False,
            values=_create_average_precision_values(k),
        )
    return QualityMetric(
        name,
        f"Recall@{k}",
        f"Recall at {k}",
        f"share of the queries with a sample of the same class among the first {k}",
        "share",
        False,
        values=_create_recall_values(k),
    )


METRICS = tuple(
    map(create_retrieval_metric, ("recall_at_1", "recall_at_5", "recall_at_10", "map_at_10"))
)
