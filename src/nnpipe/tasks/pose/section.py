"""The section of reports about poses, and key points drawn into pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats
from nnpipe.core.tensors import Batch
from nnpipe.report.charts import BoxedFrame, BoxGroup
from nnpipe.report.document import Cell, Plot, Section, Table
from nnpipe.report.formatting import clean, format_number, format_share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import (
    COLOURS,
    Picture,
    TaskPictures,
    TaskSection,
    build_evaluation_section,
    get_first_sample,
    get_sample_picture,
)
from nnpipe.tasks.frames import convert_points_to_pixels
from nnpipe.tasks.pose.metrics import compute_greatest_distances, compute_mean_similarities
from nnpipe.tasks.pose.pairing import (
    compute_point_distances,
    compute_reference_lengths,
    find_visible_points,
    match_poses,
)
from nnpipe.tasks.pose.task import Pose

_COCO_POINTS = 17
_COCO_LIMBS = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12), (11, 12), (11, 13),
    (13, 15), (12, 14), (14, 16),
)  # fmt: skip


def list_limbs(known: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the pairs of key points that are both known and make a limb: COCO's of 17 points, of
    others none.

    Parameters
    ----------
    known
        Whether each key point of a person is known, ``(points,)``.
    """
    if len(known) != _COCO_POINTS:
        return []
    return [(one, other) for one, other in _COCO_LIMBS if known[one] and known[other]]


_MANY = 40  # key points that a table shows
_WORST = 10  # pictures
_DRAWN, _DRAWN_OF_SEVERAL = 6, 3
_MOST_PERSONS = 20  # drawn in a picture


