"""Classification as a task: class scores against true classes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.classification import compute_true_class_rank
from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric, index_distinct
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.classification.metrics import METRICS, SCORE_METRICS, SCORES, create_top_k_metric
from nnpipe.tasks.predictions import get_tensor

# Reasons to doubt predicted classes: they are no better than chance, or nearly all the same.
#
# A statistical test decides whether predictions are better than chance.

SIGNIFICANCE = 0.01
"""The significance level of the test whether predictions are better than chance."""

CONSTANT = 0.9
"""The share of predictions of a single class from which a doubt is raised."""

_FEWEST = 20  # samples


def iter_prediction_warnings(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the kind and the reason of each doubt."""
    if len(evaluation) < _FEWEST:
        return
    truth, predicted = evaluation.arrays["truth"], evaluation.arrays["predicted"]
    numbers, classes = index_distinct(np.concatenate([truth, predicted]))
    true, told = (np.bincount(half, minlength=len(classes)) for half in np.split(numbers, 2))
    chance = compute_chance_p_value(true, told, int(np.count_nonzero(truth == predicted)))
    if chance is not None and chance > SIGNIFICANCE:
        share = 100 * float(np.mean(truth == predicted))
        yield (
            "chance",
            f"{share:.2f} % right is no better than chance (p = {chance:.2g}, {len(truth):,} "
            f"samples)",
        )
    most = int(np.argmax(told))
    part, there = told[most] / len(truth), true[most] / len(truth)
    spread = math.sqrt(max(there * (1 - there), 1 / len(truth)) / len(truth))
    if part >= CONSTANT and part - there > 4 * spread:
        yield (
            "constant",
            f"{100 * part:.3g} % of the predictions are one class, which {100 * there:.3g} % of "
            f"samples are",
        )


def compute_chance_p_value(
    truth: npt.NDArray[Any], told: npt.NDArray[Any], right: int
) -> float | None:
    """Return the probability of at least this many right predictions if they are independent of the
    truth.

    The same predictions are thought of as assigned to the samples in random
    order.  The mean and variance of the number of right ones are known (a sum of
    hypergeometric variables), and its distribution is approximated as normal.

    Parameters
    ----------
    truth, told
        The numbers of samples and of predictions of each class; ``(classes,)``.
    right
        The number of right predictions.

    Returns
    -------
    float or None
        ``None`` if there is only one class.
    """
    count = float(truth.sum())
    a, b = truth.astype(np.float64), told.astype(np.float64)
    if count < 2:
        return None
    products = a * b
    mean = float(products.sum()) / count
    own = float((products * (count - a) * (count - b)).sum())
    pairs = float(products.sum() ** 2 - (products**2).sum())
    variance = (own + pairs) / (count * count * (count - 1))
    if np.count_nonzero(truth) < 2:
        return None
    if variance <= 0:  # a constant prediction is right equally often in any order
        return 1.0
    return 1 - NormalDist().cdf((right - 0.5 - mean) / math.sqrt(variance))


_TOP_K = re.compile(r"top_([1-9]\d{0,3})_accuracy")
_MOST_CLASSES = 1 << 20  # numbers of classes without names, from a file


