"""The classification section: accuracy, the confusion matrix, and figures of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.classification import ClassificationMetrics
from nnpipe.core.tensors import Batch
from nnpipe.report.charts import DotPlot, Floats, Heatmap
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table, Tile, Tiles
from nnpipe.report.formatting import clean, format_share
from nnpipe.report.inputs.candidate import Candidate, have_same_samples
from nnpipe.report.sections.validity_warnings import MOST_OPEN
from nnpipe.report.task_section import (
    Picture,
    TaskPictures,
    TaskSection,
    get_class_label,
    get_first_sample,
)
from nnpipe.tasks.classification.metrics import SCORE_METRICS, SCORES
from nnpipe.tasks.classification.task import Classification
from nnpipe.tasks.predictions import get_tensor

_LARGEST_MATRIX = 4096  # classes: a confusion matrix of this size takes 134 MB
_MANY = 40  # with more classes the matrix is only a picture, and tables show the worst classes
_CONFUSIONS = 10
_PIXELS = 250
_BESIDE = 6  # greatest number of candidates with a column each


class ClassificationSection(TaskSection):
    """Shows the confusion matrix, and figures of each class."""

    task = Classification.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; for a candidate without predicted classes it holds a note that
        says so.
        """
        judged = [(c, compute_class_metrics(c)) for c in candidates]
        if len(judged) == 1:
            return Section("Classification", _build_blocks(*judged[0], ""))
        folded = len(judged) > MOST_OPEN
        parts: list[Block] = [
            Section(
                c.name,
                _build_blocks(c, found, f"{c.number + 1}-"),
                folded,
                format_share(found.accuracy) if found else "",
            )
            for c, found in judged
        ]
        known = [(c, found) for c, found in judged if found is not None]
        alike = (
            have_same_samples(candidates) and len({found.class_names for _, found in known}) == 1
        )
        if len(known) > 1 and alike:
            parts.insert(0, _compare_sensitivities(known))
        return Section("Classification", tuple(parts))


