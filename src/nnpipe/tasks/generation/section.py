"""The section of reports about generated text: the answers, and the times of their tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.quantile_intervals import count_samples_needed
from nnpipe.measuring.quantities import quality_of
from nnpipe.report.charts import Floats, Histogram, Line, Lines
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.drawing.axes import reduce_to_columns
from nnpipe.report.formatting import NOTHING, Scale, format_duration
from nnpipe.report.inputs.candidate import Candidate, select_known_values
from nnpipe.report.inputs.quality import CONFIDENCE, compute_metric_figure
from nnpipe.report.quantity_text import format_figure_interval, format_quantity
from nnpipe.report.task_section import TaskSection
from nnpipe.tasks.generation.metrics import PERCENTILES, TIMES, get_token_intervals
from nnpipe.tasks.generation.task import Generation

_BINS = 60
_FEWEST = 3  # requests that reach a position of the curve, or whose memory is known
_MOST_CURVES = 8
_FAR = 10  # times of one candidate by those of another, with which a linear axis hides one of them
_MEANINGS = (
    "TTFT: time to first token, from the request to its first token. TPOT: time per output token, "
    "one number for each request, the mean time between its tokens. ITL: inter-token latency, one "
    "number for each token but the first: the time since the token before. A pause within one "
    "answer shows in the percentiles of ITL, and hardly in those of TPOT."
)


class GenerationSection(TaskSection):
    """Shows how good answers are, and when their tokens came."""

    task = Generation.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the tables of quality and of times, the curves over positions and memory, and
        histograms.
        """
        judged = [
            (c, c.quality.evaluation)
            for c in candidates
            if c.quality and c.quality.task.name == self.task
        ]
        if not judged:
            return Section(
                "Generation",
                (Paragraph("No answers were stored, so nothing can be told.", "note"),),
            )
        blocks: list[Block] = [
            _build_answers_table(judged),
            _build_times_table(judged),
            Paragraph(_MEANINGS),
        ]
        blocks += _plot_times_by_position(judged[:_MOST_CURVES])
        blocks += _plot_memory_by_context(judged[:_MOST_CURVES])
        for candidate, found in judged[:_MOST_CURVES]:
            blocks += _plot_interval_histogram(
                candidate, found, f"{candidate.number + 1}-" if len(judged) > 1 else ""
            )
        return Section("Generation", tuple(blocks))


def _format_metric_cell(name: str, found: Evaluation) -> Cell:
    metric = Generation().metric(name)
    figure = compute_metric_figure(metric, found, CONFIDENCE)
    return Cell(
        format_quantity(quality_of(metric), figure.value),
        figure.value,
        format_figure_interval(quality_of(metric), figure),
    )


def _build_answers_table(judged: Sequence[tuple[Candidate, Evaluation]]) -> Table:
    names = ("exact_match", "perplexity", "output_throughput")
    rows: list[tuple[str | Cell, ...]] = []
    for candidate, found in judged:
        references, tokens = int((found.arrays["exact"] >= 0).sum()), found.ragged["token"].counts
        sizes = (
            len(found),
            references,
            int(tokens.sum()),
            int(np.median(found.arrays["prompt_tokens"])),
        )
        numbers = (Cell(f"{size:,}", float(size)) for size in sizes)
        rows.append(
            (candidate.name, *(_format_metric_cell(name, found) for name in names), *numbers)
        )
    header = ("Candidate", *(Generation().metric(name).heading for name in names))
    more = ("Prompts", "with reference", "Tokens", "of a prompt, median")
    caption = "Answers. Ranges are 95\u00a0% intervals over prompts"
    return Table(
        (*header, *more), tuple(rows), sortable=len(rows) > 1, caption=caption, minor=more[1:]
    )


def _build_times_table(judged: Sequence[tuple[Candidate, Evaluation]]) -> Table:
    rows: list[tuple[str | Cell, ...]] = [
        (
            candidate.name,
            heading,
            _format_metric_cell(f"{name}_mean", found),
            *_format_percentile_cells(name, len(times(found)[0]), found),
        )
        for name, heading, _, _, times in TIMES
        for candidate, found in judged
    ]
    caption = (
        "Times of tokens and requests, without the tokeniser's. Ranges are 95\u00a0% intervals "
        "over prompts"
    )
    header = ("Candidate", "Time", "mean", *(word for word, _ in PERCENTILES))
    return Table(header, tuple(rows), sortable=True, caption=caption)


def _format_percentile_cells(name: str, values: int, found: Evaluation) -> Iterator[Cell]:
    """Yield the percentiles of a kind of time, or how many values they would need."""
    for word, share in PERCENTILES:
        needed = count_samples_needed(share)
        yield (
            Cell(NOTHING, None, f"needs {needed:,}, not {values:,}")
            if values < needed
            else _format_metric_cell(f"{name}_{word}", found)
        )


