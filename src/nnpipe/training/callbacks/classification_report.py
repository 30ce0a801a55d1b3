"""Confusion matrix, precision, recall, F1, and the curves of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from nnpipe.analysis.classification import ClassificationMetrics
from nnpipe.core.argument_checks import check_call
from nnpipe.training.callbacks._arrays import join_arrays, to_array
from nnpipe.training.callbacks.callback import (
    WritingCallback,
    create_figure,
    is_last,
    is_write_due,
    save_figure,
    write_table,
)
from nnpipe.training.callbacks.samples import find_image, get_samples, show_images
from nnpipe.training.outputs.classification import BinaryOutput, ClassificationOutput
from nnpipe.training.outputs.output import Output
from nnpipe.training.run_folder import make_file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


def split_by_label(output: Output) -> list[tuple[str, Any, Any]]:
    """Return title, logits ``(n, classes)`` and targets ``(n,)`` of an output; an empty list if it
    has no classes.

    A binary output has two classes, no and yes.  With several labels, there is one entry for each
    label.
    """
    if isinstance(output, ClassificationOutput):
        given = output.output if isinstance(output.output, np.ndarray) else output.output.detach()
        return [("", given, output.true_classes)]
    if not isinstance(output, BinaryOutput):
        return []
    logits, target = output.output.detach(), output.target
    if logits.dim() == 1 or logits.shape[1:].numel() == 1:
        return [("", _to_two_logits(logits.reshape(-1)), (target.reshape(-1) > 0.5).long())]
    columns, truths = logits.flatten(1), target.flatten(1)
    return [
        (f"label {label}", _to_two_logits(columns[:, label]), (truths[:, label] > 0.5).long())
        for label in range(columns.shape[1])
    ]


def _to_two_logits(logits: Any) -> Any:
    """Return the logits of no and yes, so that their softmax is the sigmoid."""
    import torch

    return torch.stack([torch.zeros_like(logits), logits], 1)


Curve: TypeAlias = "tuple[np.ndarray, np.ndarray, float | None]"
"""The horizontal and the vertical values ``(points,)``, and the area below; None if a class or
its rest is empty.
"""

_MOST = 10
"""The greatest number of classes in a picture: those with the least areas."""


def compute_roc(positive: np.ndarray, negative: np.ndarray) -> Curve:
    """Return false and true positive rates, from the strictest threshold on, and the area under the
    curve.

    Parameters
    ----------
    positive, negative
        Counts of samples by ascending bins of their score, ``(bins,)``.
    """
    if not positive.sum() or not negative.sum():
        return np.zeros(0), np.zeros(0), None
    used = np.flatnonzero(positive + negative)[::-1]
    true = np.concatenate([[0], np.cumsum(positive[used])]) / positive.sum()
    false = np.concatenate([[0], np.cumsum(negative[used])]) / negative.sum()
    return false, true, float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))


def compute_precision_recall(positive: np.ndarray, negative: np.ndarray) -> Curve:
    """Return recall and precision, from the strictest threshold on, and the average precision.

    Parameters
    ----------
    positive, negative
        Counts of samples by ascending bins of their score, ``(bins,)``.
    """
    if not positive.sum() or not negative.sum():
        return np.zeros(0), np.zeros(0), None
    used = np.flatnonzero(positive + negative)[::-1]
    hits, said = np.cumsum(positive[used]), np.cumsum((positive + negative)[used])
    area = float(positive[used] @ (hits / said)) / float(positive.sum())
    # As in scikit-learn, the curve begins at a precision of 1 without any recall.
    return np.r_[0.0, hits / positive.sum()], np.r_[1.0, hits / said], area


def draw_roc(
    fit: TrainingRun, file: str, curves: Sequence[Curve], names: Sequence[str], where: str
) -> None:
    """Draw the ROC curves of the classes with the least areas."""
    axes = _draw_curves(curves, names, "class: AUC", "lower right")
    axes.plot([0, 1], [0, 1], color="grey", lw=0.8, ls=":")
    axes.set(title=f"ROC, {where}", xlabel="false positive rate", ylabel="true positive rate")
    save_figure(fit, file, axes.figure)


def draw_precision_recall(
    fit: TrainingRun, file: str, curves: Sequence[Curve], names: Sequence[str], where: str
) -> None:
    """Draw the curves of precision over recall of the classes with the least areas."""
    axes = _draw_curves(
        curves, names, "class: average precision", "lower left", drawstyle="steps-pre"
    )
    axes.set(
        title=f"precision and recall, {where}", xlabel="recall", ylabel="precision", ylim=(0, 1.05)
    )
    save_figure(fit, file, axes.figure)


def _draw_curves(
    curves: Sequence[Curve],
    names: Sequence[str],
    title: str,
    place: str,
    drawstyle: str = "default",
) -> Any:
    axes = create_figure(5.5, 5).subplots()
    areas = [-1.0 if area is None else area for _, _, area in curves]
    for number in sorted(sorted(range(len(names)), key=areas.__getitem__)[:_MOST]):
        across, up, area = curves[number]
        if area is not None:
            axes.plot(across, up, label=f"{names[number]}: {area:.4f}", drawstyle=drawstyle)
    if axes.lines:
        axes.legend(title=title, fontsize=7, loc=place)
    axes.grid(alpha=0.3)
    return axes


_BINS = 4096
_LIMIT = 20.0
"""The log odds beyond which scores are treated as equal: one in 500 million."""


class ClassificationReport(WritingCallback):
    """Write the confusion matrix, and precision, recall, F1, AUC and average precision of each
    class.

    After each evaluation, this writes ``tables/classes-DATASET-SPLIT-OUTPUT.json`` and the pictures
    ``confusion-...png``, ``roc-...png`` and ``pr-...png`` for each evaluated split and each output
    with classes.  Rows of the matrix are targets, columns are predictions.  A binary output has the
    classes 0 and 1; with several labels, each label has its own table and pictures.  Curves are
    those of each class against all others.

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
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Count a batch, without fetching anything from the device."""
        if self._epoch != fit.epoch:
            self._epoch, self._sums = fit.epoch, {}
        for name, output in outputs.items():
            for label, logits, target in split_by_label(output):
                key = (dataset, split, f"{name} {label}".rstrip())
                before = self._sums.get(key)
                if isinstance(logits, np.ndarray):
                    matrix, bins = _count_arrays(logits, np.asarray(target))
                    self._sums[key] = (
                        (matrix, bins) if before is None else (before[0] + matrix, before[1] + bins)
                    )
                else:
                    self._sums[key] = _count_tensors(logits, target, before)

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the report of the last evaluation."""
        if not is_write_due(fit):
            return
        for key, (matrix, bins) in self._sums.items():
            classes = round(len(matrix) ** 0.5)
            self._write(
                fit,
                key,
                to_array(matrix).reshape(classes, classes),
                to_array(bins).reshape(2, classes, _BINS),
            )
        self._sums = {}

    def _write(
        self, fit: TrainingRun, key: tuple[str, str, str], matrix: np.ndarray, bins: np.ndarray
    ) -> None:
        names = [self.classes[n] if n < len(self.classes) else str(n) for n in range(len(matrix))]
        curves = [compute_roc(bins[1, n], bins[0, n]) for n in range(len(matrix))]
        recalls = [compute_precision_recall(bins[1, n], bins[0, n]) for n in range(len(matrix))]
        found = ClassificationMetrics.from_confusions(matrix, names)
        rows = [
            {
                "class": name,
                "samples": int(found.support[n]),
                "precision": _replace_nan(found.precision[n]),
                "recall": _replace_nan(found.sensitivity[n]),
                "f1": _replace_nan(found.f1[n]),
                "auc": curves[n][2],
                "average_precision": recalls[n][2],
                "predicted_as": dict(zip(names, matrix[n].tolist(), strict=True)),
            }
            for n, name in enumerate(names)
        ]
        write_table(fit, make_file_name("classes", *key), rows)
        where = f"{key[0]}/{key[1]}, {key[2]}, epoch {fit.epoch}"
        self._draw_matrix(fit, make_file_name("confusion", *key), matrix, names, where)
        draw_roc(fit, make_file_name("roc", *key), curves, names, where)
        draw_precision_recall(fit, make_file_name("pr", *key), recalls, names, where)

    def _draw_matrix(
        self, fit: TrainingRun, file: str, matrix: np.ndarray, names: list[str], where: str
    ) -> None:
        size = min(12.0, 2.5 + 0.45 * len(names))
        picture = create_figure(size + 0.8, size)
        axes = picture.subplots()
        shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
        drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        picture.colorbar(drawn, ax=axes, label="share of the target's samples")
        step = -(-len(names) // 30)
        axes.set_xticks(
            range(0, len(names), step),
            names[::step],
            rotation=90 if max(map(len, names)) > 2 else 0,
        )
        axes.set_yticks(range(0, len(names), step), names[::step])
        if len(names) <= 20:
            for row, column in zip(*np.nonzero(matrix), strict=True):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(
                    column,
                    row,
                    matrix[row, column],
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=colour,
                )
        axes.set(title=where, xlabel="prediction", ylabel="target")
        save_figure(fit, file, picture)


def _replace_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _count_tensors(logits: Any, target: Any, before: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """Add a batch to the counts of the matrix, and to those of bins by class and by whether the
    class is the target.

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


def _count_arrays(logits: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of one batch, like :func:`_count_tensors`."""
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
    """Return log(p / (1 - p)) of the softmax of logits ``(n, classes)``, without loss near 0 and
    1.
    """
    import torch

    chance = logits.log_softmax(1)
    return torch.nan_to_num(chance - torch.log(-torch.expm1(chance)), nan=0.0)


class Confusions(WritingCallback):
    """List the errors of the last evaluation, the most common confusions first, with the samples.

    For each output with classes and each evaluated split it writes
    ``tables/confusions-DATASET-SPLIT-OUTPUT.json``.  If samples are pictures, it
    also draws, at the end, one sample of each of the most common confusions.

    It keeps the predicted class and the target of each sample of one evaluation.

    Parameters
    ----------
    count
        Number of confusions to list.
    classes
        Names of the classes; by default their numbers.
    samples
        Number of sample ids to list for each confusion.
    """

    frameworks = ("torch", "keras")
    draws = True
    describes_weights = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingClassificationErrors",)

    def __init__(self, count: int = 20, classes: Sequence[str] = (), samples: int = 10) -> None:
        check_call(Confusions, locals())
        self.count = count
        self.classes = tuple(classes)
        self.samples = samples
        self._kept: dict[tuple[str, str, str], list[Any]] = {}
        self._epoch = 0

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Keep the prediction and the target of each sample."""
        if self._epoch != fit.epoch:
            self._epoch, self._kept = fit.epoch, {}
        for name, output in outputs.items():
            if isinstance(output, ClassificationOutput):
                kept = self._kept.setdefault((dataset, split, name), [])
                kept.append(
                    (np.asarray(batch["sample_id"]), output.predictions(), output.true_classes)
                )

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the tables of the last evaluation, and the pictures at the last epoch."""
        if not is_write_due(fit):
            return
        for (dataset, split, name), kept in self._kept.items():
            ids = np.concatenate([own for own, _, _ in kept])
            said = join_arrays([own for _, own, _ in kept])
            true = join_arrays([own for _, _, own in kept])
            rows = self._build_rows(ids, said, true)
            file = make_file_name("confusions", dataset, split, name)
            write_table(fit, file, rows)
            if is_last(fit):
                self._draw(fit, file, fit.datasets[dataset][split], rows)
        self._kept = {}

    def _build_rows(
        self, ids: np.ndarray, said: np.ndarray, true: np.ndarray
    ) -> list[dict[str, Any]]:
        wrong = said != true
        pairs, place, counts = np.unique(
            np.stack([true[wrong], said[wrong]]), axis=1, return_inverse=True, return_counts=True
        )
        place = place.ravel()
        members = ids[wrong]
        rows = []
        for number in np.argsort(-counts, kind="stable")[: self.count]:
            target, prediction = pairs[:, number].tolist()
            rows.append(
                {
                    "target": self._get_class_name(target),
                    "prediction": self._get_class_name(prediction),
                    "count": int(counts[number]),
                    "share_of_target": float(counts[number] / (true == target).sum()),
                    "sample_ids": np.sort(members[place == number])[: self.samples].tolist(),
                }
            )
        return rows

    def _get_class_name(self, number: int) -> str:
        return self.classes[number] if number < len(self.classes) else str(number)

    def _draw(self, fit: TrainingRun, file: str, sequence: Any, rows: list[dict[str, Any]]) -> None:
        chosen = [(row, row["sample_ids"][0]) for row in rows]
        found = get_samples(sequence, 0, {own for _, own in chosen})
        images, titles = [], []
        for row, own in chosen:
            image = find_image(found[own]) if own in found else None
            if image is not None:
                images.append(image)
                titles.append(
                    f"{row['target']} taken for {row['prediction']}\n{row['count']} times, as {own}"
                )
        if images:
            columns = min(5, len(images))
            picture = create_figure(1.8 * columns, 2.0 * -(-len(images) // columns))
            show_images(picture, images, titles, columns)
            save_figure(fit, file, picture)
