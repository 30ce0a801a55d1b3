"""Embedding as a task: vectors by which samples of the same class are found in a gallery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.embedding.metrics import (
    BOTH,
    DEPTH,
    GALLERY,
    METRICS,
    create_retrieval_metric,
    rank_gallery,
)
from nnpipe.tasks.predictions import INTEGERS, NUMBERS, check_array, get_tensor

VECTORS = "embedding"
"""The array of judged batches that holds the vectors; the evaluation of all samples holds ranks
in its place.
"""

_BITS = 64


class EmbeddingSearch(Task):
    """Vectors by which similar samples are found.

    Targets are ``"label"``, ``(n,)`` class numbers, and, if the data set has it, ``"role"``,
    ``(n,)``: 0 for samples of the gallery, 1 for queries, 2 for samples that are both; without it,
    all are both.  A query does not find itself. Predictions are ``"embedding"``, or a single tensor
    of any name, ``(n, d)``.

    An evaluation holds ``truth`` and ``role``, ``relevant``, the number of samples of the same
    class in the gallery, ``right`` and ``wrong``, the numbers of the most similar sample of the
    same class and of another one, ``mistaken``, the latter's class, and ``margin``, by how much it
    is less similar, each ``(n,)``; and the ragged ``ranks`` of the samples of the same class among
    the first 100.  A sample of another class that is as similar as one of the query's class has the
    better rank.
    """

    distance: Literal["cosine", "euclidean"] = argument(
        "cosine", help="how the distance of two vectors is measured"
    )

    name = "embedding"
    targets = ("label",)
    optional_targets = ("role",)
    arrays = ("truth", "role", "relevant", "ranks")
    truth = ("truth", "role")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """Recall at 1, 5 and 10, and the mean average precision at 10."""
        return METRICS

    def metric(self, name: str) -> QualityMetric:
        """Return ``recall_at_K`` or ``map_at_K``, for any K up to 100."""
        return create_retrieval_metric(name)

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Keep the vectors of a batch; :meth:`finalize` compares those of all samples."""
        vectors, label = get_tensor(predictions, VECTORS), truth["label"]
        if (
            vectors.ndim != 2
            or len(vectors) != len(label)
            or not vectors.shape[1]
            or vectors.dtype.kind not in "iuf"
        ):
            raise SpecMismatch(
                f"embeddings must be numbers of the shape ({len(label)}, d), not {vectors.dtype} "
                f"of {show_shape(vectors.shape)}"
            )
        role = truth.get("role", np.full(len(label), BOTH))
        kind = np.float64 if vectors.dtype.itemsize > 4 else np.float32
        arrays: dict[str, npt.NDArray[Any]] = {
            "truth": label.astype(np.int64),
            "role": role.astype(np.int8),
            VECTORS: vectors.astype(kind),
        }
        return Evaluation(self.name, arrays, spec.class_names, settings={"distance": self.distance})

    def _finalize(self, judged: Evaluation) -> Evaluation:
        """Search the gallery for each query, and return what was found in place of the vectors."""
        label, role = judged.arrays["truth"], judged.arrays["role"]
        found = rank_gallery(judged.arrays[VECTORS], label, role, self.distance, DEPTH)
        arrays = {
            "truth": label,
            "role": role,
            "relevant": found.relevant,
            "right": found.right,
            "wrong": found.wrong,
            "mistaken": np.where(found.wrong < 0, -1, label[found.wrong]),
            "margin": found.margin,
        }
        return Evaluation(
            self.name, arrays, judged.class_names, {"ranks": found.ranks}, judged.settings
        )

    def check(self, evaluation: Evaluation) -> None:
        """Check that each sample has a class, a role and ranks."""
        super().check(evaluation)
        for name in ("truth", "role", "relevant"):
            check_array(evaluation, name, (), INTEGERS)
        for name in ("right", "wrong", "mistaken"):
            if name in evaluation.arrays:
                check_array(evaluation, name, (), INTEGERS)
        if "margin" in evaluation.arrays:
            check_array(evaluation, "margin", (), NUMBERS)
        check_array(evaluation, "ranks", (), INTEGERS, ragged=True)
        ranks = evaluation.ragged["ranks"].values
        if len(ranks) and int(ranks.min()) < 1:
            raise ArtifactError("the evaluation's 'ranks' should count from 1; measure again")

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt vectors that are all alike."""
        margin = evaluation.arrays.get("margin", np.zeros(0))
        queries = evaluation.arrays["role"] != GALLERY
        if queries.sum() > 1 and len(margin) and bool(np.all(margin[queries] == 0)):
            yield (
                "collapsed",
                f"all vectors are equally similar for each of {int(queries.sum()):,} queries",
            )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a vector for each class: the bits of its number."""
        bits = truth["label"].astype(np.int64)[:, None] >> np.arange(_BITS) & 1
        return {VECTORS: (2 * bits - 1).astype(np.float32)}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return vectors that are near to nothing."""
        vectors: npt.NDArray[Any] = get_tensor(predictions, VECTORS)
        return {VECTORS: np.full_like(vectors, np.nan)}
