"""What reports show of a task: a section of its own, or the table of its metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import NotSupported
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.registry import map_names_to_classes
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch
from nnpipe.measuring.quantities import quality_of
from nnpipe.measuring.sample_pictures import CURVE, LARGEST, PICTURE
from nnpipe.report.charts import BoxedFrame, Line, Lines
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import NOTHING, clean
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.quantity_text import format_figure_interval, format_quantity

_MOST = 12  # samples of a candidate
_CANDIDATES = 4
_JPEG = b"\xff\xd8\xff"
_SIDE = 1 << 12  # pixels of a picture that a result may claim


def get_sample_picture(found: Evaluation, number: int) -> bytes:
    """Return the JPEG file of a sample; nothing if the result keeps none, or what it keeps is
    none.
    """
    rows = found.ragged.get(PICTURE)
    if rows is None or rows.values.dtype != np.uint8 or rows.values.ndim != 1:
        return b""
    content = rows[number].tobytes() if rows.counts[number] <= LARGEST else b""
    return content if content.startswith(_JPEG) else b""


def build_worst_samples_section(task: Task, candidates: Sequence[Candidate]) -> Section | None:
    """Return a section with the worst samples of the first candidates that keep some; ``None``
    if none does.
    """
    parts: list[Block] = []
    for candidate in candidates:
        quality = candidate.quality
        if quality is None or quality.task.name != task.name or len(parts) == _CANDIDATES:
            continue
        if plots := _plot_worst_samples(task, candidate, quality.evaluation):
            parts.append(Section(candidate.name, plots, folded=bool(parts)))
    if not parts:
        return None
    first = Paragraph("The samples with which the model did worst, the worst one first.")
    blocks = parts[0].blocks if len(parts) == 1 and isinstance(parts[0], Section) else tuple(parts)
    return Section("Worst samples", (first, *blocks))


def _plot_worst_samples(task: Task, candidate: Candidate, found: Evaluation) -> tuple[Plot, ...]:
    kept = np.zeros(len(found), bool)
    for name in (PICTURE, CURVE):
        if name in found.ragged:
            kept |= found.ragged[name].counts > 0
    if not kept.any():
        return ()
    errors = task.sample_errors(found)
    places = np.flatnonzero(kept)
    if errors is not None:
        places = places[np.argsort(-np.nan_to_num(errors[places]), kind="stable")]
    plots = []
    for number in places[:_MOST].tolist():
        chart = _create_sample_chart(found, number)
        if chart is None:
            continue
        told = clean(task.describe_sample(found, number), 160)
        what = f"{candidate.name}, sample {number + 1:,}" + (f": {told}" if told else "")
        name, photo = f"{candidate.number + 1}-worst-{number + 1}", isinstance(chart, BoxedFrame)
        plots.append(Plot(chart, name, what, f"{what}.", small=photo))
    return tuple(plots)


def _create_sample_chart(found: Evaluation, number: int) -> BoxedFrame | Lines | None:
    if content := get_sample_picture(found, number):
        height, width = _read_jpeg_size(content)
        return BoxedFrame(width, height, (), content) if height else None
    if CURVE not in found.ragged:
        return None
    rows = found.ragged[CURVE][number].astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows) or not np.isfinite(rows).all():
        return None
    middle = rows.mean(axis=1)
    return Lines(
        "part of the sample in %",
        "value",
        (Line("", np.linspace(0, 100, len(rows)), middle, rows[:, 0], rows[:, 1]),),
    )


def _read_jpeg_size(content: bytes) -> tuple[float, float]:
    """Return height and width that a JPEG file states (ITU-T T.81, B.2.2); 0 if it states none."""
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        kind, length = content[place + 1], int.from_bytes(content[place + 2 : place + 4], "big")
        if 0xC0 <= kind <= 0xC3:
            height, width = (
                int.from_bytes(content[place + n : place + n + 2], "big") for n in (5, 7)
            )
            return (
                (float(height), float(width))
                if 0 < height <= _SIDE and 0 < width <= _SIDE
                else (0.0, 0.0)
            )
        place += 2 + length
    return 0.0, 0.0


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
    ...     def build_section(self, candidates):
    ...         return Section("Counting", (Paragraph(f"{len(candidates)} candidates counted."),))
    >>> CountingSection().build_section([]).title
    'Counting'
    """

    task: ClassVar[str] = ""
    draws_samples: ClassVar[bool] = False

    @abstractmethod
    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; some candidates may have no judged predictions, or of another
        task.
        """


def build_task_section(task: Task, candidates: Sequence[Candidate]) -> Section:
    """Return the section of a report about a task."""
    own = next(
        (cls for cls in map_names_to_classes(TaskSection).values() if cls.task == task.name), None
    )
    found = (
        build_metrics_section(task, candidates) if own is None else own().build_section(candidates)
    )
    if own is not None and own.draws_samples:
        return found
    worst = build_worst_samples_section(task, candidates)
    return found if worst is None else replace(found, blocks=(*found.blocks, worst))


def build_metrics_section(task: Task, candidates: Sequence[Candidate]) -> Section:
    """Return a section with the table of the metrics of a task that any candidate has, with
    intervals.
    """
    cells = {c.number: _format_metric_cells(task, c) for c in candidates}
    shown = [
        place == 0 or any(own[place].value is not None for own in cells.values())
        for place in range(len(task.metrics))
    ]
    header = ("Candidate", *(metric.heading for metric in compress(task.metrics, shown)), "Samples")
    rows = tuple(
        (Cell(c.name, float(c.number)), *compress(cells[c.number], [*shown, True]))
        for c in candidates
    )
    meanings = "; ".join(
        f"{metric.heading}: {metric.meaning}" for metric in compress(task.metrics, shown)
    )
    table = Table(
        header, rows, sortable=True, caption=f"Ranges are 95\u00a0% intervals. {meanings}."
    )
    return Section(format_task_title(task), (Paragraph(type(task).summary()), table))


def build_evaluation_section(task: Task, candidates: Sequence[Candidate], parts: Parts) -> Section:
    """Return the metrics of a task, followed by parts about each candidate that was judged; of
    several, folded.

    Parameters
    ----------
    task
        The task.
    candidates
        All candidates; those without judged predictions have a row of dashes only.
    parts
        Returns the parts about a candidate, given it, its evaluation, and the number of judged
        candidates.
    """
    whole = build_metrics_section(task, candidates)
    judged = [
        (c, c.quality.evaluation)
        for c in candidates
        if c.quality and c.quality.task.name == task.name
    ]
    blocks: list[Block] = list(whole.blocks)
    for candidate, found in judged:
        own = tuple(parts(candidate, found, len(judged)))
        blocks += [Section(candidate.name, own, folded=True)] if len(judged) > 1 else own
    return Section(whole.title, tuple(blocks))


def format_task_title(task: Task) -> str:
    """Return the name of a task as a heading."""
    words = task.name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _format_metric_cells(task: Task, candidate: Candidate) -> list[Cell]:
    quality_ = candidate.quality
    if quality_ is None or quality_.task.name != task.name:
        return [Cell(NOTHING)] * (len(task.metrics) + 1)
    found = []
    for metric in task.metrics:
        known = quality_.get_figure(metric)
        found.append(
            Cell(
                format_quantity(quality_of(metric), known.value),
                known.value,
                format_figure_interval(quality_of(metric), known),
            )
        )
    return [*found, Cell(f"{quality_.samples:,}", float(quality_.samples))]


Picture = npt.NDArray[np.uint8]
"""``(height, width, 3)``, red, green and blue."""

COLOURS = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (122, 95, 182),
)
"""Colours of classes, which people with any kind of colour vision can distinguish (Okabe and
Ito, 2008).
"""


class TaskPictures(Discoverable, ABC):
    """Draws the predictions of a task into pictures.

    Such classes are found like components, beside the task that they are for.

    Attributes
    ----------
    task
        The name of the task.

    Examples
    --------
    >>> class CountingPictures(TaskPictures):
    ...     'Shows counts.'
    ...     task = "counting"
    ...     def draw(self, picture, predictions, class_names):
    ...         return picture, f"{predictions['count'][0]:g} things"
    ...     def measure_difference(self, picture, one, other):
    ...         return abs(float(one["count"][0] - other["count"][0]))
    >>> grey = np.full((4, 4, 3), 128, np.uint8)
    >>> CountingPictures().measure_difference(grey, {"count": np.array([2.0])}, {"count": np.array([3.5])})
    1.5
    """

    task: ClassVar[str] = ""

    @abstractmethod
    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture with what a model said about it, and the same in a few words.

        Parameters
        ----------
        picture
            The picture as it is.
        predictions
            The predictions for this picture alone; ``(1, ...)``.
        class_names
            The names of the classes; there may be fewer than classes.
        """

    @abstractmethod
    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return how much the predictions of two models for a picture differ; 0 if they say the
        same.

        The models may take pictures in different sizes and ways, so that predictions are compared
        in pixels of the picture.
        """


def find_task_pictures(task: str) -> TaskPictures:
    """Return how a task draws its predictions.

    Raises
    ------
    NotSupported
        If it does not say how.
    """
    known = {cls.task: cls for cls in map_names_to_classes(TaskPictures).values()}
    if task not in known:
        raise NotSupported(
            f"the task {task!r} does not draw into pictures; those that do: "
            f"{', '.join(sorted(known))}"
        )
    return known[task]()


def has_task_pictures(task: str) -> bool:
    """Return whether a task draws its predictions into pictures."""
    return any(cls.task == task for cls in map_names_to_classes(TaskPictures).values())


def get_class_label(number: int, class_names: Sequence[str]) -> str:
    """Return the name of a class, or its number if it has none."""
    return class_names[number] if 0 <= number < len(class_names) else f"class {number}"


def get_first_sample(values: Any) -> npt.NDArray[Any]:
    """Return the only sample of an array of predictions as float64."""
    found: npt.NDArray[Any] = np.asarray(values, np.float64)
    return np.asarray(found[0])


def blend_colours(
    picture: Picture, where: npt.NDArray[np.bool_], colours: Any, strength: Any = 0.5
) -> Picture:
    """Return a picture with colours over some of its pixels.

    Parameters
    ----------
    picture
        The picture, ``(height, width, 3)``.
    where
        The pixels that are coloured, ``(height, width)``.
    colours
        A colour, ``(3,)``, or that of each of these pixels, ``(n, 3)``, in their order.
    strength
        From 0, where nothing is seen of the colours, to 1, where nothing else is; one number or
        ``(n, 1)``.
    """
    found: Picture = picture.copy()
    found[where] = np.rint(
        (1 - strength) * picture[where] + strength * np.asarray(colours, np.float64)
    )
    return found
