"""Retrieval by embeddings: ranks as by sorting everything, ties against the model, and fair
intervals.
"""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnpipe.analysis.quality_intervals import compute_quality_estimate
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import find_quality_metric
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.constraints import MetricConstraint
from nnpipe.report.document import Table
from nnpipe.report.inputs.quality import Quality
from nnpipe.tasks import EmbeddingSearch
from nnpipe.tasks.embedding.metrics import GALLERY, QUERY
from nnpipe.tasks.embedding.section import EmbeddingSection

SPEC = DatasetSpec(EmbeddingSearch.name, (), (), tuple("abcdefgh"))


def judged(vectors: Any, label: Any, role: Any = None, distance: Any = "cosine") -> Evaluation:
    truth = {"label": np.asarray(label)} | ({} if role is None else {"role": np.asarray(role)})
    task = EmbeddingSearch(distance=distance)
    return task.finalize(task.evaluate({"embedding": np.asarray(vectors)}, truth, SPEC))


def value(found: Evaluation, name: str) -> float:
    return find_quality_metric(name).compute(found)


def by_sorting(
    vectors: np.ndarray, label: np.ndarray, role: np.ndarray, distance: str, query: int
) -> list[int]:
    """Return the ranks of the samples of the query's class, with every sample sorted."""
    places = []
    for other in range(len(label)):
        if role[other] != QUERY and other != query:
            one, two = vectors[query].astype(float), vectors[other].astype(float)
            cosine = one @ two / np.sqrt((one @ one) * (two @ two))
            far = 1 - cosine if distance == "cosine" else ((one - two) ** 2).sum()
            places.append((round(far, 9), label[other] == label[query]))
    return [rank for rank, (_, same) in enumerate(sorted(places), 1) if same]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_ranks_are_those_of_sorting_everything_with_many_ties(distance: str) -> None:
    draws = np.random.default_rng(5)
    label, role = draws.integers(0, 5, 150), draws.integers(0, 3, 150)
    vectors = draws.integers(-1, 2, (150, 3)).astype(np.float32) + np.array([3, 0, 0], np.float32)
    found = judged(vectors, label, role, distance)
    ranks = found.ragged["ranks"]
    for query in np.flatnonzero(role != GALLERY):
        wanted = by_sorting(vectors, label, role, distance, query)
        assert ranks[query].tolist() == [rank for rank in wanted if rank <= 100]
        assert found.arrays["relevant"][query] == len(wanted)


def test_recall_and_average_precision_by_hand() -> None:
    # The query's class has the ranks 2 and 3 of four samples; the second query has nothing to find.
    vectors = np.array([[1, 0], [1, 0.01], [1, 0.02], [1, 0.03], [0, 1], [1, 0]], np.float32)
    found = judged(vectors, [0, 1, 0, 0, 1, 2], [QUERY, 0, 0, 0, 0, QUERY])
    assert value(found, "recall_at_1") == 0
    assert value(found, "recall_at_2") == 1
    assert value(found, "map_at_10") == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert value(found, "map_at_2") == pytest.approx(1 / 2 / 2)
    assert compute_quality_estimate(find_quality_metric("recall_at_2"), found).samples == 1


def test_the_order_of_the_gallery_does_not_matter_and_a_collapsed_model_finds_nothing() -> None:
    draws = np.random.default_rng(6)
    label = draws.integers(0, 4, 80)
    vectors = draws.integers(-1, 2, (80, 4)).astype(np.float32)
    mixed = draws.permutation(80)
    one, other = judged(vectors, label), judged(vectors[mixed], label[mixed])
    for metric in EmbeddingSearch().metrics:
        assert metric.compute(one) == pytest.approx(metric.compute(other), abs=1e-12)
    flat = judged(np.ones((80, 4)), np.arange(80) // 20)
    assert value(flat, "recall_at_10") == 0
    assert [kind for kind, _ in EmbeddingSearch().warnings(flat)] == ["collapsed"]


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e200])
def test_a_vector_that_is_not_finite_finds_nothing_and_is_not_found(broken: float) -> None:
    vectors = np.eye(4)[[0, 0, 1, 1]]
    vectors[1, 3] = broken
    found = judged(vectors, [0, 0, 1, 1], distance="euclidean")
    assert [found.ragged["ranks"][place].tolist() for place in range(4)] == [[], [], [1], [1]]


def test_distances_far_from_the_origin_are_not_rounded_away() -> None:
    vectors = np.array([[0.0], [0.001], [0.003], [0.004]]) + 1e4
    assert value(judged(vectors, [0, 0, 1, 1], distance="euclidean"), "recall_at_1") == 1


def test_any_k_up_to_a_hundred_can_be_a_constraint() -> None:
    assert MetricConstraint.parse("recall_at_20 >= 90 %").bound == 0.9
    for name in ("recall_at_101", "recall_at_0", "recall_at_x"):
        with pytest.raises(KeyError):
            EmbeddingSearch().metric(name)


def test_the_section_lists_the_worst_queries() -> None:
    found = judged(np.eye(3)[[0, 0, 1, 1, 0]], [0, 0, 1, 1, 1])
    candidate = SimpleNamespace(name="small", number=0, quality=Quality(EmbeddingSearch(), found))
    section = EmbeddingSection().build_section([candidate])  # type: ignore[list-item]
    worst = next(
        part for part in section.blocks if isinstance(part, Table) and part.header[0] == "Query"
    )
    assert len(worst.rows) == 3  # the last, and both that are mistaken for it
    assert {str(row[1]) for row in worst.rows} == {"a", "b"}


@pytest.mark.slow
def test_a_gallery_of_50000_is_searched_in_bounded_memory() -> None:
    draws = np.random.default_rng(9)
    label = draws.integers(0, 5000, 52_000)
    vectors = draws.normal(size=(5000, 128))[label] + draws.normal(size=(52_000, 128))
    role = np.where(np.arange(52_000) < 50_000, GALLERY, QUERY)
    tracemalloc.start()
    found = judged(vectors.astype(np.float32), label, role)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.9 < value(found, "recall_at_1") <= 1
    assert peak < 600 << 20
