"""The section of reports about poses: the metrics, the figures of each key point, and the worst pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats
from nnpipe.report.charts import BoxedFrame, BoxGroup
from nnpipe.report.document import Cell, Plot, Section, Table
from nnpipe.report.formatting import clean, digits, share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sample_pictures import picture_of
from nnpipe.report.task_section import TaskSection, judged_section
from nnpipe.tasks.pose.limbs import limbs
from nnpipe.tasks.pose.metrics import greatest_distances, mean_similarities
from nnpipe.tasks.pose.pairing import distances, lengths, poses_of, visible_points
from nnpipe.tasks.pose.task import Pose

_MANY = 40  # key points that a table shows
_WORST = 10  # pictures
_DRAWN, _DRAWN_OF_SEVERAL = 6, 3
_MOST_PERSONS = 20  # drawn in a picture


class PoseSection(TaskSection):
    """Shows the metrics with their intervals, how far each key point is off, and in which pictures most."""

    task = Pose.name
    draws_samples = True

    def section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged key points have a row of dashes only."""
        return judged_section(
            Pose(), candidates,
            lambda candidate, found, judged: (_points(found), _worst(found), *_pictures(candidate, found, judged)),
        )  # fmt: skip


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
            _number(float(mean[n])),
            Cell(share(float(right[n]), 1), float(np.nan_to_num(right[n]))),
            Cell(f"{int(seen[:, n].sum()):,}", float(seen[:, n].sum())),
        )
        for n in chosen
    )
    header = ("Key point", "Mean distance", "Right (PCK)", "Visible")
    few = f"; the {_MANY} that are furthest off, of {len(mean):,}" if len(mean) > _MANY else ""
    caption = f"Every key point; distances are in shares of the picture's width and height{few}"
    return Table(header, rows, sortable=True, caption=caption)


def _number(value: float) -> Cell:
    return Cell(digits(value), value if np.isfinite(value) else 0.0)


def _worst(found: Evaluation) -> Table:
    """Return the table of the pictures whose persons are least similar to the predicted poses."""
    persons = np.bincount(poses_of(found).true_picture, poses_of(found).counted, len(found))
    mean, furthest = mean_similarities(found), greatest_distances(found)
    rows = tuple(
        (
            Cell(f"{n + 1:,}", float(n + 1)),
            Cell(f"{int(persons[n]):,}", float(persons[n])),
            Cell(share(float(mean[n]), 1), float(mean[n])),
            _number(float(furthest[n])),
        )
        for n in _worst_first(mean)[:_WORST]
    )
    header = ("Sample", "Persons", "Mean OKS", "Greatest distance")
    return Table(header, rows, sortable=True, caption="The pictures with the least mean OKS")


def _worst_first(mean: Floats) -> npt.NDArray[np.int64]:
    """Return the pictures with persons, those with the least mean OKS first."""
    order: npt.NDArray[np.int64] = np.argsort(mean, kind="stable")  # NaN is last
    return order[: int(np.count_nonzero(~np.isnan(mean)))]


def _pictures(candidate: Candidate, found: Evaluation, candidates: int) -> tuple[Plot, ...]:
    """Return drawings of the pictures with the least mean OKS: true persons, and the poses paired with them."""
    mean = mean_similarities(found)
    chosen = _worst_first(mean)[: _DRAWN if candidates == 1 else _DRAWN_OF_SEVERAL]
    return tuple(_picture(candidate, found, int(n), float(mean[n])) for n in chosen)


def _picture(candidate: Candidate, found: Evaluation, number: int, similarity: float) -> Plot:
    poses = poses_of(found)
    own = np.flatnonzero((poses.true_picture == number) & poses.counted)[:_MOST_PERSONS]
    paired = own[poses.pair[own] >= 0]
    truth = found.ragged["truth_points"].values.astype(np.float64)
    guessed = found.ragged["points"].values.astype(np.float64)
    none = np.zeros((0, 4))
    height, width = (float(each) for each in found.arrays["size"][number])
    seen = truth[..., 2] > 0
    matched = guessed[poses.pair[paired]]
    if any(limbs(known) for known in seen[own]):
        between: tuple[Floats, ...] = ()
        told = "broken lines are the truth"
    else:
        between = _between(truth[paired], matched, seen[paired])
        told = "a line leads from each true one, in black, to the predicted one"
    groups = (
        BoxGroup("truth", none, (), -1, _limbs(truth[own], seen[own])),
        BoxGroup(candidate.name, none, (), candidate.number, (*_limbs(matched, seen[paired]), *between)),
    )
    return Plot(
        BoxedFrame(max(width, 1.0), max(height, 1.0), groups, picture_of(found, number)),
        f"{candidate.number + 1}-pose-{number + 1}",
        f"{candidate.name}, sample {number + 1:,}: key points that are visible; {told}",
        f"Key points of {candidate.name} in sample {number + 1:,}: the mean OKS of its persons is {share(similarity)}.",
    )


def _between(truth: Floats, guessed: Floats, seen: npt.NDArray[np.bool_]) -> tuple[Floats, ...]:
    """Return a line from each visible key point to the predicted one, to show which belong together."""
    return tuple(np.stack([truth[seen][:, :2], guessed[seen][:, :2]], axis=1))


def _limbs(points: Floats, seen: npt.NDArray[np.bool_]) -> tuple[Floats, ...]:
    """Return the lines between key points of persons, COCO's limbs where there are 17 points, and all single points."""
    lines: list[Floats] = []
    for person, known in zip(points[..., :2], seen, strict=True):
        lines += [person[list(pair)] for pair in limbs(known)]
        lines += [person[place : place + 1] for place in np.flatnonzero(known)]
    return tuple(lines)
