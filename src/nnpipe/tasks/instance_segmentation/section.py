"""The section of reports about masks of single things, and the masks drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch
from nnpipe.report.document import Cell, Section, Table
from nnpipe.report.formatting import clean, format_share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import (
    COLOURS,
    Picture,
    TaskPictures,
    TaskSection,
    blend_colours,
    build_evaluation_section,
    get_class_label,
    get_first_sample,
)
from nnpipe.tasks.average_precision import PrecisionCurves
from nnpipe.tasks.instance_segmentation.metrics import count_missed_masks, match_masks
from nnpipe.tasks.instance_segmentation.run_lengths import (
    Integers,
    compute_run_areas,
    compute_run_intersections,
    decode_mask_runs,
    extract_picture_runs,
)
from nnpipe.tasks.instance_segmentation.task import (
    InstanceSegmentation,
    check_predictions,
    check_runs,
)

_MANY = 40  # classes that a table shows
_WORST = 10  # pictures


class InstanceSegmentationSection(TaskSection):
    """Shows the metrics with their intervals, how well each class is found, and in which
    pictures most is missed.
    """

    task = InstanceSegmentation.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged masks have a row of dashes only."""
        return build_evaluation_section(
            InstanceSegmentation(),
            candidates,
            lambda _, found, __: (_build_class_table(found), _build_worst_table(found)),
        )


def _build_class_table(found: Evaluation) -> Table:
    """Return the table of the classes in the truth; of many, those with the least average
    precision.
    """
    matches, rows = match_masks(found), []
    wanted = matches.wanted[:, 0]
    for label in np.unique(matches.true_label[wanted]).tolist():
        own, true = matches.label == label, wanted & (matches.true_label == label)
        right, number = matches.right[own][:, :1, 0], int(true.sum())
        curves = PrecisionCurves.from_matches(
            matches.picture[own],
            np.zeros(len(right), np.int64),
            right,
            matches.ignored[own][:, :1, 0],
            matches.true_picture[true],
            np.zeros(number, np.int64),
            1,
        )
        precision, recall = (
            curves.compute_average_precision(np.ones(len(found))),
            float(right.sum()) / number,
        )
        name = (
            clean(found.class_names[label], 80)
            if label < len(found.class_names)
            else f"class {label}"
        )
        cells = (Cell(format_share(precision, 1), precision), Cell(format_share(recall, 1), recall))
        given = int(own.sum())
        rows.append(
            (
                name,
                *cells,
                Cell(f"{number:,}", float(number)),
                Cell(f"{given:,}", float(given)),
                precision,
            )
        )
    rows.sort(key=lambda row: row[-1])
    few = (
        f"the {_MANY} with the least AP50 of {len(rows):,} classes"
        if len(rows) > _MANY
        else "every class"
    )
    header = ("Class", "AP50", "Found", "True masks", "Predicted masks")
    caption = f"Masks that overlap by half are right; {few}"
    return Table(header, tuple(row[:-1] for row in rows[:_MANY]), sortable=True, caption=caption)


def _build_worst_table(found: Evaluation) -> Table:
    """Return the table of the pictures in which most things are missed."""
    missed, true = count_missed_masks(found)
    order = np.lexsort((true - missed, -missed))[:_WORST]
    rows = tuple(
        (
            Cell(f"{n + 1:,}", float(n + 1)),
            Cell(f"{int(missed[n]):,}", float(missed[n])),
            Cell(f"{int(true[n]):,}", float(true[n])),
        )
        for n in order.tolist()
        if missed[n] > 0
    )
    return Table(
        ("Picture", "Missed", "True masks"),
        rows,
        sortable=True,
        caption="The pictures with most missed masks",
    )


_SURE = 0.25  # least score of things that are drawn
_MOST = 100


class InstancePictures(TaskPictures):
    """Colours the masks of the things with scores from 0.25 on, each in another colour."""

    task = InstanceSegmentation.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture with coloured masks and their classes, and how many things there
        are.
        """
        from PIL import Image, ImageDraw

        found, labels, scores = _select_confident(predictions, picture)
        places = []
        for number in reversed(range(len(found))):  # the most certain ones on top
            mask = decode_mask_runs(found[number], picture.shape)
            picture = blend_colours(picture, mask, COLOURS[number % len(COLOURS)])
            places.append((int(mask.any(axis=0).argmax()), int(mask.any(axis=1).argmax())))
        image = Image.fromarray(picture)
        pen = ImageDraw.Draw(image)
        for number, place in enumerate(reversed(places)):
            text = f"{get_class_label(int(labels[number]), class_names)} {scores[number]:.2f}"
            pen.rectangle(pen.textbbox(place, text), fill=COLOURS[number % len(COLOURS)])
            pen.text(place, text, fill=(255, 255, 255))
        return np.asarray(
            image
        ), f"{len(found)} thing{'s' * (len(found) != 1)} with scores from {_SURE} on"

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the number of things of either model that overlap none of the other's, of their
        class, by half.
        """
        (first, labels, _), (second, others, _) = (
            _select_confident(each, picture) for each in (one, other)
        )
        inside = compute_run_intersections(first, second)
        either = compute_run_areas(first)[:, None] + compute_run_areas(second)[None] - inside
        pairs = (2 * inside >= either) & (labels[:, None] == others[None])
        return float((~pairs.any(axis=1)).sum() + (~pairs.any(axis=0)).sum())


def _select_confident(
    predictions: Batch, picture: Picture
) -> tuple[Integers, npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return runs in the picture, classes and scores of the certain things, the most certain
    first.
    """
    check_predictions(predictions, 1)
    labels, scores = predictions["class"][0], get_first_sample(predictions["scores"])
    order = np.argsort(-scores, kind="stable")
    order = order[((labels >= 0) & (scores >= _SURE))[order]][:_MOST]
    wanted = np.zeros(len(labels), bool)
    wanted[order] = True
    size = np.array(picture.shape[:2])
    runs = extract_picture_runs(predictions, 0, size, wanted)
    check_runs(runs, "predicted", size)
    runs = runs[np.argsort(np.argsort(order))] if len(order) else runs
    there = compute_run_areas(runs) > 0
    return runs[there], labels[order][there], scores[order][there]