def _plot_times_by_position(judged: Sequence[tuple[Candidate, Evaluation]]) -> list[Block]:
    """Return the curve of the time of a token by its position in the answer."""
    curves = [(c, *_compute_times_by_position(found)) for c, found in judged]
    curves = [each for each in curves if len(each[1]) > 1]
    if not curves:
        return []
    scale = Scale.from_times(float(np.median(middle)) for _, _, middle, _, _ in curves)
    lines = tuple(
        Line(c.name, x, *(each / scale.divisor for each in ends)) for c, x, *ends in curves
    )
    medians = [float(np.median(middle)) for _, _, middle, _, _ in curves]
    apart = max(medians) > _FAR * min(medians) > 0 and all(
        float(low.min()) > 0 for _, _, _, low, _ in curves
    )
    told = "; ".join(
        f"{c.name}: {format_duration(float(middle[0]))} at token {int(x[0])}, "
        f"{format_duration(float(middle[-1]))} at token {int(x[-1])}"
        for c, x, middle, _, _ in curves
    )
    return [
        Plot(
            Lines(
                "position in the answer",
                f"time since the token before, {scale.unit}",
                lines,
                log_y=apart,
            ),
            "token-times",
            "Time of a token by its position, from the second on: median of all answers that are "
            "so long, and the middle 80\u00a0% of them (band)",
            f"Median time of a token by its position. {told}.",
        )
    ]


def _compute_times_by_position(found: Evaluation) -> tuple[Floats, Floats, Floats, Floats]:
    """Return positions from 2 on, and the median, p10 and p90 of the times there, in
    nanoseconds.
    """
    rows = found.ragged["token_ns"]
    times = rows.values.astype(np.float64)
    places = np.arange(len(times)) - np.repeat(rows.starts[:-1], rows.counts)
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(int(rows.counts.max(initial=0)) + 1))
    reached = [
        n for n in range(1, len(ends) - 1) if ends[n + 1] - ends[n] >= min(_FEWEST, len(found))
    ]
    if not reached:
        return (np.empty(0),) * 4
    parts = [np.quantile(times[order[ends[n] : ends[n + 1]]], (0.5, 0.1, 0.9)) for n in reached]
    middle, low, high = np.array(parts).T
    return np.array(reached, np.float64) + 1, middle, low, high


def _plot_interval_histogram(candidate: Candidate, found: Evaluation, prefix: str) -> list[Block]:
    seconds = get_token_intervals(found)[0]
    if len(seconds) < _FEWEST:
        return []
    times = np.maximum(seconds * 1e9, 1.0)
    scale = Scale.from_times([float(np.median(times))])
    low, high = float(times.min()), float(times.max())
    edges = np.geomspace(low, max(high, low * 1.01), _BINS + 1)
    counts, _ = np.histogram(np.clip(times, edges[0], edges[-1]), edges)
    told = (
        (word, 1e9 * Generation().metric(f"itl_{word}").compute(found)) for word, _ in PERCENTILES
    )
    marks = tuple((word, value / scale.divisor) for word, value in told if math.isfinite(value))
    axis = f"time since the token before, {scale.unit}"
    return [
        Plot(
            Histogram(axis, "tokens", edges / scale.divisor, counts, marks, True),
            f"{prefix}inter-token-latency",
            f"{candidate.name}: how often each inter-token latency occurred",
            f"Histogram of {len(times):,} inter-token latencies of {candidate.name}, from "
            f"{format_duration(low)} to {format_duration(high)}, median "
            f"{format_duration(float(np.median(times)))}.",
        )
    ]


def _plot_memory_by_context(judged: Sequence[tuple[Candidate, Evaluation]]) -> list[Block]:
    """Return the curve of the process's memory by the length of the context at the end of a
    request.
    """
    curves = [(c.name, *_compute_memory_by_context(c, found)) for c, found in judged]
    curves = [each for each in curves if len(each[1]) >= _FEWEST]
    if not curves:
        return []
    scale = Scale.from_sizes([float(np.median(memory)) for _, _, memory in curves])
    lines = tuple(
        reduce_to_columns(name, length, memory / scale.divisor) for name, length, memory in curves
    )
    told = "; ".join(
        f"{name}: {scale.text(float(memory[0]))} {scale.unit} at {int(length[0]):,} tokens, "
        f"{scale.text(float(memory[-1]))} {scale.unit} at {int(length[-1]):,}"
        for name, length, memory in curves
    )
    return [
        Plot(
            Lines("tokens of prompt and answer", f"memory of the process, {scale.unit}", lines),
            "context-memory",
            "Memory of the process by the length of the context, sampled while a request was "
            "answered",
            f"Memory of the process by the length of the context. {told}.",
        )
    ]


def _compute_memory_by_context(
    candidate: Candidate, found: Evaluation
) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return lengths of contexts in ascending order, and the greatest memory seen in requests of
    that length.
    """
    time, memory = select_known_values(candidate.resources, "process_bytes")
    calls = candidate.inference
    # Each prompt is answered once in order, before answers are repeated.
    if len(calls) < len(found) or "scheduled_ns" in calls or not len(time):
        return np.empty(0), np.empty(0)
    starts = calls["start_ns"][: len(found)]
    owners = np.searchsorted(starts, time, "right") - 1
    inside = owners >= 0
    inside[inside] = time[inside] <= starts[owners[inside]] + calls["latency_ns"][owners[inside]]
    context = found.arrays["prompt_tokens"] + found.ragged["token"].counts
    lengths, place = np.unique(context[owners[inside]], return_inverse=True)
    greatest = np.zeros(len(lengths))
    np.maximum.at(greatest, place, memory[inside])
    return lengths.astype(np.float64), greatest
