"""The comparison of calls at a fixed pace with calls in a tight loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.statistics import Summary
from nnpipe.report.document import Block, Cell, Paragraph, Table
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_count,
    format_duration,
    format_number,
)
from nnpipe.report.inputs.candidate import Candidate

_COLD = "caches and branch predictors have gone cold, or hold what others needed meanwhile"
_SLEPT = (
    "the core has to leave its idle state and its clock to rise again, and others ran on it "
    "meanwhile"
)
_KEPT = 0.99  # share of turns that must be taken for the pace to count as kept


@dataclass(frozen=True)
class PaceFigures:
    """Times of one candidate in the tight loop and at a pace, in nanoseconds.

    Parameters
    ----------
    period_ns
        Time from call to call in nanoseconds.
    tight
        Times of the tight loop, without warm-up.
    asleep, awake
        Times at the pace: after the process slept, and after it polled the clock while waiting;
        ``awake`` may be missing.
    missed
        Number of turns that passed while a call was still running.
    """

    period_ns: float
    tight: Summary
    asleep: Summary
    awake: Summary | None
    missed: int

    @classmethod
    def from_candidate(cls, candidate: Candidate) -> PaceFigures | None:
        """Return the figures of a candidate; ``None`` if no calls were measured at a pace."""
        pace, series, tight = (
            candidate.run.timing.get("pace"),
            candidate.paced,
            candidate.steady or candidate.latency,
        )
        if not isinstance(pace, Mapping) or not len(series) or tight is None:
            return None
        period, missed = pace.get("period_ns"), pace.get("missed")
        if not isinstance(period, int) or not 0 < period < 10**18:
            return None
        times: npt.NDArray[np.int64] = series[
            "target_ns" if "target_ns" in series else "latency_ns"
        ]
        slept = series["asleep"] != 0
        if not slept.any():
            return None
        awake = Summary.from_values(times[~slept]) if not slept.all() else None
        missed = missed if isinstance(missed, int) and 0 <= missed < 10**15 else 0
        return cls(float(period), tight, Summary.from_values(times[slept]), awake, missed)

    @property
    def kept(self) -> bool:
        """Whether at least 99 % of the turns were taken."""
        turns = len(self.asleep) + (len(self.awake) if self.awake else 0)
        return turns >= _KEPT * (turns + self.missed)

    def describe(self) -> Iterator[str]:
        """Yield sentences on how much longer calls take at the pace than in the tight loop, and
        why.
        """
        pace = f"At one call in {format_duration(self.period_ns)}"
        asleep, tight = self.asleep.percentile(0.5), self.tight.percentile(0.5)
        if not self.kept:
            yield (
                f"The pace was not kept: {format_count(self.missed)} turns passed while a call was "
                f"still running"
            )
        if (
            asleep.value is None
            or tight.value is None
            or asleep.interval is None
            or tight.interval is None
        ):
            yield (
                f"{pace} there were too few calls to tell what they take: give a longer "
                f"--pace-seconds"
            )
            return
        low, high = asleep.interval[0] - tight.interval[1], asleep.interval[1] - tight.interval[0]
        if low <= 0 <= high:
            yield f"{pace} the median cannot be told from that of the tight loop"
            return
        times = (
            f"{format_number(asleep.value / tight.value, 2)} times as long as"
            if tight.value
            else "not as long as"
        )
        yield (
            f"{pace} a call takes {format_duration(asleep.value)}, {times} in the tight loop "
            f"({format_duration(tight.value)})"
        )
        yield from self._explain_difference(
            asleep.value - tight.value, tight.value, asleep.interval
        )

    def _explain_difference(
        self, more: float, tight: float, asleep: tuple[float, float]
    ) -> Iterator[str]:
        awake = self.awake.percentile(0.5) if self.awake else None
        if more <= 0 or awake is None or awake.value is None or awake.interval is None:
            return
        waiting = min(max(awake.value - tight, 0.0), more)
        sleeping = more - waiting
        if asleep[0] <= awake.interval[1] and awake.interval[0] <= asleep[1]:
            yield (
                f"It makes no difference whether the process sleeps between calls or stays awake: "
                f"{_COLD}"
            )
            return
        asleep_part = (
            f"Of the {format_duration(more)} more, {format_duration(sleeping)} come from sleeping "
            f"between calls: {_SLEPT}"
        )
        awake_part = (
            f"; {format_duration(waiting)} are there even if the process stays awake: {_COLD}"
        )
        yield asleep_part + (awake_part if waiting > 0.05 * more else "")


def build_pace_blocks(candidate: Candidate) -> list[Block]:
    """Return a table and a paragraph that compare both kinds of calls; an empty list without
    calls at a pace.
    """
    found = PaceFigures.from_candidate(candidate)
    if found is None:
        return []
    pace = clean(format_duration(found.period_ns), 40)
    rows = [("tight loop", found.tight), (f"one call in {pace}, asleep between", found.asleep)]
    if found.awake is not None:
        rows.append((f"one call in {pace}, awake between", found.awake))
    scale = Scale.from_times([found.tight.median, found.asleep.median])
    cells = tuple((name, *_format_cells(summary, scale)) for name, summary in rows)
    header = (
        "Pace of use",
        f"median, {scale.unit}",
        "95\u00a0% interval",
        f"p90, {scale.unit}",
        "calls",
    )
    where = " on the target" if "target_ns" in candidate.paced else ""
    table = Table(
        header, cells, caption=f"One inference{where} in a tight loop and at the pace of use"
    )
    text = ". ".join(found.describe())
    return [table, Paragraph(f"{text}.", "note" if found.kept else "warning")]


def _format_cells(summary: Summary, scale: Scale) -> tuple[Cell, str, Cell, Cell]:
    median, p90 = summary.percentile(0.5), summary.percentile(0.9)
    interval = median.interval
    between = (
        NOTHING if interval is None else f"{scale.text(interval[0])} to {scale.text(interval[1])}"
    )
    number = Cell(f"{len(summary):,}", float(len(summary)))
    return (
        Cell(scale.text(median.value), median.value or 0.0),
        between,
        Cell(scale.text(p90.value), p90.value or 0.0),
        number,
    )
