"""The result of measuring a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.foreign_text import lines_of, show_text
from nnpipe.core.naming import nearest
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.run import Run
from nnpipe.report.document import Table
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sections.headline import headline
from nnpipe.report.writers.json_figures import figures_of
from nnpipe.report.writers.terminal import to_text
from nnpipe.workflows.notebook import shown_table


@dataclass(frozen=True, eq=False)
class Measurement:
    """The result of measuring a model.

    Parameters
    ----------
    run
        All measured times, and the conditions of the measurement.
    artifact
        The compiled model; ``None`` if the model ran in its own framework.

    Examples
    --------
    Of the example of :func:`nnpipe.measure`:


    >>> found.figure("latency_median").value > 0
    True
    >>> found.save("result.json")
    """

    run: Run
    artifact: Artifact | None = None

    @property
    def table(self) -> Table:
        """Speed, quality and cost, each with its interval."""
        return headline(Candidate.of(self.run))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons to doubt the times or the predictions."""
        return Candidate.of(self.run).doubts

    def show(self) -> None:
        """Print the table and the doubts."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the table and the doubts as text."""
        candidate, table = Candidate.of(self.run), self.table
        told = [f"doubt: {doubt.kind}: {doubt.reason}" for doubt in candidate.doubts]
        return "\n".join(
            (lines_of([f"{candidate.name}, {table.caption}"]), to_text(table), *(lines_of([each]) for each in told))
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        candidate = Candidate.of(self.run)
        told = (f"doubt: {doubt.kind}: {doubt.reason}" for doubt in candidate.doubts)
        return shown_table(self.table, candidate.name, told)

    def figure(self, name: str) -> Figure:
        """Return a metric with its 95 % interval, if it has one: seconds, bytes, shares from 0 to 1, or its own unit.

        Parameters
        ----------
        name
            ``latency_median``, ``latency_p90``, ``throughput``, ``size``, ``memory``, or a metric of the data's task,
            such as ``accuracy`` or ``map``.

        Raises
        ------
        ConfigError
            If there is no such metric.
        """
        check_call(Measurement.figure, locals())
        found = figures_of(Candidate.of(self.run))
        if name not in found:
            raise ConfigError(f"there is no figure {name!r}{nearest(name, found)}; there are: {', '.join(found)}")
        return found[name]

    def save(self, path: str | Path) -> None:
        """Write the result file, which ``nnpipe render_report`` renders.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(Measurement.save, locals())
        self.run.write(path)
