"""Detection as a task: predicted boxes against true ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.detection.matching import PREDICTED, TRUTH
from nnpipe.tasks.detection.metrics import METRICS
from nnpipe.tasks.frames import convert_boxes_to_pixels
from nnpipe.tasks.predictions import INTEGERS, NUMBERS, check_alike, check_array

_FEW_SCORES, _MANY_BOXES = 5, 20
_MOST_CLASSES = 1 << 20  # in a file


class Detection(Task):
    """Boxes around the things in a picture, with their classes.

    Boxes are left, top, width and height.  Those of a batch are padded to a common number; padding
    has the class -1.

    Targets are ``"boxes"``, ``(n, m, 4)`` in pixels of the picture, and ``"class"``, ``(n, m)``
    class numbers; and, if the data set has them, ``"crowd"``, ``(n, m)``, which is 1 for a box
    around many things, ``"area"``, ``(n, m)``, the area of the thing itself in pixels, ``"size"``,
    ``(n, 2)``, height and width of the picture, and ``"verified"``, ``(n, v)``, the classes that
    were looked for in it.

    Predictions are ``"boxes"``, ``(n, k, 4)``, ``"scores"``, ``(n, k)``, and ``"class"``, ``(n,
    k)``.  Boxes are in pixels of the picture; or, if there is also ``"frame"``
    (:mod:`nnpipe.tasks.frames`), in shares of the height and width of the model's input.

    An evaluation holds the boxes of each picture in pixels as ``truth_boxes``, ``truth_class``,
    ``truth_crowd``, ``truth_area``, ``boxes``, ``scores`` and ``class``, each ragged; and, if the
    data set has it, ``size``.
    """

    protocol: Literal["coco", "pascal", "open_images"] = argument(
        "coco",
        help="rules of matching and mAP: those of COCO, of Pascal VOC since 2010 (crowds are "
        "difficult things), or of Open Images (crowds are groups, and boxes of classes that were "
        "not verified in a picture do not count)",
    )

    name = "detection"
    targets = ("boxes", "class")
    optional_targets = ("crowd", "area", "size", "verified")
    arrays = (*TRUTH, *PREDICTED)
    truth = ("truth_boxes", "truth_class", "truth_crowd")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """COCO's average precision over all overlaps, at 0.5 and 0.75, by area, and the average
        recall.
        """
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted boxes."""
        _check(predictions, len(truth["boxes"]), len(spec.class_names))
        true_class = truth["class"]
        crowd = truth.get("crowd", np.zeros(true_class.shape, np.uint8))
        area = truth.get("area", np.prod(truth["boxes"][..., 2:], axis=-1, dtype=np.float64))
        boxes: npt.NDArray[Any] = predictions["boxes"]
        if "frame" in predictions:
            if "size" not in truth:
                raise SpecMismatch(
                    "the data set does not state the sizes of its pictures, so boxes cannot be "
                    "compared"
                )
            boxes = convert_boxes_to_pixels(boxes, predictions["frame"], truth["size"])
        given = predictions["class"]
        if self.protocol == "open_images" and "verified" in truth:
            given = np.where(
                _is_verified(given, np.concatenate([truth["verified"], true_class], axis=1)),
                given,
                -1,
            )
        held = {
            "truth_boxes": _select_rows(truth["boxes"].astype(np.float64), true_class),
            "truth_class": _select_rows(true_class.astype(np.int32), true_class),
            "truth_crowd": _select_rows(crowd.astype(np.uint8), true_class),
            "truth_area": _select_rows(area.astype(np.float64), true_class),
            "boxes": _select_rows(boxes, given),
            "scores": _select_rows(predictions["scores"], given),
            "class": _select_rows(given.astype(np.int32), given),
        }
        sizes = {"size": truth["size"].astype(np.int32)} if "size" in truth else {}
        return Evaluation(self.name, sizes, spec.class_names, held, {"protocol": self.protocol})

    def check(self, evaluation: Evaluation) -> None:
        """Check that each box has a class and a score."""
        super().check(evaluation)
        if "size" in evaluation.arrays:
            check_array(evaluation, "size", (2,), INTEGERS)
        for name in ("truth_boxes", "boxes"):
            check_array(evaluation, name, (4,), NUMBERS, ragged=True)
        for name in ("truth_class", "truth_crowd", "class"):
            check_array(evaluation, name, (), INTEGERS, ragged=True)
        for name in ("truth_area", "scores"):
            check_array(evaluation, name, (), NUMBERS, ragged=True)
        check_alike(evaluation, *TRUTH)
        check_alike(evaluation, *PREDICTED)
        for name in ("truth_class", "class"):
            labels = evaluation.ragged[name].values
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < _MOST_CLASSES:
                raise ArtifactError(
                    f"the evaluation's {name!r} holds numbers that belong to no class"
                )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true boxes, all certain."""
        return {
            "boxes": truth["boxes"],
            "class": truth["class"],
            "scores": np.ones(truth["class"].shape),
        }

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return none of the true boxes, and as many that are certain and touch nothing; one if
        there are none.
        """
        count, most = len(truth["class"]), max(1, truth["class"].shape[1])
        boxes, classes = np.full((count, most, 4), 32.0), np.full((count, most), -1, np.int64)
        boxes[:, : truth["class"].shape[1]] = truth["boxes"]
        classes[:, : truth["class"].shape[1]] = truth["class"]
        classes[(classes < 0).all(axis=1), 0] = 0
        boxes[..., 0] = boxes[..., 0].min(initial=0.0) - 2 * boxes[..., 2].max(initial=0.0)
        return {"boxes": boxes, "class": classes, "scores": np.full((count, most), np.inf)}

    def has_same_settings(self, one: Evaluation, other: Evaluation) -> bool:
        """Return whether both were judged by the same rules, from boxes above the same least score.

        A greater one cuts off the end of every curve, so that mAP is less.
        """
        return super().has_same_settings(one, other) and _get_score_threshold(
            one
        ) == _get_score_threshold(other)

    def sample_errors(self, evaluation: Evaluation) -> npt.NDArray[np.float64]:
        """Return how many boxes of each picture are missing or wrong, with the scores from which
        F1 is greatest.
        """
        from nnpipe.tasks.detection.metrics import count_mistakes, find_best_score

        return count_mistakes(evaluation, find_best_score(evaluation)).astype(np.float64)

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Yield that no boxes are predicted, or that all have one of a few scores."""
        scores, wanted = evaluation.ragged["scores"], len(evaluation.ragged["truth_boxes"].values)
        if wanted and not len(scores.values):
            yield (
                "collapsed",
                f"it finds nothing in {len(scores):,} pictures with {wanted:,} boxes, as after "
                f"quantising boxes and "
                "scores by one scale",
            )
            return
        different = len(np.unique(scores.values))
        if len(scores.values) >= _MANY_BOXES and different <= _FEW_SCORES:
            yield (
                "collapsed",
                f"its {len(scores.values):,} boxes have only {different} different "
                f"score{'s' * (different > 1)}, as "
                "after quantising boxes and scores by one scale",
            )


def _get_score_threshold(evaluation: Evaluation) -> Any:
    decoder = evaluation.settings.get("decoder") or {}
    return (
        decoder.get("arguments", {}).get("score_threshold")
        if isinstance(decoder, Mapping)
        else None
    )


def _select_rows(values: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Ragged:
    kept = classes >= 0
    return Ragged(values[kept], kept.sum(axis=1).astype(np.int64))


def _is_verified(classes: npt.NDArray[Any], verified: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which of the classes ``(n, k)`` are among those of the same picture, ``(n, v)``."""
    return np.array(
        [np.isin(own, those) for own, those in zip(classes, verified, strict=True)]
    ).reshape(classes.shape)


