"""The section of reports about detectors, and boxes drawn into pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch
from nnpipe.report.charts import BoxedFrame, BoxGroup, Line, Lines
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import clean, format_share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import (
    COLOURS,
    Picture,
    TaskPictures,
    TaskSection,
    build_metrics_section,
    get_class_label,
    get_first_sample,
    get_sample_picture,
)
from nnpipe.tasks.average_precision import RECALLS
from nnpipe.tasks.detection.matching import compute_box_overlaps
from nnpipe.tasks.detection.metrics import (
    ClassCurve,
    compute_class_curves,
    count_mistakes,
    find_best_score,
)
from nnpipe.tasks.detection.task import Detection
from nnpipe.tasks.frames import convert_boxes_to_pixels

_DRAWN_CLASSES = 6  # that differ most from the mean, each with a curve
_LISTED_CLASSES = 40
_PICTURES = 6
_MOST_BOXES = 100  # drawn in a picture, the most certain ones
_BESIDE = 4  # candidates of which the same pictures are drawn


class DetectionSection(TaskSection):
    """Shows the metrics, precision against recall, the classes, and the pictures with most
    mistakes.
    """

    task = Detection.name
    draws_samples = True

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; a candidate without judged boxes is in the table of metrics only."""
        first = build_metrics_section(Detection(), candidates)
        judged = [
            (c, c.quality.evaluation)
            for c in candidates
            if c.quality is not None and c.quality.task.name == Detection.name
        ]
        blocks: list[Block] = [*first.blocks, Paragraph(_describe_decoding(judged))]
        curves = {c.number: compute_class_curves(found) for c, found in judged}
        blocks += _plot_curves(judged, curves)
        blocks += _build_class_tables(judged, curves)
        pictures = _plot_pictures(judged)
        if pictures:
            blocks.append(Section("Pictures with most mistakes", pictures))
        return Section(first.title, tuple(blocks))


def _describe_decoding(judged: Sequence[tuple[Candidate, Evaluation]]) -> str:
    """Return sentences that say how boxes came from outputs, and where overlapping ones were
    dropped.
    """
    told: dict[str, list[str]] = {}
    for candidate, found in judged:
        told.setdefault(_describe_decoder(found.settings.get("decoder")), []).append(candidate.name)
    if len(told) == 1:
        return f"{next(iter(told))}."
    return " ".join(f"{', '.join(names)}: {how}." for how, names in told.items())


def _describe_decoder(decoder: Any) -> str:
    if not isinstance(decoder, Mapping) or not isinstance(
        arguments := decoder.get("arguments"), Mapping
    ):
        return (
            "It is not recorded how boxes came from the outputs, and whether overlapping ones were "
            "dropped"
        )
    name = clean(str(decoder.get("class", "")).rpartition(".")[2], 60)
    least = clean(str(arguments.get("score_threshold")), 20)
    if arguments.get("suppression") == "inside":
        where = "overlapping boxes were dropped inside the model"
    else:
        where = (
            "overlapping boxes were dropped outside the model, whose time does not include it, "
            "above an overlap of "
            f"{clean(str(arguments.get('overlap')), 20)}"
        )
    return f"Boxes with scores above {least} were read by {name}; {where}"