@dataclass(frozen=True, eq=False)
class _ManyClasses:
    """The figures of more classes than a matrix can hold, named as those of
    :class:`ClassificationMetrics`.
    """

    class_names: Sequence[str]
    support: npt.NDArray[np.int64]
    precision: Floats
    sensitivity: Floats
    f1: Floats
    pairs: npt.NDArray[np.int64]
    """Samples of each true class that were taken for another one: true class, predicted class,
    number.
    """

    @classmethod
    def from_predictions(
        cls,
        names: Sequence[str],
        truth: npt.NDArray[np.integer],
        predicted: npt.NDArray[np.integer],
    ) -> _ManyClasses:
        """Count predictions of classes."""
        right = truth == predicted
        hits, support, told = (
            np.bincount(each, minlength=len(names)) for each in (truth[right], truth, predicted)
        )

        def compute_ratio(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> Floats:
            return np.asarray(
                np.divide(above, below, out=np.full(len(names), np.nan), where=below > 0)
            )

        wrong = np.stack([truth[~right], predicted[~right]], axis=1).astype(np.int64)
        pairs, counts = np.unique(wrong, axis=0, return_counts=True)
        f1 = compute_ratio(2 * hits, support + told)
        return cls(
            names,
            support,
            compute_ratio(hits, told),
            compute_ratio(hits, support),
            f1,
            np.column_stack([pairs, counts]),
        )


def _build_many_classes_blocks(candidate: Candidate) -> tuple[Block, ...] | None:
    """Return the figures of a candidate with too many classes for a matrix; ``None`` if it has
    fewer.
    """
    quality = candidate.quality
    if quality is None or quality.task.name != Classification.name:
        return None
    arrays = quality.evaluation.arrays
    names = quality.evaluation.class_names or _create_class_names(
        arrays["truth"], arrays["predicted"]
    )
    if len(names) <= _LARGEST_MATRIX:
        return None
    tiles = []
    for metric in quality.task.metrics:
        value = metric.compute(quality.evaluation)
        if np.isfinite(value):
            tiles.append(Tile(metric.title, format_share(value), metric.meaning))
    found = _ManyClasses.from_predictions(
        [clean(name, 80) or "unnamed" for name in names], arrays["truth"], arrays["predicted"]
    )
    said = f"There are {len(names):,} classes, of which a confusion matrix would be too large."
    return (
        Tiles(tuple(tiles)),
        Paragraph(said, "note"),
        _build_confusions_block(found, found.pairs),
        _build_class_table(found),
    )


def compute_class_metrics(candidate: Candidate) -> ClassificationMetrics | None:
    """Return the figures of all classes; ``None`` if no classes were predicted, or too many for
    a matrix.
    """
    quality = candidate.quality
    if quality is None or quality.task.name != Classification.name:
        return None
    arrays = quality.evaluation.arrays
    names = quality.evaluation.class_names or _create_class_names(
        arrays["truth"], arrays["predicted"]
    )
    if len(names) > _LARGEST_MATRIX:
        return None
    return ClassificationMetrics.from_predictions(
        arrays["truth"],
        arrays["predicted"],
        [clean(name, 80) or "unnamed" for name in names],
        arrays.get("rank"),
    )


def _create_class_names(*labels: npt.NDArray[np.integer]) -> Sequence[str]:
    greatest = max(int(array.max()) for array in labels)
    return [f"class {number}" for number in range(greatest + 1)]


def _build_blocks(
    candidate: Candidate, quality: ClassificationMetrics | None, prefix: str
) -> tuple[Block, ...]:
    if quality is None and (of_many := _build_many_classes_blocks(candidate)) is not None:
        return of_many
    if quality is None:
        evaluation = candidate.run.evaluation
        missing = "No predictions were stored in this run, so its quality cannot be told."
        if evaluation is not None and evaluation.task != Classification.name:
            missing = (
                f"This run was evaluated for the task {clean(evaluation.task, 40)!r}, which is no "
                f"classification."
            )
        return (Paragraph(missing, "note"),)
    blocks: list[Block] = [
        _build_tiles(candidate, quality),
        _plot_matrix(candidate, quality, prefix),
    ]
    if len(quality.class_names) <= _MANY:
        blocks.append(_plot_classes(candidate, quality, prefix))
    wrong = quality.confusion_matrix.copy()
    np.fill_diagonal(wrong, 0)
    places = np.nonzero(wrong)
    blocks += [
        _build_confusions_block(quality, np.column_stack([*places, wrong[places]])),
        _build_class_table(quality),
    ]
    if len(quality.class_names) <= _MANY:
        blocks.append(_build_matrix_table(quality))
    return tuple(blocks)


def _build_tiles(candidate: Candidate, quality: ClassificationMetrics) -> Tiles:
    low, high = quality.accuracy_interval
    right = f"{int(quality.confusion_matrix.trace()):,} of {quality.samples:,} samples"
    tiles = [
        Tile(
            "Accuracy",
            format_share(quality.accuracy),
            f"{right}; 95\u00a0% interval {format_share(low)} to {format_share(high)}",
        )
    ]
    if quality.top_k_accuracy is not None:
        tiles.append(
            Tile(
                f"Top-{quality.k} accuracy",
                format_share(quality.top_k_accuracy),
                "true class among the best",
            )
        )
    tiles += [
        Tile("Mean precision", format_share(quality.mean_precision), "over classes"),
        Tile("Mean sensitivity", format_share(quality.mean_sensitivity), "over classes"),
        Tile("G-mean", format_share(quality.g_mean), "of sensitivities"),
        Tile("F1", format_share(quality.macro_f1), "mean over classes"),
    ]
    if candidate.quality is not None and SCORES in candidate.quality.evaluation.arrays:
        for metric in SCORE_METRICS.values():
            value = metric.compute(candidate.quality.evaluation)
            if np.isfinite(value):
                tiles.append(Tile(metric.title, f"{value:.4f}", metric.meaning))
    return Tiles(tuple(tiles))


def _plot_matrix(candidate: Candidate, quality: ClassificationMetrics, prefix: str) -> Plot:
    matrix, classes = quality.confusion_matrix, len(quality.class_names)
    shares = matrix / np.maximum(quality.support, 1)[:, np.newaxis]
    return Plot(
        Heatmap(
            "predicted class",
            "true class",
            "share of the true class",
            _reduce_matrix(shares),
            matrix if classes <= _MANY else None,
            quality.class_names if classes <= _MANY else (),
            classes,
        ),
        f"{prefix}confusion-matrix",
        "Confusion matrix: rows are the true classes, columns the predicted ones",
        f"Confusion matrix of {candidate.name}: {int(matrix.trace()):,} of {quality.samples:,} "
        f"samples are on the "
        "diagonal, where the prediction is right.",
    )


def _reduce_matrix(shares: Floats) -> Floats:
    """Return a matrix of at most 250 by 250 entries, each of which is the maximum of the cells
    that it stands for.
    """
    classes = len(shares)
    if classes <= _PIXELS:
        return shares
    starts = np.arange(0, classes, -(-classes // _PIXELS))
    return np.maximum.reduceat(np.maximum.reduceat(shares, starts, axis=0), starts, axis=1)


def _plot_classes(candidate: Candidate, quality: ClassificationMetrics, prefix: str) -> Plot:
    values = (("sensitivity", 100 * quality.sensitivity), ("precision", 100 * quality.precision))
    worst = int(np.argmin(np.where(quality.support > 0, quality.sensitivity, np.inf)))
    return Plot(
        DotPlot("%", quality.class_names, values),
        f"{prefix}classes",
        "Sensitivity (how much of a class is found) and precision (how much of what is called so "
        "is so)",
        f"Sensitivity and precision of each class for {candidate.name}; the least sensitivity is "
        f"{format_share(float(quality.sensitivity[worst]))} for {quality.class_names[worst]}.",
    )


def _build_confusions_block(
    quality: ClassificationMetrics | _ManyClasses, pairs: npt.NDArray[np.int64]
) -> Block:
    """Return the most common confusions of ``pairs``, rows of a true class, another one, and the
    number of samples.
    """
    if not len(pairs):
        return Paragraph("No sample was taken for another class.")
    rows = []
    for truth, predicted, count in pairs[
        np.argsort(-pairs[:, 2], kind="stable")[:_CONFUSIONS]
    ].tolist():
        part = count / quality.support[truth]
        rows.append(
            (
                quality.class_names[truth],
                quality.class_names[predicted],
                Cell(f"{count:,}", float(count)),
                Cell(format_share(part, 1), float(part)),
            )
        )
    header = ("True class", "Predicted class", "Samples", "Of the true class")
    return Table(header, tuple(rows), sortable=True, caption="Most common confusions")


def _build_class_table(quality: ClassificationMetrics | _ManyClasses) -> Table:
    numbers, caption = np.arange(len(quality.class_names)), "Every class"
    if len(numbers) > _MANY:
        # A class without samples cannot be judged, so it is not among the worst.
        numbers = np.argsort(np.where(quality.support > 0, quality.f1, np.inf), kind="stable")[
            :_MANY
        ]
        caption = f"The {_MANY} classes with the least F1, of {len(quality.class_names):,}"
    rows = tuple(
        (
            Cell(quality.class_names[int(n)]),
            _format_share_cell(quality.precision[n]),
            _format_share_cell(quality.sensitivity[n]),
            _format_share_cell(quality.f1[n]),
            Cell(f"{quality.support[n]:,}", float(quality.support[n])),
        )
        for n in numbers
    )
    return Table(
        ("Class", "Precision", "Sensitivity", "F1", "Support"), rows, sortable=True, caption=caption
    )


def _format_share_cell(value: float) -> Cell:
    value = float(value)
    return Cell(format_share(value, 1), value if np.isfinite(value) else None)


def _build_matrix_table(quality: ClassificationMetrics) -> Table:
    rows: tuple[tuple[str | Cell, ...], ...] = tuple(
        (name, *(Cell(f"{cell:,}" if cell else "·", float(cell)) for cell in row))
        for name, row in zip(quality.class_names, quality.confusion_matrix, strict=True)
    )
    header = ("true \\ predicted", *quality.class_names)
    return Table(
        header,
        rows,
        caption="Confusion matrix in numbers: rows true, columns predicted",
        folded=True,
    )


def _compare_sensitivities(judged: Sequence[tuple[Candidate, ClassificationMetrics]]) -> Section:
    """Return the section that compares the sensitivities of the candidates, for the classes that
    differ most.
    """
    candidates, qualities = [c for c, _ in judged], [found for _, found in judged]
    table = np.array([quality.sensitivity for quality in qualities])
    there = np.flatnonzero(~np.isnan(table).any(axis=0))
    spread = np.ptp(table[:, there], axis=0)
    chosen = (
        there if len(there) <= _MANY else np.sort(there[np.argsort(-spread, kind="stable")[:_MANY]])
    )
    which = "every class" if len(chosen) == len(there) else f"the {_MANY} classes that differ most"
    if len(candidates) > _BESIDE:
        return Section(
            "Which classes differ",
            (_build_extremes_table(candidates, qualities[0].class_names, table, chosen, which),),
        )
    rows = tuple(
        (
            Cell(qualities[0].class_names[n]),
            *(_format_share_cell(value) for value in table[:, n]),
            Cell(f"{100 * np.ptp(table[:, n]):.1f}", float(np.ptp(table[:, n]))),
        )
        for n in chosen
    )
    caption = f"Sensitivity to {which}, by candidate; the spread is in percentage points"
    header = ("Class", *(c.name for c in candidates), "Spread")
    return Section("Which classes differ", (Table(header, rows, sortable=True, caption=caption),))


def _build_extremes_table(
    candidates: Sequence[Candidate],
    names: Sequence[str],
    table: Floats,
    chosen: npt.NDArray[np.intp],
    which: str,
) -> Table:
    """Return a table of the candidates with the least and the greatest sensitivity to each class.

    It is used if there are too many candidates for a column each.
    """
    rows = tuple(
        (
            Cell(names[n]),
            _format_share_cell(table[least, n]),
            candidates[least].name,
            _format_share_cell(table[most, n]),
            candidates[most].name,
            Cell(f"{100 * np.ptp(table[:, n]):.1f}", float(np.ptp(table[:, n]))),
        )
        for n in chosen
        for least, most in [(int(table[:, n].argmin()), int(table[:, n].argmax()))]
    )
    header = ("Class", "Least found", "by", "Most found", "by", "Spread")
    caption = (
        f"Sensitivity to {which}: the least and the greatest of {len(candidates):,} candidates; "
        f"the spread is in "
    )
    return Table(header, rows, sortable=True, caption=caption + "percentage points")


_NAMED = 3


class ClassificationPictures(TaskPictures):
    """Shows the most likely classes."""

    task = Classification.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture as it is, and the three most likely classes with their scores."""
        scores = get_first_sample(get_tensor(predictions, "scores")).ravel()
        order = np.argsort(-scores, kind="stable")[:_NAMED]
        return picture, ", ".join(
            f"{get_class_label(int(n), class_names)} {scores[n]:.3g}" for n in order
        )

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the greatest difference of a score, and 1 more if the most likely classes
        differ.
        """
        first, second = (
            get_first_sample(get_tensor(each, "scores")).ravel() for each in (one, other)
        )
        if len(first) != len(second):
            return float("inf")
        changed = int(np.argmax(first)) != int(np.argmax(second))
        return changed + float(np.nan_to_num(np.abs(first - second)).max(initial=0.0))
