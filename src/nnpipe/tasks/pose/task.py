"""Poses as a task: predicted key points against true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import Floats, QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.frames import convert_points_to_pixels
from nnpipe.tasks.pose.metrics import METRICS, compute_mean_similarities
from nnpipe.tasks.pose.pairing import PREDICTED, TRUTH, PoseSettings, get_sigmas
from nnpipe.tasks.predictions import INTEGERS, NUMBERS, check_alike, check_array

_TORSO_POINTS = 17
_FAR = 1e12  # pixels


class Pose(PoseSettings, Task):
    """The key points of the persons in a picture, such as joints; or of other things.

    Persons of a batch are padded to a common number; ``"count"``, ``(n,)``, tells how many there
    are in each picture.

    Targets are ``"count"``, ``"points"``, ``(n, m, points, 3)``: x, y in pixels and visibility (0:
    not known), ``"size"``, ``(n, 2)``: height and width of the picture; and, if the data set has
    them, ``"boxes"``, ``(n, m, 4)``: left, top, width and height, ``"area"``, ``(n, m)``, of the
    person in pixels, and ``"crowd"``, ``(n, m)``, which is 1 for persons that need not be found.
    By default, boxes are those around the visible points, and areas 0.53 of these.

    Predictions are ``"points"``, ``(n, k, points, 3)``: x, y and score; and, if they differ from
    all ``k`` or from the mean score of the points, ``"count"``, ``(n,)``, and ``"scores"``, ``(n,
    k)``.  Points are in pixels of the picture; or, if there is also ``"frame"``
    (:mod:`nnpipe.tasks.frames`), in shares of the size of the model's input.

    An evaluation holds the size of each picture, and what was given for each, ragged, in pixels.
    """

    name = "pose"
    targets = ("points", "count", "size")
    optional_targets = ("boxes", "area", "crowd")
    arrays = ("size", *TRUTH, *PREDICTED)
    truth = ("size", *TRUTH)

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """COCO's average precision and recall over OKS, the mean OKS, PCK, and distances of
        points.
        """
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted key points."""
        true: npt.NDArray[Any] = truth["points"]
        number = true.shape[2]
        points, scores, counts = _check_predictions(predictions, len(true), number)
        if "frame" in predictions:
            places = convert_points_to_pixels(points[..., :2], predictions["frame"], truth["size"])
            points = np.concatenate([places, points[..., 2:]], axis=-1)
        boxes = truth["boxes"] if "boxes" in truth else _compute_bounding_boxes(true)
        area = truth["area"] if "area" in truth else 0.53 * boxes[..., 2:].prod(axis=-1)
        crowd = truth.get("crowd", np.zeros(true.shape[:2], np.uint8))
        sigmas = get_sigmas(number, self.sigmas)
        if len(sigmas) != number or (self.pck_length == "torso" and number != _TORSO_POINTS):
            wanted = (
                f"{len(sigmas)} deviations"
                if len(sigmas) != number
                else f"a torso, of {_TORSO_POINTS} key points"
            )
            raise SpecMismatch(
                f"the data set has {number} key points, and the task was given {wanted}"
            )
        held = {
            "truth_points": (true.astype(np.float32), truth["count"]),
            "truth_boxes": (boxes.astype(np.float32), truth["count"]),
            "truth_area": (area.astype(np.float64), truth["count"]),
            "truth_crowd": (crowd.astype(np.uint8), truth["count"]),
            "points": (points.astype(np.float32), counts),
            "scores": (scores.astype(np.float32), counts),
        }
        return Evaluation(
            self.name,
            {"size": truth["size"].astype(np.int32)},
            spec.class_names,
            {name: Ragged.from_padded(values, own) for name, (values, own) in held.items()},
            {
                "sigmas": list(sigmas),
                "pck_fraction": self.pck_fraction,
                "pck_length": self.pck_length,
            },
        )

    def check(self, evaluation: Evaluation) -> None:
        """Check that each person has all key points, and that the settings are numbers."""
        super().check(evaluation)
        sigmas = evaluation.settings.get("sigmas")
        known = isinstance(sigmas, list) and all(
            isinstance(each, (int, float)) and each > 0 for each in sigmas
        )
        fraction, length = (
            evaluation.settings.get(name) for name in ("pck_fraction", "pck_length")
        )
        torso = length != "torso" or (isinstance(sigmas, list) and len(sigmas) == _TORSO_POINTS)
        if (
            not known
            or not isinstance(fraction, (int, float))
            or length not in ("box", "torso", "picture")
            or not torso
        ):
            raise ArtifactError("the evaluation's settings should be those of poses; measure again")
        check_array(evaluation, "size", (2,), INTEGERS)
        for name in ("truth_points", "points"):
            check_array(evaluation, name, (len(sigmas or ()), 3), NUMBERS, ragged=True)
        check_array(evaluation, "truth_boxes", (4,), NUMBERS, ragged=True)
        check_array(evaluation, "truth_crowd", (), INTEGERS, ragged=True)
        for name in ("truth_area", "scores"):
            check_array(evaluation, name, (), NUMBERS, ragged=True)
        check_alike(evaluation, *TRUTH)
        check_alike(evaluation, *PREDICTED)

    def sample_errors(self, evaluation: Evaluation) -> Floats:
        """Return what the mean OKS of the persons in each picture lacks to 1; NaN without
        persons.
        """
        return np.asarray(1 - compute_mean_similarities(evaluation))

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true key points."""
        points = truth["points"].astype(np.float64)
        return {"points": points, "count": truth["count"], "scores": np.ones(points.shape[:2])}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return as many poses as there are persons, at least one, all certain and far away."""
        true: npt.NDArray[Any] = truth["points"]
        count, most = len(true), max(1, true.shape[1])
        points = np.full((count, most, *true.shape[2:]), _FAR)
        return {
            "points": points,
            "count": np.maximum(truth["count"], 1),
            "scores": np.full((count, most), np.inf),
        }


