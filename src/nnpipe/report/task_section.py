"""What reports show of a task: a section of its own, or the table of its metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import ClassVar

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.registry import named
from nnpipe.core.task import Task
from nnpipe.measuring.quantities import quality
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table
from nnpipe.report.formatting import NOTHING
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.quantity_text import interval, written
from nnpipe.report.sample_pictures import worst_samples

Parts = Callable[[Candidate, Evaluation, int], Iterable[Block]]


class TaskSection(Discoverable, ABC):
    """The section of reports about a task.

    Sections are found like components.  A task without one gets a table of its metrics.

    Attributes
    ----------
    task
        The name of the task.
    draws_samples
        Whether the section shows the worst samples itself, so that they are not shown below it.

    Examples
    --------
    >>> class CountingSection(TaskSection):
    ...     'Shows how far counts are off.'
    ...     task = "counting"
    ...     def section(self, candidates):
    ...         return Section("Counting", (Paragraph(f"{len(candidates)} candidates counted."),))
    >>> CountingSection().section([]).title
    'Counting'
    """

    task: ClassVar[str] = ""
    draws_samples: ClassVar[bool] = False

    @abstractmethod
    def section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; some candidates may have no judged predictions, or of another task."""


def task_section(task: Task, candidates: Sequence[Candidate]) -> Section:
    """Return the section of a report about a task."""
    own = next((cls for cls in named(TaskSection).values() if cls.task == task.name), None)
    found = metrics_section(task, candidates) if own is None else own().section(candidates)
    if own is not None and own.draws_samples:
        return found
    worst = worst_samples(task, candidates)
    return found if worst is None else replace(found, blocks=(*found.blocks, worst))


def metrics_section(task: Task, candidates: Sequence[Candidate]) -> Section:
    """Return a section with the table of the metrics of a task that any candidate has, with intervals."""
    cells = {c.number: _cells(task, c) for c in candidates}
    shown = [
        place == 0 or any(own[place].value is not None for own in cells.values()) for place in range(len(task.metrics))
    ]
    header = ("Candidate", *(metric.heading for metric in compress(task.metrics, shown)), "Samples")
    rows = tuple((Cell(c.name, float(c.number)), *compress(cells[c.number], [*shown, True])) for c in candidates)
    meanings = "; ".join(f"{metric.heading}: {metric.meaning}" for metric in compress(task.metrics, shown))
    table = Table(header, rows, sortable=True, caption=f"Ranges are 95\u00a0% intervals. {meanings}.")
    return Section(title_of_task(task), (Paragraph(type(task).summary()), table))


def judged_section(task: Task, candidates: Sequence[Candidate], parts: Parts) -> Section:
    """Return the metrics of a task, followed by parts about each candidate that was judged; of several, folded.

    Parameters
    ----------
    task
        The task.
    candidates
        All candidates; those without judged predictions have a row of dashes only.
    parts
        Returns the parts about a candidate, given it, its evaluation, and the number of judged candidates.
    """
    whole = metrics_section(task, candidates)
    judged = [(c, c.quality.evaluation) for c in candidates if c.quality and c.quality.task.name == task.name]
    blocks: list[Block] = list(whole.blocks)
    for candidate, found in judged:
        own = tuple(parts(candidate, found, len(judged)))
        blocks += [Section(candidate.name, own, folded=True)] if len(judged) > 1 else own
    return Section(whole.title, tuple(blocks))


def title_of_task(task: Task) -> str:
    """Return the name of a task as a heading."""
    words = task.name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _cells(task: Task, candidate: Candidate) -> list[Cell]:
    quality_ = candidate.quality
    if quality_ is None or quality_.task.name != task.name:
        return [Cell(NOTHING)] * (len(task.metrics) + 1)
    found = []
    for metric in task.metrics:
        known = quality_.figure_of(metric)
        found.append(Cell(written(quality(metric), known.value), known.value, interval(quality(metric), known)))
    return [*found, Cell(f"{quality_.samples:,}", float(quality_.samples))]
