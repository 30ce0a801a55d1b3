"""Confusion matrix, precision, recall, F1, and the curves of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.analysis.classification import ClassificationMetrics
from nnpipe.core.argument_checks import check_call
from nnpipe.training.callbacks._arrays import array_of
from nnpipe.training.callbacks._class_outputs import by_label
from nnpipe.training.callbacks._curves import draw_precision_recall, draw_roc, precision_recall_of, roc_of
from nnpipe.training.callbacks.writing_callback import (
    WritingCallback,
    new_figure,
    save_figure,
    write_table,
    writes_after,
)
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_BINS = 4096
_LIMIT = 20.0
"""The log odds beyond which scores are treated as equal: one in 500 million."""


class ClassificationReport(WritingCallback):
    """Write the confusion matrix, and precision, recall, F1, AUC and average precision of each class.

    After each evaluation, this writes ``tables/classes-DATASET-SPLIT-OUTPUT.json``
    and the pictures ``confusion-...png``, ``roc-...png`` and ``pr-...png`` for each
    evaluated split and each output with classes.  Rows of the matrix are targets, columns
    are predictions.  A binary output has the classes 0 and 1; with several
    labels, each label has its own table and pictures.  Curves are those of each class against all others.

    Scores are counted in 4,096 bins of the log odds of each class, so that memory
    does not grow with the data.  The AUC is computed from these bins by the
    trapezoid rule, which treats samples of one bin as ties, and the average precision by steps.

    Parameters
    ----------
    classes
        Names of the classes; by default their numbers.
    """

    frameworks = ("torch", "keras")
    draws = True
    describes_weights = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackExportClassificationReport",)

    def __init__(self, classes: Sequence[str] = ()) -> None:
        check_call(ClassificationReport, locals())
        self.classes = tuple(classes)
        self._sums: dict[tuple[str, str, str], tuple[Any, Any]] = {}
        self._epoch = 0

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Count a batch, without fetching anything from the device."""
        if self._epoch != fit.epoch:
            self._epoch, self._sums = fit.epoch, {}
        for name, output in outputs.items():
            for label, logits, target in by_label(output):
                key = (dataset, split, f"{name} {label}".rstrip())
                before = self._sums.get(key)
                if isinstance(logits, np.ndarray):
                    matrix, bins = _counts_of_arrays(logits, np.asarray(target))
                    self._sums[key] = (matrix, bins) if before is None else (before[0] + matrix, before[1] + bins)
                else:
                    self._sums[key] = _counts_of_tensors(logits, target, before)

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the report of the last evaluation."""
        if not writes_after(fit):
            return
        for key, (matrix, bins) in self._sums.items():
            classes = round(len(matrix) ** 0.5)
            self._write(
                fit,
                key,
                array_of(matrix).reshape(classes, classes),
                array_of(bins).reshape(2, classes, _BINS),
            )
        self._sums = {}

    def _write(self, fit: Fit, key: tuple[str, str, str], matrix: np.ndarray, bins: np.ndarray) -> None:
        names = [self.classes[n] if n < len(self.classes) else str(n) for n in range(len(matrix))]
        curves = [roc_of(bins[1, n], bins[0, n]) for n in range(len(matrix))]
        recalls = [precision_recall_of(bins[1, n], bins[0, n]) for n in range(len(matrix))]
        found = ClassificationMetrics.from_confusions(matrix, names)
        rows = [
            {
                "class": name,
                "samples": int(found.support[n]),
                "precision": _known(found.precision[n]),
                "recall": _known(found.sensitivity[n]),
                "f1": _known(found.f1[n]),
                "auc": curves[n][2],
                "average_precision": recalls[n][2],
                "predicted_as": dict(zip(names, matrix[n].tolist(), strict=True)),
            }
            for n, name in enumerate(names)
        ]
        write_table(fit, file_name("classes", *key), rows)
        where = f"{key[0]}/{key[1]}, {key[2]}, epoch {fit.epoch}"
        self._draw_matrix(fit, file_name("confusion", *key), matrix, names, where)
        draw_roc(fit, file_name("roc", *key), curves, names, where)
        draw_precision_recall(fit, file_name("pr", *key), recalls, names, where)

    def _draw_matrix(self, fit: Fit, file: str, matrix: np.ndarray, names: list[str], where: str) -> None:
        size = min(12.0, 2.5 + 0.45 * len(names))
        picture = new_figure(size + 0.8, size)
        axes = picture.subplots()
        shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
        drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        picture.colorbar(drawn, ax=axes, label="share of the target's samples")
        step = -(-len(names) // 30)
        axes.set_xticks(range(0, len(names), step), names[::step], rotation=90 if max(map(len, names)) > 2 else 0)
        axes.set_yticks(range(0, len(names), step), names[::step])
        if len(names) <= 20:
            for row, column in zip(*np.nonzero(matrix), strict=True):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, matrix[row, column], ha="center", va="center", fontsize=7, color=colour)
        axes.set(title=where, xlabel="prediction", ylabel="target")
        save_figure(fit, file, picture)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _counts_of_tensors(logits: Any, target: Any, before: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """Add a batch to the counts of the matrix, and to those of bins by class and by whether the class is the target.

    Parameters
    ----------
    logits, target
        Tensors ``(n, classes)`` and ``(n,)``.
    before
        The counts so far, which are changed in place.
    """
    import torch

    classes, device = logits.shape[1], logits.device
    matrix, bins = before or (
        torch.zeros(classes * classes, dtype=torch.int64, device=device),
        torch.zeros(2 * classes * _BINS, dtype=torch.int64, device=device),
    )
    places = target * classes + logits.argmax(1)
    matrix.scatter_add_(0, places, torch.ones_like(places))
    odds = _log_odds(logits.double())
    bin_of = ((odds + _LIMIT) * (_BINS / (2 * _LIMIT))).clamp(0, _BINS - 1).long()
    numbers = torch.arange(classes, device=device)
    is_target = (target[:, None] == numbers).long()
    places = ((is_target * classes + numbers) * _BINS + bin_of).flatten()
    bins.scatter_add_(0, places, torch.ones_like(places))
    return matrix, bins


def _counts_of_arrays(logits: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of one batch, like :func:`_counts_of_tensors`."""
    classes = logits.shape[1]
    matrix = np.bincount(target * classes + logits.argmax(1), minlength=classes * classes)
    values = logits.astype(np.float64)
    values = values - values.max(1, keepdims=True)
    chance = values - np.log(np.exp(values).sum(1, keepdims=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.nan_to_num(chance - np.log(-np.expm1(chance)), nan=0.0)
    bin_of = np.clip((odds + _LIMIT) * (_BINS / (2 * _LIMIT)), 0, _BINS - 1).astype(np.int64)
    numbers = np.arange(classes)
    is_target = (target[:, None] == numbers).astype(np.int64)
    places = ((is_target * classes + numbers) * _BINS + bin_of).ravel()
    return matrix, np.bincount(places, minlength=2 * classes * _BINS)


def _log_odds(logits: Any) -> Any:
    """Return log(p / (1 - p)) of the softmax of logits ``(n, classes)``, without loss near 0 and 1."""
    import torch

    chance = logits.log_softmax(1)
    return torch.nan_to_num(chance - torch.log(-torch.expm1(chance)), nan=0.0)