class PoseSection(TaskSection):
    """Shows the metrics with their intervals, how far each key point is off, and in which
    pictures most.
    """

    task = Pose.name
    draws_samples = True

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged key points have a row of dashes only."""
        return build_evaluation_section(
            Pose(),
            candidates,
            lambda candidate, found, judged: (
                _build_points_table(found),
                _build_worst_table(found),
                *_plot_pictures(candidate, found, judged),
            ),
        )


def _build_points_table(found: Evaluation) -> Table:
    """Return the table of key points; of many, those that are furthest off."""
    seen, apart = find_visible_points(found), compute_point_distances(found, of_sides=True)
    paired = seen & np.isfinite(apart)
    reach = found.settings["pck_fraction"] * compute_reference_lengths(found)[:, None]
    near = seen & (compute_point_distances(found, of_sides=False) <= reach)
    with np.errstate(invalid="ignore"):
        mean = np.where(paired, apart, 0).sum(axis=0) / paired.sum(axis=0)
        right = near.sum(axis=0) / (seen & np.isfinite(reach)).sum(axis=0)
    chosen = np.arange(len(mean))
    if len(chosen) > _MANY:
        chosen = np.sort(np.argsort(-np.nan_to_num(mean), kind="stable")[:_MANY])
    rows = tuple(
        (
            clean(found.class_names[n], 80) if n < len(found.class_names) else f"point {n}",
            _format_number_cell(float(mean[n])),
            Cell(format_share(float(right[n]), 1), float(np.nan_to_num(right[n]))),
            Cell(f"{int(seen[:, n].sum()):,}", float(seen[:, n].sum())),
        )
        for n in chosen
    )
    header = ("Key point", "Mean distance", "Right (PCK)", "Visible")
    few = f"; the {_MANY} that are furthest off, of {len(mean):,}" if len(mean) > _MANY else ""
    caption = f"Every key point; distances are in shares of the picture's width and height{few}"
    return Table(header, rows, sortable=True, caption=caption)


def _format_number_cell(value: float) -> Cell:
    return Cell(format_number(value), value if np.isfinite(value) else 0.0)


def _build_worst_table(found: Evaluation) -> Table:
    """Return the table of the pictures whose persons are least similar to the predicted poses."""
    persons = np.bincount(match_poses(found).true_picture, match_poses(found).counted, len(found))
    mean, furthest = compute_mean_similarities(found), compute_greatest_distances(found)
    rows = tuple(
        (
            Cell(f"{n + 1:,}", float(n + 1)),
            Cell(f"{int(persons[n]):,}", float(persons[n])),
            Cell(format_share(float(mean[n]), 1), float(mean[n])),
            _format_number_cell(float(furthest[n])),
        )
        for n in _sort_worst_first(mean)[:_WORST]
    )
    header = ("Sample", "Persons", "Mean OKS", "Greatest distance")
    return Table(header, rows, sortable=True, caption="The pictures with the least mean OKS")


def _sort_worst_first(mean: Floats) -> npt.NDArray[np.int64]:
    """Return the pictures with persons, those with the least mean OKS first."""
    order: npt.NDArray[np.int64] = np.argsort(mean, kind="stable")  # NaN is last
    return order[: int(np.count_nonzero(~np.isnan(mean)))]


def _plot_pictures(candidate: Candidate, found: Evaluation, candidates: int) -> tuple[Plot, ...]:
    """Return drawings of the pictures with the least mean OKS: true persons, and the poses
    paired with them.
    """
    mean = compute_mean_similarities(found)
    chosen = _sort_worst_first(mean)[: _DRAWN if candidates == 1 else _DRAWN_OF_SEVERAL]
    return tuple(_plot_picture(candidate, found, int(n), float(mean[n])) for n in chosen)


def _plot_picture(candidate: Candidate, found: Evaluation, number: int, similarity: float) -> Plot:
    poses = match_poses(found)
    own = np.flatnonzero((poses.true_picture == number) & poses.counted)[:_MOST_PERSONS]
    paired = own[poses.pair[own] >= 0]
    truth = found.ragged["truth_points"].values.astype(np.float64)
    guessed = found.ragged["points"].values.astype(np.float64)
    none = np.zeros((0, 4))
    height, width = (float(each) for each in found.arrays["size"][number])
    seen = truth[..., 2] > 0
    matched = guessed[poses.pair[paired]]
    if any(list_limbs(known) for known in seen[own]):
        between: tuple[Floats, ...] = ()
        told = "broken lines are the truth"
    else:
        between = _create_error_lines(truth[paired], matched, seen[paired])
        told = "a line leads from each true one, in black, to the predicted one"
    groups = (
        BoxGroup("truth", none, (), -1, _create_limb_lines(truth[own], seen[own])),
        BoxGroup(
            candidate.name,
            none,
            (),
            candidate.number,
            (*_create_limb_lines(matched, seen[paired]), *between),
        ),
    )
    return Plot(
        BoxedFrame(max(width, 1.0), max(height, 1.0), groups, get_sample_picture(found, number)),
        f"{candidate.number + 1}-pose-{number + 1}",
        f"{candidate.name}, sample {number + 1:,}: key points that are visible; {told}",
        f"Key points of {candidate.name} in sample {number + 1:,}: the mean OKS of its persons is "
        f"{format_share(similarity)}.",
    )


def _create_error_lines(
    truth: Floats, guessed: Floats, seen: npt.NDArray[np.bool_]
) -> tuple[Floats, ...]:
    """Return a line from each visible key point to the predicted one, to show which belong
    together.
    """
    return tuple(np.stack([truth[seen][:, :2], guessed[seen][:, :2]], axis=1))


def _create_limb_lines(points: Floats, seen: npt.NDArray[np.bool_]) -> tuple[Floats, ...]:
    """Return the lines between key points of persons, COCO's limbs where there are 17 points,
    and all single points.
    """
    lines: list[Floats] = []
    for person, known in zip(points[..., :2], seen, strict=True):
        lines += [person[list(pair)] for pair in list_limbs(known)]
        lines += [person[place : place + 1] for place in np.flatnonzero(known)]
    return tuple(lines)


_SURE = 0.2  # least score of persons and points that are drawn
_MOST = 20


class PosePictures(TaskPictures):
    """Draws the key points with scores from 0.2 on, and COCO's limbs between them."""

    task = Pose.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture with key points, and how many persons there are."""
        from PIL import Image, ImageDraw

        image = Image.fromarray(picture)
        pen, width = ImageDraw.Draw(image), max(2, picture.shape[1] // 200)
        persons = _select_confident(predictions, picture.shape[:2])
        for number, person in enumerate(persons):
            colour = COLOURS[number % len(COLOURS)]
            known = person[:, 2] >= _SURE
            for one, other in list_limbs(known):
                pen.line([*person[one, :2], *person[other, :2]], fill=colour, width=width)
            for x, y in person[known, :2].tolist():
                pen.ellipse(
                    [x - 1.5 * width, y - 1.5 * width, x + 1.5 * width, y + 1.5 * width],
                    fill=colour,
                )
        return np.asarray(
            image
        ), f"{len(persons)} person{'s' * (len(persons) != 1)} with scores from {_SURE} on"

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the mean distance of the key points of the most certain persons, and 1 for each
        person too many.

        Distances have x in shares of the picture's width and y of its height.
        """
        first, second = (_select_confident(each, picture.shape[:2]) for each in (one, other))
        common = min(len(first), len(second))
        sides = np.array(picture.shape[1::-1], np.float64)
        apart = np.linalg.norm((first[:common, :, :2] - second[:common, :, :2]) / sides, axis=2)
        return float(apart.mean() if apart.size else 0) + abs(len(first) - len(second))


def _select_confident(predictions: Batch, size: tuple[int, ...]) -> Floats:
    """Return the certain persons, ``(k, points, 3)``, in pixels."""
    if "points" not in predictions:
        raise SpecMismatch(
            "predictions of poses hold points; name the model's decoder with --decoder"
        )
    points = np.asarray(predictions["points"], np.float64)
    if "frame" in predictions:
        places = convert_points_to_pixels(
            points[..., :2], predictions["frame"], np.array([size], np.int64)
        )
        points = np.concatenate([places, points[..., 2:]], axis=-1)
    found = get_first_sample(points)[
        : int(predictions["count"][0]) if "count" in predictions else None
    ]
    scores = (
        get_first_sample(predictions["scores"])[: len(found)]
        if "scores" in predictions
        else found[..., 2].mean(axis=1)
    )
    order = np.argsort(-scores, kind="stable")
    usable = (scores >= _SURE) & np.isfinite(found).all(axis=(1, 2))
    certain: Floats = found[order[usable[order]][:_MOST]]
    return certain
