"""What reports show of counts."""

from __future__ import annotations

from collections.abc import Sequence

from dots.counting import Counting
from nnpipe.report.document import Section, Table
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import TaskSection, build_metrics_section


class CountingSection(TaskSection):
    """Shows the metrics, and how often each count is right."""

    task = Counting.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the table of the metrics, and one of the counts for each candidate."""
        plain = build_metrics_section(Counting(), candidates)
        tables = []
        for candidate in candidates:
            if candidate.quality is not None and candidate.quality.task.name == self.task:
                arrays = candidate.quality.evaluation.arrays
                count, right = arrays["count"], arrays["count"] == arrays["counted"]
                rows = tuple(
                    (str(n), f"{right[count == n].mean():.0%}") for n in sorted(set(count.tolist()))
                )
                tables.append(
                    Table(("Dots", "Right"), rows, caption=f"Right counts of {candidate.name}")
                )
        return Section("Counted dots", (*plain.blocks, *tables))
