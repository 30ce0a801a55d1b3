"""The result of a comparison: shown as a table, and able to choose the best candidate."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import replace_atomically, write_text
from nnpipe.core.foreign_text import join_lines, show_text
from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.constraints import (
    Figure,
    MetricConstraint,
    check_consistent,
    get_metric_quantity,
)
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.report.document import Table
from nnpipe.report.quantity_text import format_figure
from nnpipe.report.sections.comparison import build_comparison_table, describe_comparison
from nnpipe.report.writers.tables import format_html_table, to_text
from nnpipe.workflows.decision import DecisionRule
from nnpipe.workflows.sweep.estimates import Figures


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult:
    """The result of comparing candidates side by side.

    Parameters
    ----------
    comparison
        Everything that was measured.
    files
        The model file of each candidate, by title.
    reference
        The title of the candidate with which the others' quality is compared.
    interrupted
        Whether it was ended by Ctrl-C.
    path
        The result file, if one was written.

    Examples
    --------
    Of the example of :func:`nnpipe.compare`:


    >>> result.titles
    ('as it is', 'onnx', 'onnx-int8')
    >>> result.accuracy("onnx")
    1.0
    >>> result.save("comparison.json")
    """

    comparison: Comparison
    files: Mapping[str, Path]
    reference: str
    interrupted: bool = False
    path: Path | None = None

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles of the candidates that did not fail."""
        return tuple(run.title for run in self.comparison.whole)

    @property
    def failures(self) -> Mapping[str, str]:
        """The reasons why candidates failed, by title."""
        return self.comparison.failures

    @property
    def table(self) -> Table:
        """One row for each candidate."""
        return build_comparison_table(self.comparison)

    def show(self) -> None:
        """Print the table and its conclusions in words."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the table and its conclusions in words."""
        return "\n\n".join((to_text(self.table), join_lines(describe_comparison(self.comparison))))

    __repr__ = __str__  # an interactive prompt shows the table, not all measurements

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        return format_html_table(
            self.table, self.table.caption, describe_comparison(self.comparison)
        )

    def accuracy(self, title: str) -> float:
        """Return the share of test samples that a candidate classifies correctly, from 0 to 1.

        Raises
        ------
        ConfigError
            If there is no such candidate, or its accuracy was not measured.
        """
        figure = self.figure(title, "accuracy")
        if figure.value is None:
            raise ConfigError(f"{title}: {figure.reason}")
        return figure.value

    def figure(self, title: str, metric: str, confidence: float = 0.95) -> Figure:
        """Return a metric of a candidate with its interval: seconds, bytes, shares from 0 to 1, or
        its own unit.

        Parameters
        ----------
        title
            The candidate's title.
        metric
            ``latency_median``, ``latency_p90``, ``size``, ``memory``, any metric of the data's
            task, such as ``accuracy`` or ``map``, or its loss, such as ``accuracy_loss`` or
            ``loss(map)``.
        confidence
            The confidence of the interval.

        Raises
        ------
        ConfigError
            If there is no such candidate or metric.
        """
        return self._compute_figures(self.comparison.run_of(title)).get_figure(
            get_metric_quantity(metric), confidence
        )

    def best(
        self,
        *constraints: str,
        accuracy_loss: float | None = None,
        by: str = "latency_median",
        confidence: float = 0.95,
    ) -> Choice:
        """Return the best of the candidates for which every constraint holds with the given
        confidence.

        Parameters
        ----------
        constraints
            Constraints such as ``"size <= 1 MB"``, ``"latency_p90 <= 5 ms"`` or ``"loss(map) <=
            0.02"``.
        accuracy_loss
            The greatest loss of accuracy against the reference, as a share of samples: 0.01 for one
            percentage point.
        by
            The metric to choose by.
        confidence
            The confidence with which all claims about one candidate hold together.

        Raises
        ------
        ConfigError
            If a constraint cannot be read, or no candidate satisfies all of them.  For each
            candidate, the message names the constraint that fails, or how many samples would decide
            it.  If it is to be chosen by a cost of calls, such as their time, and these are not the
            same work, as of answers of other lengths.
        """
        wanted = [MetricConstraint.parse(text) for text in constraints]
        if accuracy_loss is not None:
            if not math.isfinite(accuracy_loss) or not 0 <= accuracy_loss <= 1:
                raise ConfigError(
                    f"accuracy_loss is a share of the samples, from 0 to 1, not {accuracy_loss}"
                )
            loss = get_metric_quantity("accuracy_loss")
            wanted.append(
                MetricConstraint(
                    loss, True, accuracy_loss, f"accuracy_loss <= {100 * accuracy_loss:g} %"
                )
            )
        check_consistent(wanted)
        metric = get_metric_quantity(by)
        rule = DecisionRule(tuple(wanted), metric, confidence)
        figures = {run.title: self._compute_figures(run) for run in self.comparison.whole}
        able = rule.rank(figures)
        if not able:
            why = [
                f"{title}: {'; '.join(rule.explain_exclusion(each))}"
                for title, each in figures.items()
            ]
            raise ConfigError(
                "no candidate surely satisfies all constraints:\n  " + "\n  ".join(why)
            )
        title = able[0]
        run = self.comparison.run_of(title)
        for other in able:
            if unlike := rule.explain_unequal_work(run, self.comparison.run_of(other)):
                raise ConfigError(
                    f"{by} does not say which of {title!r} and {other!r} is better: {unlike}"
                )
        figure = figures[title].get_figure(metric, rule.level)
        return Choice(title, self.files[title], run, metric, figure, tuple(wanted))

    def save(self, path: str | Path) -> None:
        """Write all measurements to a result file, as ``nnpipe compare`` does; ``nnpipe
        render_report`` renders it.
        """
        self.comparison.write(path)

    def _compute_figures(self, run: Run) -> Figures:
        return Figures(run, self.comparison.run_of(self.reference))


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """The chosen candidate.

    Parameters
    ----------
    title, path, run
        Its title, its model file, and its measurement.
    metric, figure
        The metric that it was chosen by, and its value with an interval.
    constraints
        The constraints that hold for it.

    Examples
    --------
    Of the example of :func:`nnpipe.compare`:


    >>> choice = result.best(accuracy_loss=0.5, by="size")
    >>> choice.title in result.titles, choice.save("ship/").name
    (True, 'model.onnx')
    """

    title: str
    path: Path
    run: Run
    metric: Quantity
    figure: Figure
    constraints: Sequence[MetricConstraint]

    def __str__(self) -> str:
        """Return the title, the metric and the constraints as text."""
        held = "".join(f", {each.text}" for each in self.constraints)
        return f"{self.title}: {self.metric.name} {format_figure(self.metric, self.figure)}{held}"

    __repr__ = __str__

    def save(self, folder: str | Path) -> Path:
        """Copy the model, its description and its result into a folder, and return the path of the
        model.

        Returns
        -------
        Path
            The file ``model`` with its original ending; ``result.json`` and ``choice.json`` are
            beside it.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        destination = folder / f"model{self.path.suffix}"
        for source, target in (
            (self.path, destination),
            (get_sidecar_path(self.path), get_sidecar_path(destination)),
        ):
            if source.is_file():
                with replace_atomically(target) as temporary:
                    shutil.copyfile(source, temporary)
            elif source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
        self.run.write(folder / "result.json")
        choice = {
            "title": self.title,
            "by": self.metric.name,
            "value": self.figure.value,
            "interval": [self.figure.low, self.figure.high]
            if math.isfinite(self.figure.high)
            else None,
            "constraints": [each.text for each in self.constraints],
        }
        write_text(folder / "choice.json", json.dumps(choice, indent=1) + "\n")
        return destination
