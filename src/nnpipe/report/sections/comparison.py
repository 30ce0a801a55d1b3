"""The section on a comparison of candidates that took turns: verdicts, a plot of the ratios of
times, and a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnpipe.analysis.quality_intervals import QualityDifference, compute_quality_difference
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.comparison import Comparison, check_slow_candidates
from nnpipe.measuring.diagnosis import check_settings
from nnpipe.measuring.paired_comparison import ComparisonPlan, Verdict
from nnpipe.measuring.quality_warnings import check_quality, is_preparation_unknown
from nnpipe.measuring.quantities import difference_of, format_in_sentence, quality_of
from nnpipe.measuring.run import Run
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.report.charts import Interval, Intervals
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_count,
    format_number,
    format_share,
)
from nnpipe.report.inputs.candidate import describe_sample_differences, explain_unequal_work
from nnpipe.report.inputs.quality import Quality, is_comparable
from nnpipe.report.quantity_text import (
    format_metric_difference,
    format_quantity,
    format_warning_kinds,
)

_TIMES_FROM = 1.5  # ratios from here on are written as multiples, smaller ones as percentages
_BUSY_IDLE = 5.0  # percent of a core that a waiting candidate may take without a remark
_FEW_CALLS = 10


@dataclass(frozen=True)
class QualityGap:
    """The difference of a metric between two candidates on the same samples."""

    metric: QualityMetric
    gap: QualityDifference


def describe_comparison(comparison: Comparison) -> list[str]:
    """Return sentences that compare each candidate with the fastest one in time and quality, and
    the remarks.
    """
    runs, names = comparison.whole, [clean(run.title, 60) for run in comparison.whole]
    found = comparison.compare_pairs()
    if not found:
        return ["Nothing could be compared: fewer than two candidates ran."]
    best = find_leader(found)
    against = [each for each in found if best in (each.first, each.second)]
    per_start = comparison.seconds / max(1, max(each.starts for each in found))
    judged = [Quality.from_run(run) for run in runs]
    told = []
    for each in against:
        unlike = explain_unequal_work(judged[each.first], judged[each.second])
        if unlike:
            both = f"{names[each.first]} and {names[each.second]}"
            told.append(f"The times of {both} are not of the same work: {unlike}.")
        else:
            told.append(describe_time_verdict(each, names, comparison.plan, per_start))
    for part in comparison.parts:
        of_part = [
            each
            for each in comparison.compare_pairs(part=part)
            if best in (each.first, each.second)
        ]
        told += [
            f"In {part.upper()}, {describe_time_verdict(each, names, comparison.plan, per_start)}"
            for each in of_part
        ]
    for place, run in enumerate(runs):
        for gap in (
            compute_quality_gaps(runs[best], run, comparison.plan.confidence)
            if place != best
            else ()
        ):
            said = describe_quality_gap(gap, names[best], names[place])
            unknown = is_preparation_unknown(runs[best]) or is_preparation_unknown(run)
            told.append(
                f"If both were given samples as they want them: {said}" if unknown else said
            )
    return told + list_remarks(comparison)


def find_leader(found: Sequence[Verdict]) -> int:
    """Return the index of the fastest candidate: the one that is ahead in most of its pairs."""
    ahead: dict[int, int] = {}
    for each in found:
        ahead[each.first] = ahead.get(each.first, 0) + 1
        ahead.setdefault(each.second, 0)
    return max(ahead, key=lambda place: (ahead[place], -place))


def describe_time_verdict(
    found: Verdict, names: Sequence[str], plan: ComparisonPlan, seconds_per_start: float
) -> str:
    """Return a verdict on two candidates as a sentence."""
    first, second = names[found.first], names[found.second]
    longer = f"{second} takes {_format_ratio(found.ratio, found.interval)}"
    if found.kind == "faster":
        return f"{first} is faster than {second}: {longer}."
    if found.kind == "same":
        return (
            f"{first} and {second} are the same within {_format_percent(plan.margin or 0.0)}: "
            f"{longer}."
        )
    if found.interval is None:
        return (
            f"{first} and {second} cannot be told apart: {format_count(found.starts)} starts "
            f"support no interval; {_format_more_starts(found.more, seconds_per_start)} would be "
            f"needed."
        )
    most = max(found.interval[1] - 1, 1 / found.interval[0] - 1)
    wanted = (
        f"about {_format_more_starts(found.more, seconds_per_start)} would be needed"
        if found.more is not None
        else "no number of starts that anybody would make tells such a difference"
    )
    return (
        f"{first} and {second} cannot be told apart: {longer}, {_format_percent(most)} at most; "
        f"{wanted}."
    )


def compute_quality_gaps(first: Run, second: Run, confidence: float) -> tuple[QualityGap, ...]:
    """Return the difference of each metric that the task compares; none unless both were judged
    on the same samples.
    """
    one, two = Quality.from_run(first), Quality.from_run(second)
    if one is None or two is None or not is_comparable(one, two):
        return ()
    found = (
        QualityGap(
            metric, compute_quality_difference(metric, one.evaluation, two.evaluation, confidence)
        )
        for metric in one.task.compared
    )
    return tuple(each for each in found if not math.isnan(each.gap.value))


def describe_quality_gap(found: QualityGap, first: str, second: str) -> str:
    """Return a sentence that compares the quality of two candidates."""
    metric, gap, samples = found.metric, found.gap, f"on {format_count(found.gap.samples)} samples"
    title, unit = format_in_sentence(metric.title), " points" if metric.kind == "share" else ""
    if gap.gained == gap.lost == 0:
        if math.isnan(gap.p_value):
            return (
                f"{first} and {second} do equally well on each of {format_count(gap.samples)} "
                f"samples."
            )
        return (
            f"{first} and {second} are right and wrong on the same of {format_count(gap.samples)} "
            f"samples."
        )
    interval = (
        f"[{format_metric_difference(metric, gap.low)}, "
        f"{format_metric_difference(metric, gap.high)}]{unit}"
    )
    if gap.low > 0 or gap.high < 0:
        second_leads = (gap.value > 0) != metric.less_is_better
        better, worse = (second, first) if second_leads else (first, second)
        value, low, high = (
            _format_magnitude(metric, each)
            for each in (gap.value, *sorted((gap.low, gap.high), key=abs))
        )
        chance = "p < 0.0001" if gap.p_value < 1e-4 else f"p = {format_number(gap.p_value, 2)}"
        test = "" if math.isnan(gap.p_value) else f" (McNemar {chance})"
        than = f"has a better {title} than {worse}"
        return f"{better} {than}, by {value} [{low}, {high}]{unit} {samples}{test}."
    told = f"The {title} of {first} and of {second} cannot be told apart {samples}: "
    told += f"{format_metric_difference(metric, gap.value)} {interval}"
    needed = estimate_samples_needed(gap)
    return (
        f"{told}; about {format_count(needed)} more samples would be needed."
        if needed
        else f"{told}."
    )


def _format_magnitude(metric: QualityMetric, value: float) -> str:
    return f"{100 * abs(value):.2f}" if metric.kind == "share" else format_number(abs(value))


def estimate_samples_needed(gap: QualityDifference) -> int | None:
    """Return an estimate of how many more samples would show a difference of quality; ``None``
    if it is 0.
    """
    reach = (gap.high - gap.low) / 2
    if not gap.value or not math.isfinite(reach):
        return None
    return max(1, math.ceil(gap.samples * (reach / abs(gap.value)) ** 2) - gap.samples)


def list_remarks(comparison: Comparison) -> list[str]:
    """Return sentences about doubtful figures and about candidates that failed."""
    told = []
    for run in comparison.whole:
        idle = run.timing.get("idle_cpu_percent")
        if isinstance(idle, (int, float)) and idle > _BUSY_IDLE:
            told.append(
                f"Mind that {clean(run.title, 60)} kept {format_number(float(idle), 2)} % of a "
                f"core busy while others had "
                "their turn, and may have slowed them down; fewer threads (num_threads), or "
                "OMP_WAIT_POLICY=passive, stop that."
            )
    told += [
        f"Mind that the quality of {clean(run.title, 60)} is in doubt ({doubt.kind}): "
        f"{clean(doubt.reason, 600)}."
        for run in comparison.whole
        for doubt in check_quality(run)
    ]
    told += [
        f"Mind that {clean(run.title, 60)} is {clean(doubt.reason, 600)}."
        for run in comparison.whole
        for doubt in check_settings(run)
    ]
    told += [
        f"Mind that {clean(title, 60)} is {clean(doubt.reason, 600)}."
        for title, doubt in check_slow_candidates(comparison.whole).items()
    ]
    if unlike := describe_sample_differences(
        [(clean(run.title, 60), Quality.from_run(run)) for run in comparison.whole]
    ):
        told.append(unlike)
    told += [
        f"{clean(title, 60)} fell out: {clean(reason)}"
        for title, reason in comparison.failures.items()
    ]
    return told


def _list_warnings(run: Run, slow: Mapping[str, ValidityWarning]) -> tuple[ValidityWarning, ...]:
    """Return the doubts that also apply to candidates that took turns; varying times show in the
    intervals instead.
    """
    return (
        *check_quality(run),
        *check_settings(run),
        *([slow[run.title]] if run.title in slow else []),
    )


def build_comparison_table(comparison: Comparison) -> Table:
    """Return a table with a row for each candidate and ratios to the fastest candidate."""
    runs, confidence = comparison.whole, comparison.plan.confidence
    found, tails = comparison.compare_pairs(), comparison.compare_pairs(0.9)
    best = find_leader(found) if found else 0
    medians = [_compute_quantile(run, 0.5) for run in runs]
    scale, slow = Scale.from_times(medians), check_slow_candidates(runs)
    columns = [
        ("Candidate", [Cell(clean(run.title, 60)) for run in runs]),
        # The second column is visible on a narrow screen, too.
        (
            "Doubts",
            [
                Cell(
                    format_warning_kinds(doubts)
                    if (doubts := _list_warnings(run, slow))
                    else NOTHING
                )
                for run in runs
            ],
        ),
        (f"Median, {scale.unit}", [Cell(scale.text(value, 4), value) for value in medians]),
        (
            "Time by the fastest's",
            [_format_ratio_cell(place, best, found) for place in range(len(runs))],
        ),
        (
            f"p90, {scale.unit}",
            [
                Cell(scale.text(_compute_quantile(run, 0.9), 4), _compute_quantile(run, 0.9))
                for run in runs
            ],
        ),
        (
            "p90 by the fastest's",
            [_format_ratio_cell(place, best, tails) for place in range(len(runs))],
        ),
        *(
            column
            for part in comparison.parts
            for column in _build_part_columns(comparison, part, best)
        ),
        *(
            column
            for metric in _list_compared_metrics(runs)
            for column in _build_metric_columns(metric, runs, best, confidence)
        ),
        (
            "Starts",
            [_format_count_cell(len(np.unique(run.series["inference"]["start"]))) for run in runs],
        ),
        ("Calls", [_format_count_cell(len(run.series["inference"])) for run in runs]),
    ]
    columns = [column for column in columns if any(cell.text != NOTHING for cell in column[1])]
    points = [
        difference_of(metric).heading
        for metric in _list_compared_metrics(runs)
        if metric.kind == "share"
    ]
    points_said = (
        f"; {' and '.join(points)} {'is' if len(points) == 1 else 'are'} in percentage points"
        * bool(points)
    )
    return Table(
        tuple(name for name, _ in columns),
        tuple(zip(*(cells for _, cells in columns), strict=True)),
        caption="Candidates that took turns. All intervals of times hold together with "
        f"{format_share(comparison.plan.confidence, 0)} confidence{points_said}.",
    )


def _build_part_columns(
    comparison: Comparison, part: str, best: int
) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the columns of a part of calls' times: its median, and the ratio to that of the
    fastest candidate.
    """
    medians = [_compute_quantile(run, 0.5, f"{part}_ns") for run in comparison.whole]
    scale, name, found = (
        Scale.from_times(medians),
        part.upper(),
        comparison.compare_pairs(part=part),
    )
    yield f"{name}, {scale.unit}", [Cell(scale.text(value, 4), value) for value in medians]
    yield (
        f"{name} by the fastest's",
        [_format_ratio_cell(place, best, found) for place in range(len(medians))],
    )


