"""The verdict on several candidates: the best ones by how much, and whether the difference is
more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnpipe.measuring.quantities import format_in_sentence
from nnpipe.measuring.run_figures import compute_count_figure, get_counter
from nnpipe.report.document import Block, Cell, Paragraph, Table, Tile, Tiles
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_count,
    format_duration,
    format_number,
    format_share,
    format_size,
)
from nnpipe.report.inputs.candidate import (
    Candidate,
    compare_candidate_quality,
    explain_unequal_work,
    find_leading_quality,
    format_quality,
    have_same_samples,
    list_role_components,
)
from nnpipe.report.inputs.pareto_front import ParetoStanding, is_barred
from nnpipe.report.quantity_text import format_quantity, format_warning_kinds
from nnpipe.report.sections.validity_warnings import group_reasons

_LEVEL = 1.05  # sizes up to this ratio count as equal


def build_verdict_blocks(
    candidates: Sequence[Candidate], standings: Mapping[int, ParetoStanding]
) -> list[Block]:
    """Return tiles of the best candidates, and a paragraph that names those on the Pareto front.

    The tiles name the fastest candidate, the one of the best quality, the smallest, and the one
    with the least memory. ``standings`` is the result of
    :func:`~nnpipe.report.inputs.pareto_front.compute_pareto_standings`.
    """
    same = have_same_samples(candidates)
    best_quality = _create_best_quality_tile(candidates) if same else None
    tiles = [
        _create_fastest_tile(candidates),
        best_quality,
        _create_smallest_tile(candidates),
        _create_least_memory_tile(candidates),
    ]
    found = tuple(tile for tile in tiles if tile is not None)
    blocks: list[Block] = [Tiles(found)] if found else []
    leading = find_leading_quality(candidates)
    if leading is None:
        return blocks
    front = [c.name for c in candidates if c.number in standings and standings[c.number].on_front]
    choice = _describe_choice(front, standings, format_in_sentence(leading.metric.title))
    barred = [c.name for c in candidates if is_barred(c)]
    if choice and barred:
        choice += f" Left out, since there are doubts about predictions: {', '.join(barred)}."
    return [*blocks, Paragraph(choice)] if choice else blocks


def _create_fastest_tile(candidates: Sequence[Candidate]) -> Tile | None:
    timed = sorted(
        ((c, c.latency) for c in candidates if c.latency is not None),
        key=lambda pair: pair[1].median,
    )
    if len(timed) < 2 or len({c.timed.name for c, _ in timed}) > 1:
        return None
    if not timed[0][0].timed.ranks:
        return _create_fewest_counts_tile(candidates)
    (best, latency), (second, runner_up) = timed[:2]
    mine, theirs = latency.percentile(0.5).interval, runner_up.percentile(0.5).interval
    note = f"median {format_duration(latency.median)}"
    slowest, slow = timed[-1]
    unlike = next(
        (why for c, _ in timed[1:] if (why := explain_unequal_work(best.quality, c.quality))), ""
    )
    if unlike:
        return Tile("Least time of a call", best.name, f"{note}; not of the same work: {unlike}")
    if mine is None or theirs is None or mine[1] >= theirs[0]:
        note += f", not clearly ahead of {second.name}"
    elif latency.median > 0:
        note += (
            f", {format_number(slow.median / latency.median, 2)} times as fast as {slowest.name}"
        )
    return Tile("Fastest", best.name, note)


def _create_fewest_counts_tile(candidates: Sequence[Candidate]) -> Tile | None:
    """Return the candidate with the fewest instructions or cycles, if all targets count the
    same.
    """
    (counter, *others) = {get_counter(c.run) for c in candidates}
    if others or not counter:
        return None
    counted = [(compute_count_figure(c.run, counter).value, c) for c in candidates]
    known = sorted(
        ((value, c) for value, c in counted if value is not None), key=lambda pair: pair[0]
    )
    if len(known) < 2:
        return None
    (least, best), (most, greatest) = known[0], known[-1]
    note = f"{format_number(least)} {counter}"
    if 0 < least < most:
        note += f", {greatest.name} needs {format_number(most / least, 2)} times as many"
    return Tile(f"Fewest {counter}", best.name, f"{note}; how long they take is not known")


def _create_best_quality_tile(candidates: Sequence[Candidate]) -> Tile | None:
    known = [(c, c.quality) for c in candidates if c.quality is not None and c.quality.is_known]
    judged = sorted(known, key=lambda pair: -pair[1].rank)
    if len(judged) < 2 or len({quality.metric.name for _, quality in judged}) > 1:
        return None
    best, quality = judged[0]
    metric = quality.metric
    label = f"{'Least' if metric.less_is_better else 'Best'} {format_in_sentence(metric.title)}"
    note = format_quantity(quality.quantity, quality.value)
    if judged[-1][1].value == quality.value:
        return Tile(label, "all alike", f"{note} each")
    level = [c for c, other in judged[1:] if _is_difference_unclear(best, c)]
    if len(level) == len(judged) - 1:
        note += ", but all others may be as good"
    elif level:
        note += (
            f", but {level[0].name if len(level) == 1 else f'{len(level)} others'} may be as good"
        )
    return Tile(label, best.name, note)


def _is_difference_unclear(one: Candidate, two: Candidate) -> bool:
    pair = compare_candidate_quality(one, two)
    return pair is None or pair.gap.low <= 0 <= pair.gap.high


def _create_smallest_tile(candidates: Sequence[Candidate]) -> Tile | None:
    return _create_least_tile("Smallest", [(c, c.size) for c in candidates], "model of")


def describe_size(candidate: Candidate) -> str:
    """Return of what the size of a model is, such as of code and constants; empty for that of
    its files.
    """
    return clean(candidate.run.artifact.get("size_of", ""), 80)


def _create_least_memory_tile(candidates: Sequence[Candidate]) -> Tile | None:
    return _create_least_tile(
        "Least memory", [(c, c.peak_memory) for c in candidates], "process at its peak"
    )


def _create_least_tile(
    label: str, given: Sequence[tuple[Candidate, float | None]], what: str
) -> Tile | None:
    known = sorted(
        ((c, value) for c, value in given if value is not None), key=lambda pair: pair[1]
    )
    if len(known) < 2:
        return None
    (best, value), (_, greatest) = known[0], known[-1]
    if greatest <= _LEVEL * value:
        return None
    times = (
        f", the largest takes {format_number(greatest / value, 2)} times as much"
        if value > 0
        else ""
    )
    return Tile(label, best.name, f"{what} {format_size(value)}{times}")


def _describe_choice(
    front: Sequence[str], standings: Mapping[int, ParetoStanding], metric: str
) -> str:
    """Return a sentence that names the candidates on the front; the empty string if there is no
    front.
    """
    if not front:
        return ""
    if len(front) == 1:
        return f"{front[0]} is the fastest, and none has a better {metric}."
    if len(front) == len(standings):
        return (
            f"Each candidate has its point: none is beaten by another in both median time and "
            f"{metric}."
        )
    names = ", ".join(front[:-1]) + f" and {front[-1]}"
    return (
        f"The choice is between {names}: every other is beaten by one of these in both median time "
        f"and {metric}."
    )


def describe_source_agreement(candidate: Candidate) -> str:
    """Return how many samples agree with the model that a candidate was made from; empty if none
    were compared.
    """
    if candidate.verified_samples is None:
        return ""
    samples = f"{format_count(int(candidate.verified_samples))} samples"
    if candidate.same_class is None:
        return f"on {samples}"
    return f"{format_count(int(candidate.same_class))} of {samples}"


def build_departure_blocks(candidates: Sequence[Candidate]) -> list[Block]:
    """Return paragraphs about candidates that could not be compared with their source; a
    difference is a doubt.
    """

    def format_name(name: str) -> str:
        return name if len(candidates) > 1 else "This model"

    return group_reasons(
        [(c.name, c.verdict_reason) for c in candidates if c.verdict == "unknown"],
        lambda name: (
            f"{format_name(name)} could not be held against the model that it was made from: "
        ),
        f"of {len(candidates):,} candidates could not be held against the models that they were "
        f"made from.",
        "note",
    )


_TIMES = ("Size", "Load", "Median", "p90")
_AGREEMENT = ("Same class", "Error", "As its source", "Doubts")


@dataclass(frozen=True)
class CandidateFailure:
    """A candidate that could not be measured.

    Parameters
    ----------
    place
        Its position among all candidates, from 0.
    title
        Its title.
    cause
        The reason, in one line.
    """

    place: int
    title: str
    cause: str


def build_outcome_table(
    candidates: Sequence[Candidate], failures: Sequence[CandidateFailure] = ()
) -> Table:
    """Return the table of size, load time, median and 90th percentile, quality, agreement with the
    source, and doubts.

    ``Same class`` is the share of the samples that get the same class as from the source, and
    ``Error`` is the largest relative error of an output.
    """
    sizes = Scale.from_sizes([c.size for c in candidates])
    loads = Scale.from_times([c.load_ns for c in candidates])
    times = Scale.from_times([c.latency.median if c.latency else None for c in candidates])
    rows: list[tuple[Cell, ...]] = []
    for candidate in candidates:
        latency = candidate.latency
        texts = (
            loads.text(candidate.load_ns),
            times.text(latency.median if latency else None),
            times.text(latency.percentile(0.9).value if latency else None),
            format_quality(candidate),
            format_share(_compute_same_class_share(candidate)),
            _format_largest_error(candidate),
            candidate.verdict or NOTHING,
            format_warning_kinds(candidate.doubts) if latency else NOTHING,
        )
        size = Cell(sizes.text(candidate.size), None, describe_size(candidate))
        rows.append((Cell(candidate.name), size, *map(Cell, texts)))
    for failure in sorted(failures, key=lambda failure: failure.place):
        blank = (NOTHING,) * (len(_TIMES) + len(_AGREEMENT) - 1)
        rows.insert(
            failure.place, tuple(map(Cell, (clean(failure.title, 120), *blank, "failed", NOTHING)))
        )
    units = {"Size": sizes.unit, "Load": loads.unit, "Median": times.unit, "p90": times.unit}
    header = (
        "Candidate",
        *(f"{name}, {units[name]}" for name in _TIMES),
        _find_quality_heading(candidates),
        *_AGREEMENT,
    )
    return Table(header, tuple(rows))


def build_failure_warnings(failures: Sequence[CandidateFailure]) -> list[Block]:
    """Return a warning for each failed candidate, with the reason."""
    return [
        Paragraph(
            f"{clean(failure.title, 120)} could not be measured: {clean(failure.cause, 600)}",
            "warning",
        )
        for failure in failures
    ]


def _find_quality_heading(candidates: Sequence[Candidate]) -> str:
    """Return the heading of the metric by which the candidates are ranked, if all of them have
    the same one.
    """
    headings = {
        candidate.quality.metric.heading
        for candidate in candidates
        if candidate.quality is not None
    }
    return headings.pop() if len(headings) == 1 else "Quality"


def _compute_same_class_share(candidate: Candidate) -> float | None:
    if candidate.same_class is None or not candidate.verified_samples:
        return None
    return candidate.same_class / candidate.verified_samples


def _format_largest_error(candidate: Candidate) -> str:
    """Return the largest relative error of an output as text; it may have any order of
    magnitude.
    """
    found = []
    for tensor in list_role_components(candidate.run.verification.get("tensors")):
        value = tensor.get("max_relative") if isinstance(tensor, Mapping) else None
        if value == "infinite":
            return "infinite"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found.append(float(value))
    if not found:
        return NOTHING
    largest = max(found)
    return f"{largest:.1e}" if 0 < largest < 1e-3 else format_number(largest, 2)
