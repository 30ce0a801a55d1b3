"""The section of reports about poses: the metrics, the figures of each key point, and the worst pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.report.document import Block, Cell, Section, Table
from nnpipe.report.formatting import clean, digits, share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import TaskSection, metrics_section
from nnpipe.tasks.pose.metrics import greatest_distances
from nnpipe.tasks.pose.pairing import distances, lengths, poses_of, visible_points
from nnpipe.tasks.pose.task import Pose

_MANY = 40  # key points that a table shows
_WORST = 10  # pictures


class PoseSection(TaskSection):
    """Shows the metrics with their intervals, how far each key point is off, and in which pictures most."""

    task = Pose.name

    def section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged key points have a row of dashes only."""
        whole = metrics_section(Pose(), candidates)
        blocks: list[Block] = list(whole.blocks)
        judged = [(c, c.quality.evaluation) for c in candidates if c.quality and c.quality.task.name == self.task]
        for candidate, found in judged:
            parts: tuple[Block, ...] = (_points(found), _worst(found))
            blocks += [Section(candidate.name, parts, folded=True)] if len(judged) > 1 else parts
        return Section(whole.title, tuple(blocks))


def _points(found: Evaluation) -> Table:
    """Return the table of key points; of many, those that are furthest off."""
    seen, apart = visible_points(found), distances(found, of_sides=True)
    paired = seen & np.isfinite(apart)
    reach = found.settings["pck_fraction"] * lengths(found)[:, None]
    near = seen & (distances(found, of_sides=False) <= reach)
    with np.errstate(invalid="ignore"):
        mean = np.where(paired, apart, 0).sum(axis=0) / paired.sum(axis=0)
        right = near.sum(axis=0) / (seen & np.isfinite(reach)).sum(axis=0)
    chosen = np.arange(len(mean))
    if len(chosen) > _MANY:
        chosen = np.sort(np.argsort(-np.nan_to_num(mean), kind="stable")[:_MANY])
    rows = tuple(
        (
            clean(found.class_names[n], 80) if n < len(found.class_names) else f"point {n}",
            Cell(digits(float(mean[n])) if np.isfinite(mean[n]) else "–", float(np.nan_to_num(mean[n]))),
            Cell(share(float(right[n]), 1), float(np.nan_to_num(right[n]))),
            Cell(f"{int(seen[:, n].sum()):,}", float(seen[:, n].sum())),
        )
        for n in chosen
    )
    header = ("Key point", "Mean distance", "Right (PCK)", "Visible")
    few = f"; the {_MANY} that are furthest off, of {len(mean):,}" if len(mean) > _MANY else ""
    caption = f"Every key point; distances are in shares of the picture's width and height{few}"
    return Table(header, rows, sortable=True, caption=caption)


def _worst(found: Evaluation) -> Table:
    """Return the table of the pictures whose persons are least similar to the predicted poses."""
    poses = poses_of(found)
    persons = np.bincount(poses.true_picture, poses.counted, len(found))
    similar = np.bincount(poses.true_picture, poses.similarity * poses.counted, len(found))
    there = np.flatnonzero(persons > 0)
    mean, furthest = similar[there] / persons[there], greatest_distances(found)
    rows = tuple(
        (
            Cell(f"{there[n]:,}", float(there[n])),
            Cell(f"{int(persons[there[n]]):,}", float(persons[there[n]])),
            Cell(share(float(mean[n]), 1), float(mean[n])),
            Cell(digits(float(furthest[there[n]])) if np.isfinite(furthest[there[n]]) else "–"),
        )
        for n in np.argsort(mean, kind="stable")[:_WORST]
    )
    header = ("Sample", "Persons", "Mean OKS", "Greatest distance")
    return Table(header, rows, sortable=True, caption="The pictures with the least mean OKS")