def _plot_curves(
    judged: Sequence[tuple[Candidate, Evaluation]], curves: Mapping[int, Sequence[ClassCurve]]
) -> list[Plot]:
    known = [(c, found, curves[c.number]) for c, found in judged if curves[c.number]]
    if not known:
        return []
    lines = tuple(Line(c.name, RECALLS, _compute_mean_precision(own)) for c, _, own in known)
    told = ", ".join(
        f"{c.name} {format_share(float(_compute_mean_precision(own).mean()))}"
        for c, _, own in known
    )
    plots = [
        Plot(
            Lines("recall", "precision", lines, top=1.0),
            "precision-recall",
            "Precision against recall at an overlap of 0.5, the mean over the classes",
            f"Curves of precision against recall; the means of the precision: {told}.",
        )
    ]
    for c, found, own in known[:_BESIDE]:
        if len(own) < 2:
            continue
        ranked = sorted(own, key=lambda curve: curve.average_precision)
        shown = (
            ranked
            if len(ranked) <= _DRAWN_CLASSES
            else [*ranked[: _DRAWN_CLASSES // 2], *ranked[-3:]]
        )
        which = (
            "" if len(shown) == len(own) else f", the {len(shown) - 3} worst and the 3 best classes"
        )
        plots.append(
            Plot(
                Lines(
                    "recall",
                    "precision",
                    tuple(
                        Line(_format_class_name(found, curve.label), RECALLS, curve.precision)
                        for curve in shown
                    ),
                    top=1.0,
                ),
                f"{c.number + 1}-precision-recall-classes",
                f"{c.name}: precision against recall of classes at an overlap of 0.5{which}",
                f"Average precision at an overlap of 0.5 of {c.name}: "
                + ", ".join(
                    f"{_format_class_name(found, each.label)} "
                    f"{format_share(each.average_precision)}"
                    for each in shown
                )
                + ".",
            )
        )
    return plots


def _compute_mean_precision(curves: Sequence[ClassCurve]) -> Any:
    return np.mean([curve.precision for curve in curves], axis=0)


def _format_class_name(found: Evaluation, label: int) -> str:
    names = found.class_names
    return clean(names[label], 60) or "unnamed" if label < len(names) else f"class {label}"


def _build_class_tables(
    judged: Sequence[tuple[Candidate, Evaluation]], curves: Mapping[int, Sequence[ClassCurve]]
) -> list[Block]:
    tables: list[Block] = []
    for c, found in judged:
        own = sorted(curves[c.number], key=lambda curve: curve.average_precision)
        if not own:
            continue
        which = (
            "Every class"
            if len(own) <= _LISTED_CLASSES
            else f"The {_LISTED_CLASSES} worst of {len(own):,} classes"
        )
        rows = tuple(
            (
                Cell(_format_class_name(found, each.label)),
                Cell(format_share(each.average_precision, 1), each.average_precision),
                Cell(format_share(each.recall, 1), each.recall),
                Cell(f"{each.wanted:,}", float(each.wanted)),
                Cell(f"{each.given:,}", float(each.given)),
            )
            for each in own[:_LISTED_CLASSES]
        )
        caption = f"{which}, at an overlap of 0.5" + (f": {c.name}" if len(judged) > 1 else "")
        header = ("Class", "AP50", "Found", "True boxes", "Predicted boxes")
        tables.append(Table(header, rows, sortable=True, caption=caption, folded=len(judged) > 1))
    return tables


def _plot_pictures(judged: Sequence[tuple[Candidate, Evaluation]]) -> tuple[Block, ...]:
    """Return drawings of the pictures with most mistakes; of several candidates, where these
    differ most.
    """
    if not judged:
        return ()
    task, first = Detection(), judged[0][1]
    shown = [(c, found) for c, found in judged if task.same_samples(first, found)][:_BESIDE]
    least = [find_best_score(found) for _, found in shown]
    wrong = np.array(
        [count_mistakes(found, score) for (_, found), score in zip(shown, least, strict=True)]
    )
    spread = np.ptp(wrong, axis=0)
    order = np.lexsort((-wrong.max(axis=0), -spread))[:_PICTURES]
    chosen = [int(n) for n in order if wrong[:, n].max() > 0]
    if not chosen:
        return (Paragraph("No box is missing or wrong at an overlap of 0.5."),)
    scores = ", ".join(f"{c.name}: {score:.3g}" for (c, _), score in zip(shown, least, strict=True))
    others = (
        "those in whose number of mistakes the candidates differ most"
        if len(shown) > 1
        else "those with most of them"
    )
    told = (
        f"Boxes are missing or wrong at an overlap of 0.5. Of {len(first):,} pictures, {others} "
        f"are shown, with boxes of the scores from which F1 is greatest ({scores}); broken lines "
        f"are the truth."
    )
    plots = [
        _plot_picture(c, found, number, score, int(wrong[place, number]))
        for number in chosen
        for place, ((c, found), score) in enumerate(zip(shown, least, strict=True))
    ]
    return (Paragraph(told), *plots)


def _plot_picture(
    candidate: Candidate, found: Evaluation, number: int, score: float, wrong: int
) -> Plot:
    truth, labels = found.ragged["truth_boxes"][number], found.ragged["truth_class"][number]
    boxes, given = (found.ragged[name][number] for name in ("boxes", "class"))
    scores = found.ragged["scores"][number].astype(np.float64)
    sure = np.flatnonzero((scores >= score) & np.isfinite(boxes).all(axis=1))
    sure = sure[np.argsort(-scores[sure], kind="stable")][:_MOST_BOXES]
    groups = (
        BoxGroup(
            "truth",
            truth[:_MOST_BOXES].astype(np.float64),
            tuple(_format_class_name(found, int(label)) for label in labels[:_MOST_BOXES]),
            -1,
        ),
        BoxGroup(
            candidate.name,
            boxes[sure].astype(np.float64),
            tuple(
                f"{_format_class_name(found, int(given[n]))} {float(scores[n]):.2f}" for n in sure
            ),
            candidate.number,
        ),
    )
    height, width = _get_picture_size(found, number, [group.boxes for group in groups])
    what = f"Picture {number + 1:,}, {candidate.name}: {wrong} mistake{'s' * (wrong != 1)}"
    return Plot(
        BoxedFrame(width, height, groups, get_sample_picture(found, number)),
        f"{candidate.number + 1}-picture-{number + 1}",
        what,
        f"{what}; {len(truth)} true boxes and {len(sure)} predicted ones.",
    )


def _get_picture_size(found: Evaluation, number: int, boxes: Sequence[Any]) -> tuple[float, float]:
    """Return height and width of a picture; older results do not hold them, so that all boxes
    are in them.
    """
    if "size" in found.arrays:
        height, width = (float(side) for side in found.arrays["size"][number])
        if height > 0 and width > 0:
            return height, width
    corners = [group[:, :2] + group[:, 2:] for group in boxes if len(group)]
    ends = np.concatenate(corners).max(axis=0) if corners else np.ones(2)
    width, height = np.clip(np.nan_to_num(ends, nan=1.0, posinf=1e6), 1.0, 1e6).tolist()
    return height, width


_SURE = 0.25  # least score of boxes that are drawn
_MOST = 100


class DetectionPictures(TaskPictures):
    """Draws the boxes with scores from 0.25 on, with their classes."""

    task = Detection.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture with boxes, and how many there are."""
        from PIL import Image, ImageDraw

        image = Image.fromarray(picture)
        pen, width = ImageDraw.Draw(image), max(2, picture.shape[1] // 300)
        boxes, labels, scores = _select_confident(predictions, picture.shape[:2])
        for box, label, score in zip(boxes, labels.tolist(), scores.tolist(), strict=True):
            ends = np.clip(
                [*box[:2], *(box[:2] + box[2:])], 0, [*picture.shape[1::-1]] * 2
            ).tolist()
            colour = COLOURS[int(label) % len(COLOURS)]
            pen.rectangle(ends, outline=colour, width=width)
            text = f"{get_class_label(int(label), class_names)} {score:.2f}"
            place = (ends[0] + width, max(ends[1] - 11, 0))
            pen.rectangle(pen.textbbox(place, text), fill=colour)
            pen.text(place, text, fill=(255, 255, 255))
        return np.asarray(
            image
        ), f"{len(boxes)} box{'es' * (len(boxes) != 1)} with scores from {_SURE} on"

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the number of boxes of either model that overlap none of the other's, of their
        class, by half.
        """
        (first, labels, _), (second, others, _) = (
            _select_confident(each, picture.shape[:2]) for each in (one, other)
        )
        if not len(first) or not len(second):
            return float(len(first) + len(second))
        rows, columns = (grid.ravel() for grid in np.indices((len(first), len(second))))
        alike = compute_box_overlaps(first[rows], second[columns], np.zeros(len(rows), bool)) >= 0.5
        pairs = (alike & (labels[rows] == others[columns])).reshape(len(first), len(second))
        return float((~pairs.any(axis=1)).sum() + (~pairs.any(axis=0)).sum())


def _select_confident(
    predictions: Batch, size: tuple[int, ...]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return boxes in pixels, with classes and scores, the most certain first."""
    if missing := [name for name in ("boxes", "class", "scores") if name not in predictions]:
        raise SpecMismatch(
            f"a detector's predictions hold {', '.join(missing)}; name its decoder with --decoder"
        )
    boxes = predictions["boxes"]
    if "frame" in predictions:
        boxes = convert_boxes_to_pixels(boxes, predictions["frame"], np.array([size], np.int64))
    found, scores, labels = (
        get_first_sample(boxes),
        get_first_sample(predictions["scores"]),
        predictions["class"][0],
    )
    order = np.argsort(-scores, kind="stable")
    usable = (
        (labels >= 0)
        & (scores >= _SURE)
        & np.isfinite(found).all(axis=1)
        & (found[:, 2:] > 0).all(axis=1)
    )
    order = order[usable[order]][:_MOST]
    return found[order], labels[order], scores[order]
