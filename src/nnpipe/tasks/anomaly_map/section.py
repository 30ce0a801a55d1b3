"""The section of reports about anomaly maps: the metrics, the overlap of regions, and the worst pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats
from nnpipe.report.charts import Line, Lines
from nnpipe.report.document import Block, Cell, Plot, Section, Table
from nnpipe.report.formatting import share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import TaskSection, metrics_section
from nnpipe.tasks.anomaly_map.metrics import MAX_FPR, curve_of
from nnpipe.tasks.anomaly_map.task import AnomalyMaps

_ALARMS = np.linspace(0, MAX_FPR, 61)
_LOOKED_AT = 0.05  # share of good pixels that are alarms, for single pictures
_WORST = 10  # pictures


class AnomalyMapSection(TaskSection):
    """Shows the metrics with their intervals, the overlap of regions against false alarms, and the worst pictures."""

    task = AnomalyMaps.name

    def section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged maps have a row of dashes only."""
        whole = metrics_section(AnomalyMaps(), candidates)
        blocks: list[Block] = list(whole.blocks)
        judged = [(c, c.quality.evaluation) for c in candidates if c.quality and c.quality.task.name == self.task]
        shown = [(c, found) for c, found in judged if found.ragged["regions"].counts.any()]
        if shown:
            overlaps = [_overlaps(found) for _, found in shown]
            told = ", ".join(
                f"{c.name} {share(float(own.mean()), 1)}" for (c, _), own in zip(shown, overlaps, strict=True)
            )
            lines = tuple(Line(c.name, _ALARMS, own) for (c, _), own in zip(shown, overlaps, strict=True))
            blocks.append(
                Plot(
                    Lines(
                        "share of good pixels that are alarms", "mean share of a defect that is found", lines, top=1.0
                    ),
                    "per-region-overlap",
                    "The mean over all defects of the share of each that is found, against false alarms",
                    f"Curves of the per-region overlap; the means of the overlap: {told}.",
                )
            )
        for candidate, found in shown:
            table = _worst(found)
            blocks.append(Section(candidate.name, (table,), folded=True) if len(shown) > 1 else table)
        return Section(whole.title, tuple(blocks))


def _overlaps(found: Evaluation) -> Floats:
    """Return the mean share of a defect that is found, for each of the shares of false alarms."""
    curve = curve_of(found)(np.ones(len(found)))
    alarms = np.concatenate([[0.0], np.cumsum(curve.good) / max(1.0, curve.good.sum())])
    hits = np.concatenate([[0.0], np.cumsum(curve.covered)])
    return np.asarray(np.interp(_ALARMS, alarms, hits), np.float64)


def _worst(found: Evaluation) -> Table:
    """Return the table of the pictures whose defects are found least, at one threshold for all."""
    level, regions = found.ragged["level"], found.ragged["regions"]
    values, good = (each.values.astype(np.float64) for each in (level, found.ragged["good"]))
    order = np.argsort(-values, kind="stable")
    passed = np.cumsum(good[order]) / max(1.0, good.sum()) <= _LOOKED_AT
    threshold = float(values[order][passed].min(initial=np.inf))
    sure = values >= threshold
    covered = np.bincount(level.owners[sure], found.ragged["covered"].values.astype(np.float64)[sure], len(found))
    alarms = np.bincount(level.owners[sure], good[sure], len(found)) / np.maximum(
        np.bincount(level.owners, good, len(found)), 1
    )
    there = np.flatnonzero(regions.counts)
    overlap = covered[there] / regions.counts[there]
    rows = tuple(
        (
            Cell(f"{there[n] + 1:,}", float(there[n] + 1)),
            Cell(f"{int(regions.counts[there[n]]):,}", float(regions.counts[there[n]])),
            Cell(share(float(overlap[n]), 1), float(overlap[n])),
            Cell(share(float(alarms[there[n]]), 1), float(alarms[there[n]])),
        )
        for n in np.argsort(overlap, kind="stable")[:_WORST]
    )
    caption = (
        f"The pictures whose defects are found least, at the score that at most {share(_LOOKED_AT, 0)} of all good "
        "pixels reach"
    )
    return Table(
        ("Picture", "Defects", "Found of a defect", "Good pixels alarmed"), rows, sortable=True, caption=caption
    )
