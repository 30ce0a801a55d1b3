"""The section of reports about anomaly maps, and the maps drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats
from nnpipe.core.tensors import Batch
from nnpipe.report.charts import Line, Lines
from nnpipe.report.document import Block, Cell, Plot, Section, Table
from nnpipe.report.formatting import format_share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import Picture, TaskSection, build_metrics_section
from nnpipe.tasks.anomaly.pictures import AnomalyPictures
from nnpipe.tasks.anomaly_map.metrics import (
    LOOKED_AT,
    MAX_FPR,
    compute_defect_recall,
    prepare_pixel_curve,
)
from nnpipe.tasks.anomaly_map.task import AnomalyMaps, map_of

_ALARMS = np.linspace(0, MAX_FPR, 61)
_WORST = 10  # pictures


class AnomalyMapSection(TaskSection):
    """Shows the metrics with their intervals, the overlap of regions against false alarms, and
    the worst pictures.
    """

    task = AnomalyMaps.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged maps have a row of dashes only."""
        whole = build_metrics_section(AnomalyMaps(), candidates)
        blocks: list[Block] = list(whole.blocks)
        judged = [
            (c, c.quality.evaluation)
            for c in candidates
            if c.quality and c.quality.task.name == self.task
        ]
        shown = [(c, found) for c, found in judged if found.ragged["regions"].counts.any()]
        if shown:
            overlaps = [_compute_overlap_curve(found) for _, found in shown]
            told = ", ".join(
                f"{c.name} {format_share(float(own.mean()), 1)}"
                for (c, _), own in zip(shown, overlaps, strict=True)
            )
            lines = tuple(
                Line(c.name, _ALARMS, own) for (c, _), own in zip(shown, overlaps, strict=True)
            )
            blocks.append(
                Plot(
                    Lines(
                        "share of good pixels that are alarms",
                        "share of a defect found",
                        lines,
                        top=1.0,
                    ),
                    "per-region-overlap",
                    "The mean over all defects of the share of each that is found, against false "
                    "alarms",
                    f"Curves of the per-region overlap; the means of the overlap: {told}.",
                )
            )
        for candidate, found in shown:
            table = _build_worst_table(found)
            blocks.append(
                Section(candidate.name, (table,), folded=True) if len(shown) > 1 else table
            )
        return Section(whole.title, tuple(blocks))


def _compute_overlap_curve(found: Evaluation) -> Floats:
    """Return the mean share of a defect that is found, for each of the shares of false alarms."""
    curve = prepare_pixel_curve(found)(np.ones(len(found)))
    alarms = np.concatenate([[0.0], np.cumsum(curve.good) / max(1.0, curve.good.sum())])
    hits = np.concatenate([[0.0], np.cumsum(curve.covered)])
    return np.asarray(np.interp(_ALARMS, alarms, hits), np.float64)


def _build_worst_table(found: Evaluation) -> Table:
    """Return the table of the pictures whose defects are found least, at one threshold for all."""
    overlap, alarms = compute_defect_recall(found, LOOKED_AT)
    regions = found.ragged["regions"].counts
    there = np.flatnonzero(regions)
    there = there[np.argsort(overlap[there], kind="stable")][:_WORST]
    rows = tuple(
        (
            Cell(f"{n + 1:,}", float(n + 1)),
            Cell(f"{int(regions[n]):,}", float(regions[n])),
            Cell(format_share(float(overlap[n]), 1), float(overlap[n])),
            Cell(format_share(float(alarms[n]), 1), float(alarms[n])),
        )
        for n in there.tolist()
    )
    caption = (
        f"The pictures whose defects are found least, at the score that at most "
        f"{format_share(LOOKED_AT, 0)} of all good "
        "pixels reach"
    )
    return Table(
        ("Picture", "Defects", "Found of a defect", "Good pixels alarmed"),
        rows,
        sortable=True,
        caption=caption,
    )


class AnomalyMapPictures(AnomalyPictures):
    """Shows which pixels have high scores, and the score of the picture, which may be that of
    its greatest pixel.
    """

    task = AnomalyMaps.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture, coloured where scores of pixels are high for this picture, and the
        score.
        """
        return super().draw(picture, _add_picture_scores(predictions), class_names)

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the difference of the scores, relative to the greater one."""
        return super().measure_difference(
            picture, _add_picture_scores(one), _add_picture_scores(other)
        )


def _add_picture_scores(predictions: Batch) -> Batch:
    maps = map_of(predictions, 1)
    frame = {"frame": predictions["frame"]} if "frame" in predictions else {}
    score = predictions.get("score", np.fmax.reduce(maps, axis=(1, 2), initial=-np.inf))
    return {"map": maps, "score": score, **frame}
