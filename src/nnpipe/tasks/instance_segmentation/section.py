"""The section of reports about masks of single things: the metrics, and the figures of each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.report.document import Cell, Section, Table
from nnpipe.report.formatting import clean, share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import TaskSection, judged_section
from nnpipe.tasks.average_precision import PrecisionCurves
from nnpipe.tasks.instance_segmentation.metrics import matches_of, missed_and_wanted
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation

_MANY = 40  # classes that a table shows
_WORST = 10  # pictures


class InstanceSegmentationSection(TaskSection):
    """Shows the metrics with their intervals, how well each class is found, and in which pictures most is missed."""

    task = InstanceSegmentation.name

    def section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged masks have a row of dashes only."""
        return judged_section(InstanceSegmentation(), candidates, lambda _, found, __: (_classes(found), _worst(found)))


def _classes(found: Evaluation) -> Table:
    """Return the table of the classes in the truth; of many, those with the least average precision."""
    matches, rows = matches_of(found), []
    wanted = matches.wanted[:, 0]
    for label in np.unique(matches.true_label[wanted]).tolist():
        own, true = matches.label == label, wanted & (matches.true_label == label)
        right, number = matches.right[own][:, :1, 0], int(true.sum())
        curves = PrecisionCurves.of(
            matches.picture[own], np.zeros(len(right), np.int64), right, matches.ignored[own][:, :1, 0],
            matches.true_picture[true], np.zeros(number, np.int64), 1,
        )  # fmt: skip
        precision, recall = curves.average_precision(np.ones(len(found))), float(right.sum()) / number
        name = clean(found.class_names[label], 80) if label < len(found.class_names) else f"class {label}"
        cells = (Cell(share(precision, 1), precision), Cell(share(recall, 1), recall))
        given = int(own.sum())
        rows.append((name, *cells, Cell(f"{number:,}", float(number)), Cell(f"{given:,}", float(given)), precision))
    rows.sort(key=lambda row: row[-1])
    few = f"the {_MANY} with the least AP50 of {len(rows):,} classes" if len(rows) > _MANY else "every class"
    header = ("Class", "AP50", "Found", "True masks", "Predicted masks")
    caption = f"Masks that overlap by half are right; {few}"
    return Table(header, tuple(row[:-1] for row in rows[:_MANY]), sortable=True, caption=caption)


def _worst(found: Evaluation) -> Table:
    """Return the table of the pictures in which most things are missed."""
    missed, true = missed_and_wanted(found)
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
        ("Picture", "Missed", "True masks"), rows, sortable=True, caption="The pictures with most missed masks"
    )
