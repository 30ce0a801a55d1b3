"""What :func:`nnpipe.mix` returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnpipe.analysis.quality_intervals import QualityDifference, compute_quality_difference
from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import join_lines, show_text
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.quantities import format_in_sentence
from nnpipe.report.charts import ChartPoint, Scatter
from nnpipe.report.document import Document, Paragraph, Plot, Section, Table
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.sections.comparison import build_comparison_table, describe_comparison
from nnpipe.report.writers.html import write_html
from nnpipe.report.writers.tables import format_html_table, to_text
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.mixing.float_search import MixStep

FLOATS, INTEGERS, MIXED = "floats", "integers", "mixed"
"""The titles of the three models that are compared in the end."""

_SHOWN = 3  # names in a row of the table


@dataclass(frozen=True, eq=False, repr=False)
class MixResult:
    """The models that a search for mixed precision tried, and the chosen one.

    Parameters
    ----------
    metric
        The metric by which models were judged.
    max_loss
        The allowed loss.
    ranking
        The tensors that the quantiser rounds, with the median signal-to-noise ratio of their
        channels in decibels, the worst first; empty if none had to stay in floats.
    steps
        The models that were tried, in order.
    chosen
        The chosen one of them; None if none was good enough.
    searched
        The number of samples that the search used.
    comparison
        The model in floats, the one in integers, and the chosen one, measured on the test split.
    path
        The file of the chosen model.

    Examples
    --------
    Of the example of :func:`nnpipe.mix`, whose 48 samples are too few to prove a loss of at most 2 points:

    >>> found.verdict, found.difference.samples
    ('not proven', 48)
    """

    metric: QualityMetric
    max_loss: float
    ranking: tuple[tuple[str, float], ...]
    steps: tuple[MixStep, ...]
    chosen: MixStep | None
    searched: int
    comparison: ComparisonResult
    path: Path | None

    @property
    def title(self) -> str:
        """Return the title of the chosen model in the comparison, or that of the one in integers
        if none was chosen.
        """
        return MIXED if self.chosen is not None and self.chosen.kept else INTEGERS

    @property
    def difference(self) -> QualityDifference:
        """The metric of the chosen model less that of the one in floats, on the test split, with
        its 95 % interval.
        """
        one, other = (
            self.comparison.comparison.run_of(title).evaluation for title in (FLOATS, self.title)
        )
        assert one is not None
        assert other is not None
        return compute_quality_difference(self.metric, one, other)

    @property
    def loss(self) -> tuple[float, float, float]:
        """The loss of the chosen model on the test split, and the ends of its 95 % interval."""
        gap = self.difference
        sign = 1.0 if self.metric.less_is_better else -1.0
        low, high = sorted((sign * gap.low, sign * gap.high))
        return sign * gap.value, low, high

    @property
    def verdict(self) -> str:
        """Return whether the loss on the test split is allowed: "proven", "not proven" or
        "refuted".

        "not proven" means that its interval contains the allowed loss; "none" that no model was
        good enough.
        """
        if self.chosen is None:
            return "none"
        _, low, high = self.loss
        return (
            "proven"
            if high <= self.max_loss
            else "refuted"
            if low > self.max_loss
            else "not proven"
        )

    @property
    def table(self) -> Table:
        """The models that were tried, one in a row."""
        rows = tuple(
            (
                ("* " if step is self.chosen else "") + str(len(step.kept)),
                self._format_loss(step.loss),
                f"{self._format_loss(step.low)} to {self._format_loss(step.high)}",
                f"{step.time:.3f} ({step.time_interval[0]:.3f} to {step.time_interval[1]:.3f})",
                _format_names(step.kept),
            )
            for step in self.steps
        )
        header = ("tensors in floats", "loss", "95 % interval", "time / floats", "which")
        return Table(
            header,
            rows,
            caption=f"Models that were tried on {self.searched:,} samples; * is the chosen one",
        )

    @property
    def noisiest(self) -> Table:
        """The tensors with the most noise."""
        rows = tuple((name, f"{level:.1f}") for name, level in self.ranking[:10])
        return Table(
            ("tensor", "dB"),
            rows,
            caption="Median signal-to-noise ratio of channels, the lowest first",
        )

    def sentences(self) -> list[str]:
        """Return the conclusions in words."""
        if self.chosen is None:
            least = min(step.loss for step in self.steps)
            return [
                f"None of the {len(self.steps)} models that were tried is good enough: the least "
                f"loss is {self._format_loss(least)}, and the search may use half of "
                f"{self._format_loss(self.max_loss)}. Nothing was written."
            ]
        value, low, high = self.loss
        samples = self.difference.samples
        told = {
            "proven": "this is proven to be allowed",
            "not proven": f"not proven: the interval reaches beyond the allowed {self._format_loss(self.max_loss)}",
            "refuted": f"more than the allowed {self._format_loss(self.max_loss)}",
        }[self.verdict]
        kept = len(self.chosen.kept)
        what = (
            f"{kept} of {len(self.ranking)} tensors stay in floats"
            if kept
            else "No tensor has to stay in floats"
        )
        found = [
            f"{what}: {_format_names(self.chosen.kept, 10)}." if kept else f"{what}.",
            f"Loss of {format_in_sentence(self.metric.title)} on {samples:,} test samples that the "
            f"search never saw: {self._format_loss(value)} ({self._format_loss(low)} to "
            f"{self._format_loss(high)}); {told}.",
        ]
        if self.chosen.time_interval[1] >= 1:
            found.append("The search does not prove that it is faster than the model in floats.")
        return found

    def __str__(self) -> str:
        tables = [to_text(self.noisiest)] if self.ranking else []
        return "\n\n".join(
            (*tables, to_text(self.table), str(self.comparison), join_lines(self.sentences()))
        )

    __repr__ = __str__

    def show(self) -> None:
        """Print the tables and conclusions."""
        show_text(str(self))

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        return format_html_table(self.table, self.table.caption, self.sentences())

    @property
    def picture(self) -> Plot:
        """The loss of the models that were tried against their time."""
        scale = 100.0 if self.metric.kind == "share" else 1.0
        points = tuple(
            ChartPoint(
                f"{len(step.kept)} in floats",
                step.time,
                -scale * step.loss,
                step.time_interval,
                (-scale * step.high, -scale * step.low),
                1 if step is self.chosen else 0,
                tip=_format_names(step.kept, 10),
            )
            for step in self.steps
        )
        unit = "points" if scale == 100 else self.metric.title
        chart = Scatter(
            "time of a call, relative to floats", f"gain against floats ({unit})", points
        )
        return Plot(
            chart,
            "mix",
            "Models that were tried: gain against the model in floats, and time",
            f"{len(points)} models that were tried, by their time and their gain",
        )

    def save_picture(self, path: str | Path) -> None:
        """Write the picture as SVG."""
        check_call(MixResult.save_picture, locals())
        write_text(path, Pictures().render_svg(self.picture))

    def save_report(self, path: str | Path) -> None:
        """Write a report as one HTML page: conclusions, tables and the picture."""
        check_call(MixResult.save_report, locals())
        paragraphs = tuple(Paragraph(each) for each in self.sentences())
        tables = ((self.noisiest,) if self.ranking else ()) + (self.table,)
        measured = self.comparison.comparison
        told = tuple(Paragraph(each) for each in describe_comparison(measured))
        sections = (
            Section("Choice", (*paragraphs, self.picture)),
            Section("Search", tables),
            Section("On the test split", (build_comparison_table(measured), *told)),
        )
        write_html(Document(measured.title, sections), path)

    def to_json(self) -> Mapping[str, Any]:
        """Return the search and its result as JSON can hold them, without the measurements of
        the comparison.
        """
        value, low, high = self.loss
        return {
            "metric": self.metric.name,
            "max_loss": self.max_loss,
            "verdict": self.verdict,
            "loss": {"value": value, "low": low, "high": high, "samples": self.difference.samples},
            "path": None if self.path is None else str(self.path),
            "chosen": None if self.chosen is None else asdict(self.chosen),
            "ranking": [{"tensor": name, "decibels": level} for name, level in self.ranking],
            "steps": [asdict(step) for step in self.steps],
            "searched": self.searched,
        }

    def save_json(self, path: str | Path) -> None:
        """Write the search and its result as JSON."""
        check_call(MixResult.save_json, locals())
        write_text(path, json.dumps(self.to_json(), indent=1) + "\n")

    def _format_loss(self, loss: float) -> str:
        """Return a loss in the unit of the metric; shares in percentage points."""
        told = f"{100 * loss:.2f}" if self.metric.kind == "share" else f"{loss:.4g}"
        told = "0.00" if told == "-0.00" else told
        return f"{told} points" if self.metric.kind == "share" else told


def _format_names(kept: tuple[str, ...], most: int = _SHOWN) -> str:
    more = f" and {len(kept) - most} more" if len(kept) > most else ""
    return ", ".join(kept[:most]) + more if kept else "-"
