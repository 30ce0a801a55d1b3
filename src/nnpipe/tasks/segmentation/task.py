"""Segmentation as a task: predicted classes of pixels against true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.tasks.predictions import only
from nnpipe.tasks.segmentation.metrics import METRICS
from nnpipe.tasks.stored_arrays import INTEGERS, check_array


class Segmentation(Task):
    """A class for each pixel.

    Targets are ``"mask"``, ``(n, height, width)`` class numbers; pixels of the class ``ignored`` and of negative ones
    do not count.  Predictions are ``"mask"``, or a single tensor of any
    name: class numbers of the same shape, or scores ``(n, height, width, classes)``.

    An evaluation holds ``confusion``, int64 ``(n, classes, classes)``: the pixels of each image by true class (row) and
    predicted class (column).  Every measure of overlap follows from it.
    """

    ignored: int = argument(255, help="number in true masks of pixels that do not count, such as borders of objects")

    name = "segmentation"
    arrays = truth = ("confusion",)

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean intersection over union, the mean Dice coefficient, and the share of right pixels."""
        return METRICS

    def judge(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted classes of pixels."""
        predicted: npt.NDArray[Any] = only(predictions, "mask")
        mask, classes = truth["mask"], len(spec.class_names)
        if predicted.ndim == 4 and predicted.shape[3] == classes:
            predicted = np.argmax(predicted, axis=3)
        if predicted.shape != mask.shape or predicted.dtype.kind not in "iu":
            raise SpecMismatch(
                f"masks must be class numbers of the shape {show_shape(mask.shape)} or scores of "
                f"{show_shape((*mask.shape, classes))}, not {predicted.dtype} of {show_shape(predicted.shape)}"
            )
        if predicted.size and not (int(predicted.min()) >= 0 and int(predicted.max()) < classes):
            raise SpecMismatch(f"masks must hold class numbers from 0 to {classes - 1}")
        counted = (mask >= 0) & (mask != self.ignored)
        if mask.size and int(mask.max(initial=0, where=counted)) >= classes:
            raise SpecMismatch(f"true masks must hold class numbers below {classes}, or {self.ignored} for no class")
        count = len(mask)
        cell = (np.arange(count, dtype=np.int64)[:, None, None] * classes + mask) * classes + predicted
        confusion = np.bincount(cell[counted], minlength=count * classes * classes)
        arrays = {"confusion": confusion.reshape(count, classes, classes).astype(np.int64)}
        return Evaluation(self.name, arrays, spec.class_names, settings={"ignored": self.ignored})

    def check(self, evaluation: Evaluation) -> None:
        """Check that each image has a square table of pixels."""
        super().check(evaluation)
        confusion = evaluation.arrays.get("confusion")
        classes = confusion.shape[1] if confusion is not None and confusion.ndim == 3 else 0
        check_array(evaluation, "confusion", (classes, classes), INTEGERS)
        if confusion is not None and int(confusion.min()) < 0:
            raise ArtifactError("the evaluation's 'confusion' should hold numbers of pixels; measure again")

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true class of each pixel."""
        mask = truth["mask"]
        return {"mask": np.where((mask >= 0) & (mask != self.ignored), mask, 0)}

    def same_samples(self, one: Evaluation, other: Evaluation) -> bool:
        """Return whether both have as many pixels of each true class in each image."""
        first, second = one.arrays["confusion"], other.arrays["confusion"]
        return first.shape == second.shape and np.array_equal(first.sum(axis=2), second.sum(axis=2))
