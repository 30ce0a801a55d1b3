"""Instance segmentation as a task: predicted masks of things against true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.average_precision import THRESHOLDS
from nnpipe.tasks.instance_segmentation.metrics import METRICS, count_missed_masks
from nnpipe.tasks.instance_segmentation.run_lengths import (
    Integers,
    compute_run_areas,
    compute_run_intersections,
    extract_picture_runs,
)
from nnpipe.tasks.predictions import INTEGERS, NUMBERS, check_alike, check_array

TRUTH = ("truth_class", "truth_crowd", "truth_area")
PREDICTED = ("class", "scores", "area")


class InstanceSegmentation(Task):
    """A mask and a class of each thing in a picture.

    It is a task beside detection, since its metrics compare masks and are not defined for boxes.
    Things of a batch are padded to a common number; padding has the class -1.

    Targets are ``"runs"``, ``(n, m, runs)``: each mask as run lengths
    (:mod:`nnpipe.tasks.instance_segmentation.run_lengths`), ``"class"``, ``(n, m)``, ``"size"``,
    ``(n, 2)``: height and width of the picture; and, if the data set has them, ``"crowd"``, ``(n,
    m)``, which is 1 for many things in one mask, and ``"area"``, ``(n, m)``, in pixels.

    Predictions are ``"class"`` and ``"scores"``, ``(n, k)``, and either ``"runs"``, ``(n, k,
    runs)``, of the picture's pixels, or ``"masks"``, ``(n, k, height, width)``, whose pixels above
    0.5 belong to the thing.  The latter have the picture's size, in the top left corner if pictures
    of a batch differ; or, if there is also ``"frame"`` (:mod:`nnpipe.tasks.frames`), they cover the
    model's input in any size and are interpolated (bilinear), and cut off at ``"boxes"``, ``(n, k,
    4)``, if there are such: left, top, width and height in shares of the input.  Masks that cover
    these boxes alone are ``"box_masks"``, ``(n, k, rows, columns)``, with ``"boxes"`` and
    ``"frame"``.

    An evaluation holds, ragged, class, crowd and area of the true things, class, score and area of
    the predicted ones, and ``pairs``: rows of a predicted and a true thing of the same class and
    picture, by their places there, and their intersection over union, where it is 0.5 or more.
    Masks are not kept.
    """

    name = "instance_segmentation"
    arrays = (*TRUTH, *PREDICTED, "pairs")
    truth = TRUTH

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """COCO's average precision of masks over all overlaps, at 0.5 and 0.75, by area, and the
        average recall.
        """
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted masks."""
        count, true_class = len(truth["class"]), truth["class"]
        check_predictions(predictions, count, len(spec.class_names))
        crowd = truth.get("crowd", np.zeros(true_class.shape, np.uint8))
        rows: dict[str, list[npt.NDArray[np.generic]]] = {name: [] for name in self.arrays}
        for place in range(count):
            there, given = true_class[place] >= 0, predictions["class"][place] >= 0
            true, found = (
                truth["runs"][place][there].astype(np.int64),
                extract_picture_runs(predictions, place, truth["size"][place], given),
            )
            check_runs(true, "true", truth["size"][place])
            check_runs(found, "predicted", truth["size"][place])
            own = {
                "truth_class": true_class[place][there].astype(np.int32),
                "truth_crowd": crowd[place][there].astype(np.uint8),
                "truth_area": (
                    truth["area"][place][there] if "area" in truth else compute_run_areas(true)
                ).astype(np.float64),
                "class": predictions["class"][place][given].astype(np.int32),
                "scores": predictions["scores"][place][given].astype(np.float32),
                "area": compute_run_areas(found),
            }
            own["pairs"] = _compute_mask_overlaps(
                found, own["class"], true, own["truth_class"], own["truth_crowd"].astype(bool)
            )
            for name, values in own.items():
                rows[name].append(values)
        empty = {name: np.zeros((0, 3) if name == "pairs" else 0) for name in self.arrays}
        ragged = {
            name: Ragged.from_rows(each) if each else Ragged(empty[name], np.zeros(0, np.int64))
            for name, each in rows.items()
        }
        return Evaluation(self.name, {}, spec.class_names, ragged)

    def sample_errors(self, evaluation: Evaluation) -> npt.NDArray[np.float64]:
        """Return how many true masks of each picture are not found."""
        return count_missed_masks(evaluation)[0].astype(np.float64)

    def _describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return how many masks are not found."""
        missed, wanted = count_missed_masks(evaluation)
        return f"{missed[number]} of {wanted[number]} masks are not found"

    def check(self, evaluation: Evaluation) -> None:
        """Check that each thing has a class and an area, and that pairs are of things that are
        there.
        """
        super().check(evaluation)
        for name in ("truth_class", "truth_crowd", "class"):
            check_array(evaluation, name, (), INTEGERS, ragged=True)
        for name in ("truth_area", "scores", "area"):
            check_array(evaluation, name, (), NUMBERS, ragged=True)
        check_array(evaluation, "pairs", (3,), NUMBERS, ragged=True)
        check_alike(evaluation, *TRUTH)
        check_alike(evaluation, *PREDICTED)
        pairs = evaluation.ragged["pairs"]
        rows = pairs.values.astype(np.float64)
        for column, name in ((0, "class"), (1, "truth_class")):
            held = evaluation.ragged[name]
            labels, most = held.values.astype(np.int64), held.counts[pairs.owners]
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < 1 << 20:
                raise ArtifactError(
                    f"the evaluation's {name!r} holds numbers that belong to no class"
                )
            if not np.all((rows[:, column] >= 0) & (rows[:, column] < most)):
                raise ArtifactError(
                    "the evaluation's 'pairs' are of things that are not there; measure again"
                )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true masks, all certain."""
        return {
            "runs": truth["runs"],
            "class": truth["class"],
            "scores": np.ones(truth["class"].shape),
        }

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return none of the true masks, and as many that are certain and empty; one if there
        are none.
        """
        count, most = len(truth["class"]), max(1, truth["class"].shape[1])
        classes = np.full((count, most), -1, np.int64)
        classes[:, : truth["class"].shape[1]] = truth["class"]
        classes[(classes < 0).all(axis=1), 0] = 0
        pixels = truth["size"].astype(np.int64).prod(axis=1)
        runs = np.tile(pixels[:, None, None], (1, most, 1))
        return {"runs": runs, "class": classes, "scores": np.full((count, most), np.inf)}


def _compute_mask_overlaps(
    found: Integers,
    classes: npt.NDArray[Any],
    true: Integers,
    true_classes: npt.NDArray[Any],
    crowds: npt.NDArray[Any],
) -> npt.NDArray[np.float64]:
    """Return the rows of ``pairs`` of one picture; of a crowd, the overlap is the part of the
    thing that is inside.
    """
    rows = [np.zeros((0, 3))]
    for label in np.intersect1d(classes, true_classes):
        things, those = np.flatnonzero(classes == label), np.flatnonzero(true_classes == label)
        inside = compute_run_intersections(found[things], true[those]).astype(np.float64)
        own, others = (
            compute_run_areas(found[things])[:, None],
            compute_run_areas(true[those])[None],
        )
        whole = np.where(crowds[those][None], own, own + others - inside)
        overlap = np.divide(inside, whole, out=np.zeros_like(inside), where=inside > 0)
        thing, other = np.nonzero(overlap >= THRESHOLDS[0])
        rows.append(np.stack([things[thing], those[other], overlap[thing, other]], axis=1))
    return np.concatenate(rows)


def check_runs(runs: Integers, kind: str, size: npt.NDArray[Any]) -> None:
    """Raise :class:`SpecMismatch` if runs are not those of masks of a picture of this size."""
    height, width = size.tolist()
    if runs.size and (int(runs.min()) < 0 or int(runs.max()) > height * width):
        raise SpecMismatch(f"the runs of {kind} masks should be lengths from 0 to {height * width}")
    wrong = runs.sum(axis=1) != height * width
    if wrong.any():
        raise SpecMismatch(
            f"a {kind} mask has {int(runs[wrong][0].sum())} pixels, and its picture of {width} x "
            f"{height} has {height * width}"
        )


def check_predictions(predictions: Batch, count: int, classes: int = 0) -> None:
    """Raise :class:`SpecMismatch` if predictions are not of masks; ``classes`` is the number of
    classes, if known.
    """
    kind = next((name for name in ("runs", "box_masks") if name in predictions), "masks")
    needed = (kind, "class", "scores", *(("boxes", "frame") if kind == "box_masks" else ()))
    if missing := [name for name in needed if name not in predictions]:
        raise SpecMismatch(
            f"predictions of masks hold {', '.join(needed)}; these have no {missing[0]}: name the "
            f"model's decoder with "
            "--decoder, such as MaskRCNNDecoder or YOLOMasksDecoder"
        )
    given, scores, masks = (predictions[name] for name in ("class", "scores", kind))
    most = given.shape[1] if given.ndim == 2 else 0
    rank = 3 if kind == "runs" else 4
    if (
        given.shape != (count, most)
        or scores.shape != (count, most)
        or masks.shape[:2] != (count, most)
    ):
        raise SpecMismatch(
            f"class, scores and {kind} of {count} pictures must have the shapes ({count}, k), "
            f"({count}, k) and ({count}, k, ...), not "
            f"{', '.join(show_shape(each.shape) for each in (given, scores, masks))}"
        )
    if masks.ndim != rank or scores.dtype.kind != "f" or given.dtype.kind not in "iu":
        raise SpecMismatch(f"scores must be floats, class integers, and {kind} have {rank} axes")
    for name, shape in (("boxes", (count, most, 4)), ("frame", (count, 3))):
        if name in predictions and predictions[name].shape != shape:
            raise SpecMismatch(
                f"{name} must have the shape {shape}, not {show_shape(predictions[name].shape)}"
            )
    if classes and given.size and int(given.max()) >= classes:
        raise SpecMismatch(
            f"class must be below {classes}, the number of the data set's classes, not "
            f"{given.max()}"
        )