def _check(predictions: Batch, count: int, classes: int) -> None:
    missing = [name for name in PREDICTED if name not in predictions]
    if missing:
        raise SpecMismatch(
            f"predictions of a detector hold boxes, scores and class, these hold "
            f"{', '.join(predictions)}; "
            "a decoder (nnpipe list decoders) makes them of a model's raw outputs: name it with "
            "--decoder"
        )
    boxes, scores, given = (predictions[name] for name in PREDICTED)
    most = boxes.shape[1] if boxes.ndim == 3 else 0
    if (
        boxes.shape != (count, most, 4)
        or scores.shape != (count, most)
        or given.shape != (count, most)
    ):
        raise SpecMismatch(
            f"boxes of {count} pictures must have the shape ({count}, k, 4), scores and class "
            f"({count}, k), not "
            f"{', '.join(show_shape(predictions[name].shape) for name in PREDICTED)}"
        )
    if boxes.dtype.kind != "f" or scores.dtype.kind != "f" or given.dtype.kind not in "iu":
        raise SpecMismatch(
            f"boxes and scores must be floats and class integers, not {boxes.dtype}, "
            f"{scores.dtype} and {given.dtype}"
        )
    if classes and given.size and int(given.max()) >= classes:
        raise SpecMismatch(
            f"class must be below {classes}, the number of the data set's classes, not "
            f"{given.max()}"
        )
