"""Segmentation as a task: predicted classes of pixels against true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.frames import find_pixel_cells
from nnpipe.tasks.predictions import INTEGERS, check_array, get_tensor
from nnpipe.tasks.segmentation.metrics import METRICS, count_true_pixels

# Pixels near contours, by which the boundary IoU judges how well a mask follows the outline of
# things.
#
# B. Cheng, R. Girshick, P. Dollár, A. C. Berg, A. Kirillov: Boundary IoU: Improving Object-Centric
# Image Segmentation Evaluation, CVPR 2021 (https://arxiv.org/abs/2103.16562).  A pixel is near a
# contour if a pixel of another class, or the edge of the picture, is at most as many rows and as
# many columns away as its square structuring element reaches.


def find_near_contours(labels: npt.NDArray[np.int64], reach: int) -> npt.NDArray[np.bool_]:
    """Return which pixels are near the contour of their class.

    Parameters
    ----------
    labels
        Class of each pixel, ``(height, width)``.
    reach
        The greatest distance in rows and columns, at least 1.

    Examples
    --------
    >>> find_near_contours(np.array([[0, 0, 0, 0, 1, 1, 1, 1]]).repeat(9, axis=0), 1)[4].astype(int)
    array([1, 0, 0, 1, 1, 0, 0, 1])
    """
    # A square of one class: each of its rows is of one class, and so is one of its columns.
    along = _find_uniform(labels[:, 1:] == labels[:, :-1], reach)
    rows = _find_all_within(along.T, reach).T
    column = _find_uniform((labels[1:] == labels[:-1]).T, reach).T
    near: npt.NDArray[np.bool_] = ~(rows & column)
    return near


def _find_uniform(same: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.bool_]:
    """Return for each place of each row whether all neighbours up to ``reach`` away are alike.

    ``same`` says whether neighbours are, ``(rows, places - 1)``; a place whose neighbours leave the
    row is not.
    """
    places = same.shape[1] + 1
    found = np.zeros((len(same), places), bool)
    if places > 2 * reach:
        sums = np.zeros((len(same), places), np.int32)
        np.cumsum(same, axis=1, out=sums[:, 1:])
        found[:, reach : places - reach] = (
            sums[:, 2 * reach :] - sums[:, : places - 2 * reach] == 2 * reach
        )
    return found


def _find_all_within(held: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.bool_]:
    """Return for each place of each row whether all places up to ``reach`` away hold, and are in
    the row.
    """
    found = np.zeros_like(held)
    places = held.shape[1]
    if places > 2 * reach:
        sums = np.zeros((len(held), places + 1), np.int32)
        np.cumsum(held, axis=1, out=sums[:, 1:])
        width = 2 * reach + 1
        found[:, reach : places - reach] = sums[:, width:] - sums[:, :-width] == width
    return found


_MOST_CLASSES = 1 << 20


class Segmentation(Task):
    """A class for each pixel.

    Targets are ``"mask"``, ``(n, height, width)`` class numbers; pixels of the class ``ignored``
    and of negative ones do not count.  If pictures have different sizes, masks are padded with -1
    below and on the right, and ``"size"``, ``(n, 2)``, is the height and width of each.

    Predictions are ``"mask"``, or a single tensor of any name: class numbers of the same shape, or
    scores ``(n, height, width, classes)``.  If there is also ``"frame"``
    (:mod:`nnpipe.tasks.frames`), masks may have any size; each pixel of a picture gets the class of
    the nearest one in the mask of the model's input.

    An evaluation holds what the metrics need of each picture, ragged: ``pixels``, rows of a true
    class, a predicted class, and the number of pixels with both; and ``contours``, rows of a class,
    and the numbers of its pixels near both contours and near either one
    (:mod:`nnpipe.tasks.segmentation.task`).
    """

    ignored: int = argument(
        255, help="number in true masks of pixels that do not count, such as borders of objects"
    )
    contour_width: float = argument(
        0.02,
        help=(
            "distance from a contour up to which pixels count as near it, in shares of the "
            "picture's diagonal"
        ),
        minimum=0.0,
        maximum=1.0,
    )

    name = "segmentation"
    targets = ("mask",)
    arrays = ("pixels", "contours")
    truth = ("pixels",)

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean IoU, the mean Dice coefficient, the share of right pixels, and the mean
        boundary IoU.
        """
        return METRICS

    def sample_errors(self, evaluation: Evaluation) -> npt.NDArray[np.float64]:
        """Return the share of wrong pixels of each picture; NaN where no pixel counts."""
        rows = evaluation.ragged["pixels"]
        values = rows.values.astype(np.float64)
        whole = np.bincount(rows.owners, values[:, 2], len(evaluation))
        wrong = np.bincount(
            rows.owners, values[:, 2] * (values[:, 0] != values[:, 1]), len(evaluation)
        )
        shares: npt.NDArray[np.float64] = np.full(len(evaluation), np.nan)
        return np.asarray(np.divide(wrong, whole, out=shares, where=whole > 0))

    def _describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return the share of wrong pixels."""
        return (
            f"{100 * float(self.sample_errors(evaluation)[number]):.1f}\u00a0% of the pixels are "
            f"wrong"
        )

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted classes of pixels."""
        mask, classes = truth["mask"], len(spec.class_names)
        predicted = self._get_predicted_classes(predictions, mask, classes)
        sizes = truth.get("size", np.tile(np.array(mask.shape[1:], np.int64), (len(mask), 1)))
        pixels, contours = [], []
        for place, (height, width) in enumerate(sizes.tolist()):
            true, given = mask[place, :height, :width], predicted[place]
            if "frame" in predictions:
                rows, columns = find_pixel_cells(
                    predictions["frame"][place], sizes[place], given.shape
                )
                given = given[rows[:, None], columns]
            found = self._count_pixels(true, given[:height, :width], classes)
            pixels.append(found[0])
            contours.append(found[1])
        rows_ = (
            {"pixels": Ragged.from_rows(pixels), "contours": Ragged.from_rows(contours)}
            if pixels
            else {
                name: Ragged(np.zeros((0, 3), np.int64), np.zeros(0, np.int64))
                for name in self.arrays
            }
        )
        settings = {"ignored": self.ignored, "contour_width": self.contour_width}
        return Evaluation(self.name, {}, spec.class_names, rows_, settings)

    def _get_predicted_classes(
        self, predictions: Batch, mask: npt.NDArray[Any], classes: int
    ) -> npt.NDArray[Any]:
        """Return predicted class numbers, ``(n, height, width)``, after a check of their shape
        and range.
        """
        predicted: npt.NDArray[Any] = get_tensor(predictions, "mask")
        if predicted.ndim == 4 and predicted.shape[3] == classes:
            predicted = np.argmax(predicted, axis=3)
        framed = "frame" in predictions
        fits = (
            predicted.ndim == 3 and len(predicted) == len(mask)
            if framed
            else predicted.shape == mask.shape
        )
        if not fits or predicted.dtype.kind not in "iu":
            raise SpecMismatch(
                f"masks must be class numbers of the shape {show_shape(mask.shape)} or scores of "
                f"{show_shape((*mask.shape, classes))}, not {predicted.dtype} of "
                f"{show_shape(predicted.shape)}; "
                "--decoder SegmentationDecoder makes masks of models that give other sizes or "
                "scores"
            )
        if framed and predictions["frame"].shape != (len(mask), 3):
            raise SpecMismatch(f"the frame of {len(mask)} pictures has the shape ({len(mask)}, 3)")
        if predicted.size and not (int(predicted.min()) >= 0 and int(predicted.max()) < classes):
            raise SpecMismatch(
                f"masks must hold class numbers from 0 to {classes - 1}, these hold "
                f"{int(predicted.min())} to {int(predicted.max())}; if the model has other "
                f"classes, say which are meant: --decoder "
                "SegmentationDecoder --decoder-options class_numbers=..."
            )
        return predicted

    def _count_pixels(
        self, true: npt.NDArray[Any], given: npt.NDArray[Any], classes: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows of one picture: pixels by true and predicted class, and pixels near
        contours by class.
        """
        counted = (true >= 0) & (true != self.ignored)
        if true.size and int(true.max(initial=0, where=counted)) >= classes:
            raise SpecMismatch(
                f"true masks must hold class numbers below {classes}, or {self.ignored} for no "
                f"class"
            )
        pairs = true[counted].astype(np.int64) * classes + given[counted]
        kinds, counts = np.unique(pairs, return_counts=True)
        pixels = np.stack([kinds // classes, kinds % classes, counts], axis=1)
        # What is predicted where nothing is known must neither make a contour nor hide one.
        bare = np.where(counted, true, -1).astype(np.int64)
        covered = np.where(counted, given, -1).astype(np.int64)
        reach = max(1, round(self.contour_width * float(np.hypot(*true.shape))))
        own, others = (find_near_contours(labels, reach) & counted for labels in (bare, covered))
        both = np.bincount(bare[own & others & (bare == covered)], minlength=classes)
        either = (
            np.bincount(bare[own], minlength=classes)
            + np.bincount(covered[others], minlength=classes)
            - both
        )
        there = np.flatnonzero(either)
        return pixels, np.stack([there, both[there], either[there]], axis=1)

    def check(self, evaluation: Evaluation) -> None:
        """Check that each picture has rows of classes and numbers of pixels."""
        super().check(evaluation)
        for name, labels in (("pixels", 2), ("contours", 1)):
            check_array(evaluation, name, (3,), INTEGERS, ragged=True)
            rows = evaluation.ragged[name].values
            if len(rows) and (int(rows.min()) < 0 or int(rows[:, :labels].max()) >= _MOST_CLASSES):
                raise ArtifactError(
                    f"the evaluation's {name!r} should hold classes and numbers of pixels"
                )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true class of each pixel."""
        mask = truth["mask"]
        return {"mask": np.where((mask >= 0) & (mask != self.ignored), mask, 0)}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return another class than the true one for each pixel."""
        return {"mask": (truth["mask"].astype(np.int64) + 1) % max(1, len(spec.class_names))}

    def same_samples(self, one: Evaluation, other: Evaluation) -> bool:
        """Return whether both have as many pixels of each true class in each picture."""
        first, second = count_true_pixels(one), count_true_pixels(other)
        return (
            len(one) == len(other) and first.shape == second.shape and np.array_equal(first, second)
        )