def _check_predictions(
    predictions: Batch, count: int, number: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return points, scores and the number of persons in each picture, after a check of their
    shapes.
    """
    if "points" not in predictions:
        raise SpecMismatch(
            f"predictions of poses hold points, these hold {', '.join(predictions)}; a decoder "
            f"(nnpipe list decoders) "
            "makes them of a model's raw outputs: name it with --decoder"
        )
    points: npt.NDArray[Any] = predictions["points"]
    most = points.shape[1] if points.ndim == 4 else 0
    if points.shape != (count, most, number, 3) or points.dtype.kind != "f":
        raise SpecMismatch(
            f"points of {count} pictures must be floats of the shape ({count}, k, {number}, 3), "
            f"not {points.dtype} of {show_shape(points.shape)}"
        )
    scores: npt.NDArray[Any] = predictions.get("scores", points[..., 2].mean(axis=2))
    counts = np.asarray(predictions.get("count", np.full(count, most)), np.int64)
    if scores.shape != (count, most) or counts.shape != (count,):
        raise SpecMismatch(f"scores must have the shape ({count}, {most}), and count ({count},)")
    if counts.size and not 0 <= int(counts.min()) <= int(counts.max()) <= most:
        raise SpecMismatch(
            f"count must be from 0 to {most}, the number of persons that points has room for"
        )
    return points, scores, counts


def _compute_bounding_boxes(points: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the boxes around visible points, ``(n, m, 4)``; empty ones without any."""
    seen = points[..., 2:] > 0
    low = np.where(seen, points[..., :2], np.inf).min(axis=2)
    high = np.where(seen, points[..., :2], -np.inf).max(axis=2)
    known = np.any(seen, axis=(2, 3), keepdims=True)[..., 0]
    corner, size = np.where(known, low, 0), np.where(known, high - np.where(known, low, 0), 0)
    return np.concatenate([corner, size], axis=-1)
