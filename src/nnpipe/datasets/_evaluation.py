"""Evaluation of predictions against the truth, for each task."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.ranking import true_class_rank
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch, show_shape


def only(predictions: Batch, name: str) -> npt.NDArray[np.generic]:
    """Return the tensor ``name``, or the only tensor.

    Raises
    ------
    SpecMismatch
        If there are several, and none has that name.
    """
    if name in predictions:
        return predictions[name]
    if len(predictions) != 1:
        raise SpecMismatch(f"predictions must hold {name!r} or one tensor only; given: {', '.join(predictions)}")
    return next(iter(predictions.values()))


def classification(predictions: Batch, truth: Batch, class_names: tuple[str, ...]) -> Evaluation:
    """Evaluate class scores.

    Parameters
    ----------
    predictions
        ``"scores"`` (or a single tensor of any name): ``(n, classes)``;
        greater means more likely.
    truth
        ``"label"``: ``(n,)`` integers.
    class_names
        Names of all classes.

    Returns
    -------
    Evaluation
        ``truth`` and ``predicted``, int32, and ``rank``, each ``(n,)``.
    """
    scores = only(predictions, "scores")
    if scores.ndim != 2 or scores.shape[1] != len(class_names):
        raise SpecMismatch(f"scores must have the shape (?, {len(class_names)}), not {show_shape(scores.shape)}")
    labels = truth["label"]
    rank = true_class_rank(scores, labels)
    if scores.dtype.kind == "f":
        scores = np.where(np.isnan(scores), -np.inf, scores)  # argmax takes NaN for the greatest
    arrays = {
        "truth": labels.astype(np.int32),
        "predicted": np.argmax(scores, axis=1).astype(np.int32),
        "rank": rank,
    }
    return Evaluation("classification", arrays, class_names)


def regression(predictions: Batch, truth: Batch) -> Evaluation:
    """Evaluate predicted numbers.

    Parameters
    ----------
    predictions
        ``"value"`` (or a single tensor of any name): the shape of the truth.
    truth
        ``"value"``: ``(n, ...)``.

    Returns
    -------
    Evaluation
        ``truth`` and ``predicted``, float32 ``(n, ...)``.
    """
    predicted, value = only(predictions, "value"), truth["value"]
    if predicted.shape != value.shape:
        raise SpecMismatch(f"values must have the shape {show_shape(value.shape)}, not {show_shape(predicted.shape)}")
    return Evaluation("regression", {"truth": value.astype(np.float32), "predicted": predicted.astype(np.float32)})


def segmentation(predictions: Batch, truth: Batch, class_names: tuple[str, ...]) -> Evaluation:
    """Evaluate predicted classes of pixels.

    Parameters
    ----------
    predictions
        ``"mask"`` (or a single tensor of any name): class numbers
        ``(n, height, width)``, or scores ``(n, height, width, classes)``.
    truth
        ``"mask"``: ``(n, height, width)`` class numbers.
    class_names
        Names of all classes.

    Returns
    -------
    Evaluation
        ``confusion``, int64 ``(n, classes, classes)``: pixels of each image by
        true class (row) and predicted class (column).  Every overlap measure
        follows from it.
    """
    predicted: npt.NDArray[Any] = only(predictions, "mask")
    mask, classes = truth["mask"], len(class_names)
    if predicted.ndim == 4 and predicted.shape[3] == classes:
        predicted = np.argmax(predicted, axis=3)
    if predicted.shape != mask.shape or predicted.dtype.kind not in "iu":
        raise SpecMismatch(
            f"masks must be class numbers of the shape {show_shape(mask.shape)} or scores of "
            f"{show_shape((*mask.shape, classes))}, not {predicted.dtype} of {show_shape(predicted.shape)}"
        )
    if predicted.size and not (int(predicted.min()) >= 0 and int(predicted.max()) < classes):
        raise SpecMismatch(f"masks must hold class numbers from 0 to {classes - 1}")
    count = len(mask)
    cell = (np.arange(count)[:, None, None] * classes + mask) * classes + predicted
    confusion = np.bincount(cell.ravel().astype(np.int64), minlength=count * classes * classes)
    arrays = {"confusion": confusion.reshape(count, classes, classes).astype(np.int64)}
    return Evaluation("segmentation", arrays, class_names)


def anomaly(predictions: Batch, truth: Batch) -> Evaluation:
    """Evaluate anomaly scores.

    Parameters
    ----------
    predictions
        ``"score"`` (or a single tensor of any name): ``(n,)``; greater means more anomalous.
    truth
        ``"anomalous"``: ``(n,)``, 1 for an anomaly and 0 for a normal sample.

    Returns
    -------
    Evaluation
        ``truth``, int32, and ``score``, float32, each ``(n,)``.
    """
    score, anomalous = only(predictions, "score"), truth["anomalous"]
    if score.shape != anomalous.shape:
        raise SpecMismatch(f"scores must have the shape {show_shape(anomalous.shape)}, not {show_shape(score.shape)}")
    arrays = {"truth": anomalous.astype(np.int32), "score": score.astype(np.float32)}
    return Evaluation("anomaly", arrays, ("usual", "anomalous"))