class Classification(Task):
    """One class of several for each sample.

    Targets are ``"label"``, ``(n,)`` integers.  Predictions are ``"scores"``, or a single tensor of
    any name, ``(n, classes)``; greater means more likely.

    An evaluation holds ``truth`` and ``predicted``, int32, and ``rank``, the position of the true
    class when scores are sorted in descending order, each ``(n,)``; and ``scores``, float32 ``(n,
    classes)``, if there are few classes.
    """

    kept_classes: int = argument(
        16,
        help=(
            "number of classes up to which the scores of all are kept, for areas under curves and "
            "calibration"
        ),
        minimum=0,
    )

    name = "classification"
    targets = ("label",)
    scores_classes = True

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """Accuracy, top-5 accuracy, and means over the classes."""
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate class scores."""
        scores, class_names = get_tensor(predictions, "scores"), spec.class_names
        if scores.ndim != 2 or scores.shape[1] != len(class_names):
            raise SpecMismatch(
                f"scores must have the shape (?, {len(class_names)}), not "
                f"{show_shape(scores.shape)}"
            )
        labels = truth["label"]
        rank = compute_true_class_rank(scores, labels)
        arrays = {
            "truth": labels.astype(np.int32),
            "predicted": np.argmax(scores, axis=1).astype(np.int32),
            "rank": rank,
        }
        if len(class_names) <= self.kept_classes:
            arrays[SCORES] = scores.astype(np.float32)
        return Evaluation(self.name, arrays, class_names)

    def without_answer(self, predictions: Batch, samples: int) -> npt.NDArray[np.bool_]:
        """Return for which samples scores are no answer; minus infinity is the logarithm of a
        probability 0.
        """
        return super().without_answer(
            {name: _replace_minus_infinity(array) for name, array in predictions.items()}, samples
        )

    def keeping_all(self) -> Task:
        """Return the task such that the scores of all classes are kept."""
        return Classification(kept_classes=_MOST_CLASSES)

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a score of 1 for the true class of each sample."""
        return {"scores": np.eye(len(spec.class_names), dtype=np.float32)[truth["label"]]}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a score of 0 for the true class, and 1 for all others."""
        return {"scores": 1 - np.eye(len(spec.class_names), dtype=np.float32)[truth["label"]]}

    def metric(self, name: str) -> QualityMetric:
        """Return a metric by its name; any ``top_K_accuracy`` and those of scores are some, too."""
        if name in SCORE_METRICS:
            return SCORE_METRICS[name]
        found = _TOP_K.fullmatch(name)
        if found is None or any(metric.name == name for metric in self.metrics):
            return super().metric(name)
        return create_top_k_metric(int(found[1]))

    def check(self, evaluation: Evaluation) -> None:
        """Check that truth and prediction of each sample are class numbers."""
        super().check(evaluation)
        known = evaluation.class_names
        for name in (*self.arrays, *({"rank"} & evaluation.arrays.keys())):
            array = evaluation.arrays.get(name)
            if array is None or array.ndim != 1 or array.dtype.kind not in "iu":
                raise ArtifactError(
                    f"the evaluation's {name!r} should hold one class number for each sample"
                )
            if array.size and not (
                int(array.min()) >= 0 and int(array.max()) < (len(known) or _MOST_CLASSES)
            ):
                raise ArtifactError(
                    f"the evaluation's {name!r} holds numbers that belong to no class"
                )

        scores = evaluation.arrays.get(SCORES)
        if scores is not None and not (
            scores.ndim == 2
            and scores.dtype.kind == "f"
            and scores.shape[1] == (len(known) or scores.shape[1])
        ):
            raise ArtifactError(
                f"the evaluation's {SCORES!r} should hold one number for each sample and class"
            )

    def _compute_agreement(self, one: Evaluation, other: Evaluation) -> npt.NDArray[np.bool_]:
        """Return which samples get the same class from both models."""
        same: npt.NDArray[np.bool_] = np.equal(one.arrays["predicted"], other.arrays["predicted"])
        return same

    def _describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return the true and the predicted class."""
        names = evaluation.class_names
        true, given = (int(evaluation.arrays[name][number]) for name in ("truth", "predicted"))
        words = [
            names[each] if 0 <= each < len(names) else f"class {each}" for each in (true, given)
        ]
        return words[0] if true == given else f"{words[0]}, taken for {words[1]}"

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt predictions that are no better than chance, or nearly all the same."""
        return iter_prediction_warnings(evaluation)


def _replace_minus_infinity(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return scores with 0 in place of minus infinity, where a class of the sample has another
    score.
    """
    if scores.dtype.kind != "f" or scores.ndim < 2 or not np.isneginf(scores).any():
        return scores
    impossible = np.isneginf(scores)
    return np.where(
        impossible & ~impossible.all(axis=-1, keepdims=True), scores.dtype.type(0), scores
    )