def _list_compared_metrics(runs: Sequence[Run]) -> tuple[QualityMetric, ...]:
    """Return the metrics that the first task of the runs compares."""
    return next(
        (found.task.compared for run in runs if (found := Quality.from_run(run)) is not None), ()
    )


def _build_metric_columns(
    metric: QualityMetric, runs: Sequence[Run], best: int, confidence: float
) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the columns of a metric: its value, and the difference to that of the fastest
    candidate.
    """
    yield metric.heading, [_format_quality_cell(run, metric) for run in runs]
    gaps = (
        [
            g
            for g in compute_quality_gaps(runs[best], run, confidence)
            if g.metric.name == metric.name
        ]
        for run in runs
    )
    yield (
        difference_of(metric).heading,
        [
            _format_gap_cell(gap[0] if gap else None, place == best)
            for place, gap in enumerate(gaps)
        ],
    )


def _format_ratio_cell(place: int, best: int, found: Sequence[Verdict]) -> Cell:
    if place == best:
        return Cell("1", 1.0)
    for each in found:
        if {each.first, each.second} == {place, best}:
            turned = each.second != place
            ratio = 1 / each.ratio if turned else each.ratio
            ends = each.interval
            if ends is None:
                return Cell(f"{ratio:.4f}", ratio)
            low, high = (1 / ends[1], 1 / ends[0]) if turned else ends
            return Cell(f"{ratio:.4f} [{low:.4f}, {high:.4f}]", ratio)
    return Cell(NOTHING)


def _format_count_cell(number: int) -> Cell:
    return Cell(format_count(number), float(number))


def _compute_quantile(run: Run, quantile: float, column: str = "latency_ns") -> float | None:
    times = run.series["inference"][column]
    times = times[times >= 0]
    fewest = 1 if quantile == 0.5 else _FEW_CALLS
    return float(np.quantile(times, quantile)) if len(times) >= fewest else None


def _format_quality_cell(run: Run, metric: QualityMetric) -> Cell:
    found = Quality.from_run(run)
    if found is None or metric.name not in [each.name for each in found.task.compared]:
        return Cell(NOTHING)
    value = found.value if metric.name == found.metric.name else metric.compute(found.evaluation)
    if math.isnan(value):
        return Cell(NOTHING)
    text = format_quantity(quality_of(metric), value)
    return Cell(f"{text} (?)" if check_quality(run) else text, value)


def _format_gap_cell(found: QualityGap | None, is_best: bool) -> Cell:
    if found is None or is_best:
        return Cell(NOTHING)
    value, low, high = (
        format_metric_difference(found.metric, each)
        for each in (found.gap.value, found.gap.low, found.gap.high)
    )
    return Cell(f"{value} [{low}, {high}]", found.gap.value)


def _format_ratio(ratio: float, interval: tuple[float, float] | None) -> str:
    if ratio >= _TIMES_FROM:
        ends = (
            ""
            if interval is None
            else f" [{format_number(interval[0], 4)}, {format_number(interval[1], 4)}]"
        )
        return f"{format_number(ratio, 4)} times{ends} as long"
    if interval is None:
        return f"{100 * (ratio - 1):.1f} % longer"
    low, high = (100 * (end - 1) for end in interval)
    # The number of decimals follows from the width of the interval.
    decimals = min(max(1, -math.floor(math.log10(max(high - low, 1e-6) / 5))), 4)
    ends = f"[{low:.{decimals}f}, {high:.{decimals}f}]".replace("-", "−")
    return f"{100 * (ratio - 1):.{decimals}f} % {ends} longer"


def _format_percent(value: float) -> str:
    return f"{format_number(100 * value, 2)} %"


def _format_more_starts(starts: int | None, seconds_per_start: float) -> str:
    number = starts or 0
    seconds = number * seconds_per_start
    time = (
        f"{format_number(seconds / 60, 2)} min"
        if seconds >= 90
        else f"{format_number(seconds, 2)} s"
    )
    return f"{format_count(number)} more start{'s' * (number != 1)} ({time})"


_WIDE = 1.5  # from this ratio on the axis is logarithmic, so that equal ratios are equally long


def build_comparison_section(comparison: Comparison) -> Section:
    """Return the section."""
    doubtful = set(list_remarks(comparison))
    blocks: list[Block] = [
        Paragraph(text, "warning" if text in doubtful else "plain")
        for text in describe_comparison(comparison)
    ]
    figure = _plot_ratios(comparison)
    if figure is not None:
        blocks += [figure, build_comparison_table(comparison)]
    return Section("Side by side", tuple(blocks))


def _plot_ratios(comparison: Comparison) -> Plot | None:
    found = comparison.compare_pairs()
    if not found:
        return None
    names = [clean(run.title, 60) for run in comparison.whole]
    best = find_leader(found)
    rows = tuple(
        _create_ratio_interval(each, best, names)
        for each in found
        if best in (each.first, each.second)
    )
    margin = comparison.plan.margin or 0.0
    within = (
        f"; within the grey band, {100 * margin:g} % either way, times count as the same"
        if margin
        else ""
    )
    sure = format_share(comparison.plan.confidence, 0)
    starts = max(each.starts for each in found)
    return Plot(
        Intervals(
            f"time by that of {names[best]}"[:60],
            rows,
            1.0,
            margin,
            log_x=max(row.value for row in rows) > _WIDE and all(row.value > 0 for row in rows),
        ),
        "ratios-of-times",
        f"How long each takes by the time of {names[best]}, from {format_count(starts)} starts in "
        f"which all took turns; all intervals hold together with {sure} confidence. Hollow: not "
        f"told apart{within}",
        f"Ratios of times to {names[best]}: "
        + "; ".join(f"{row.label} {row.text}" for row in rows)
        + ".",
    )


def _create_ratio_interval(found: Verdict, best: int, names: list[str]) -> Interval:
    other = found.second if found.first == best else found.first
    turned = found.first != best
    ratio, ends = found.ratio, found.interval
    if turned:
        ratio, ends = 1 / ratio, None if ends is None else (1 / ends[1], 1 / ends[0])
    text = f"{ratio:.3f}" if ends is None else f"{ratio:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
    return Interval(names[other], ratio, ends, text, other, clear=found.kind == "faster")
