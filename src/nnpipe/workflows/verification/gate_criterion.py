"""A criterion of a gate: it holds, it fails, or the data cannot decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnpipe.analysis.quality_intervals import compute_quality_difference
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.measuring.comparison import Comparison, compute_block_quantiles, read_result
from nnpipe.measuring.constraints import Figure, MetricConstraint
from nnpipe.measuring.paired_comparison import Centre, Medians, compute_centre, start_ratios
from nnpipe.measuring.quality_warnings import is_preparation_unknown
from nnpipe.measuring.quantile_intervals import compute_quantile_interval
from nnpipe.measuring.quantities import format_in_sentence
from nnpipe.measuring.run import Run
from nnpipe.measuring.statistics import count_samples_needed
from nnpipe.report.inputs.quality import Quality, is_comparable
from nnpipe.report.quantity_text import format_figure_interval, format_quantity
from nnpipe.workflows.sweep.estimates import Figures

Status = Literal["pass", "fail", "undecided"]
Unit = Literal["%", "points", ""]
_MOST = 1e9  # of additional calls or samples that a message asks for


@dataclass(frozen=True)
class GatedCandidate:
    """A candidate in a result file; ``whole`` is its comparison, if it took part in one."""

    name: str
    run: Run
    whole: Comparison | None = None

    def is_same_result(self, other: GatedCandidate) -> bool:
        """Return whether both are one measurement, so that nothing differs between them."""
        if self.run is other.run:
            return True
        named = ("title", "created")
        alike = all(getattr(self.run, name) == getattr(other.run, name) for name in named)
        return alike and self.run.to_json() == other.run.to_json()


@dataclass(frozen=True)
class Criterion:
    """A metric that must not get worse by more than a limit.

    Attributes
    ----------
    name, limit
        The metric, and the greatest allowed change, as a share of the time or of the samples, or in
        the metric's unit.
    status
        ``"pass"``, ``"fail"`` or ``"undecided"``.
    value, interval
        The change and its interval; ``None`` if unknown.
    basis
        The data that decided it, or the reason why it is undecided.
    more
        What would decide it, as text; empty if it is decided, or nothing would.
    unit
        The unit in text: ``"%"`` of a time, ``"points"`` of a percentage, or none for metrics that
        are no shares.
    found
        What was found and what is wanted, as text; empty if it follows from the numbers.
    blocks
        Whether it never counts as passed, since an answer is missing that no more data would give.
    """

    name: str
    limit: float
    status: Status
    value: float | None
    interval: tuple[float, float] | None
    basis: str
    more: str = ""
    unit: Unit = "%"
    found: str = ""
    blocks: bool = False

    def __str__(self) -> str:
        """Return the change and the limit in one line."""
        if self.found:
            return f"{self.status}: {self.found} ({self.basis})"
        unit = f" {self.unit}" if self.unit else ""
        allowed = f"at most {100 * self.limit if self.unit else self.limit:g}{unit} allowed"
        if self.value is None:
            found = "cannot be told"
        else:
            found = f"{self._format_number(self.value)}{unit}"
            if self.interval is not None:
                found += (
                    f" [{self._format_number(self.interval[0])}, "
                    f"{self._format_number(self.interval[1])}]"
                )
        return f"{self.status}: {self.name} {found}, {allowed} ({self.basis})"

    def _format_number(self, value: float) -> str:
        return f"{100 * value:.2f}".replace("-0.00", "0.00") if self.unit else f"{value:.4g}"

    def to_json(self) -> dict[str, Any]:
        """Return the criterion as JSON can hold it."""
        return {
            "name": self.name,
            "limit": self.limit,
            "status": self.status,
            "value": self.value,
            "interval": self.interval and list(self.interval),
            "basis": self.basis,
            "more": self.more,
        }


def build_same_criterion(name: str, limit: float, unit: Unit = "%") -> Criterion:
    """Return the criterion of a result that is compared with itself."""
    return build_criterion(
        name, limit, Centre(0.0, (0.0, 0.0), 1, 1), "the same result", "results", unit
    )


def build_criterion(
    name: str, limit: float, found: Centre, basis: str, counted: str, unit: Unit = "%"
) -> Criterion:
    """Return the criterion decided by an interval of logarithms of ratios, or of differences."""
    outer = math.log1p if unit == "%" else float
    inner = math.expm1 if unit == "%" else float
    allowed, value = outer(limit), inner(found.value)
    if found.interval is None:
        return Criterion(
            name,
            limit,
            "undecided",
            value,
            None,
            basis,
            f"{found.needed - found.number:,} more {counted}",
            unit,
        )
    low, high = found.interval
    interval = inner(low), inner(high)
    if high <= allowed:
        return Criterion(name, limit, "pass", value, interval, basis, unit=unit)
    if low > allowed:
        return Criterion(name, limit, "fail", value, interval, basis, unit=unit)
    # Intervals shrink with the square root of the number.
    distance = abs(allowed - found.value)
    needed = found.number * (found.reach / distance) ** 2 if distance else math.inf
    more = (
        f"about {max(1, math.ceil(needed) - found.number):,} more {counted}"
        if needed < _MOST
        else ""
    )
    return Criterion(name, limit, "undecided", value, interval, basis, more, unit)


def check_constraint(
    baseline: GatedCandidate, new: GatedCandidate, constraint: MetricConstraint, confidence: float
) -> Criterion:
    """Return the criterion of a constraint on the new result; losses are against the baseline."""
    metric = constraint.metric
    figure = Figures(new.run, baseline.run).get_figure(metric, confidence)
    of_both = metric.compared or metric.name == "agreement"
    if of_both and figure.value is not None and baseline.is_same_result(new):
        figure = Figure.exactly(figure.value)
    judged = [
        each.run.evaluation
        for each in ((new, baseline) if of_both else (new,))
        if of_both or metric.metric
    ]
    words = next(
        (found for each in judged if each is not None and (found := each.describe_nonfinite())), ""
    )
    if words or figure.value is None:
        reason = words or figure.reason
        found = f"{metric.name} cannot be told, {constraint.text} is wanted"
        return Criterion(
            metric.name,
            constraint.bound,
            "undecided",
            None,
            None,
            reason,
            found=found,
            blocks=bool(words),
        )
    holds = constraint.evaluate(figure)
    basis = (
        "exact"
        if figure.low == figure.high
        else format_figure_interval(metric, figure) or "no interval"
    )
    found = f"{metric.name} is {format_quantity(metric, figure.value)}, {constraint.text} is wanted"
    ends = (figure.low, figure.high) if math.isfinite(figure.high - figure.low) else None
    if holds is None:
        return Criterion(
            metric.name,
            constraint.bound,
            "undecided",
            figure.value,
            ends,
            basis,
            "more samples",
            found=found,
        )
    status: Status = "pass" if holds else "fail"
    return Criterion(metric.name, constraint.bound, status, figure.value, ends, basis, found=found)


def check_quality_loss(
    baseline: GatedCandidate,
    new: GatedCandidate,
    limit: float,
    confidence: float,
    judge_unknown: bool = False,
    metric: str = "",
) -> Criterion:
    """Return the criterion of the loss of quality, on the same samples.

    ``metric`` is a metric of the task; by default, the one by which candidates are ranked.
    If the preprocessing is not known, a metric says nothing about the model.  Then
    the criterion is undecided, unless ``judge_unknown``.

    Raises
    ------
    ConfigError
        If a result has no judged predictions, or their task has no such metric.
    """
    one, two = (_require_quality(each, metric) for each in (baseline, new))
    computed = one.task.metric(metric) if metric else one.metric
    name = f"{format_in_sentence(computed.title)} loss"
    unit: Unit = "points" if computed.kind == "share" else ""
    unknown = [each.name for each in (baseline, new) if is_preparation_unknown(each.run)]
    if unknown and not judge_unknown:
        basis = (
            f"preprocessing not known of {' and '.join(dict.fromkeys(unknown))}: say it when "
            f"measuring (--scale, "
            "--mean, --deviation), or judge all the same with --judge-unknown"
        )
        return Criterion(name, limit, "undecided", None, None, basis, unit=unit)
    if not is_comparable(one, two):
        return Criterion(
            name, limit, "undecided", None, None, "not judged on the same samples", unit=unit
        )
    for each, judged in ((new, two), (baseline, one)):
        if words := judged.evaluation.describe_nonfinite():
            return Criterion(
                name,
                limit,
                "undecided",
                None,
                None,
                f"{each.name}: {words}",
                unit=unit,
                blocks=True,
            )
    if baseline.is_same_result(new):
        return build_same_criterion(name, limit, unit)
    gap = compute_quality_difference(computed, one.evaluation, two.evaluation, confidence)
    sign = 1 if computed.less_is_better else -1
    low, high = sorted((sign * gap.low, sign * gap.high))
    ends = (low, high) if math.isfinite(high - low) else None
    found = Centre(sign * gap.value, ends, gap.samples, 1)
    basis = f"{gap.samples:,} samples"
    if gap.gained >= 0:
        basis = f"{gap.lost:,} lost and {gap.gained:,} won of {basis}"
    return build_criterion(name, limit, found, basis, "samples", unit)


def _require_quality(each: GatedCandidate, metric: str) -> Quality:
    try:
        found = Quality.from_run(each.run)
    except ArtifactError as error:
        raise ArtifactError(f"{each.name}: {error}") from None
    if found is None:
        raise ConfigError(
            f"{each.name}: it holds no judged predictions, so there is no quality to compare"
        )
    try:
        found.task.metric(metric or found.metric.name)
    except KeyError:
        known = [metric.name for metric in found.task.metrics]
        hint = suggest_name(metric, known) or f"; there are: {', '.join(known)}"
        raise ConfigError(
            f"{each.name}: the task {found.task.name!r} has no metric {metric!r}{hint}"
        ) from None
    return found


# Conditions that must be equal for times to be compared: their place in a result, and their name.
_CONDITIONS = {
    ("host", "cpu", "model"): "CPU",
    ("host", "cpu", "affinity"): "CPU cores allowed",
    ("host", "cpu", "governor"): "CPU governor",
    ("host", "system", "machine"): "architecture",
    ("host", "environment"): "environment variables",
    ("host", "limits"): "limits of the container",
    ("components", "dataset"): "dataset",
    ("components", "protocol"): "way to the target",
    ("timing", "batch_size"): "batch size",
}


def read_candidate(reference: str) -> GatedCandidate:
    """Return the candidate of ``FILE``, or of ``FILE#TITLE`` if the file holds several.

    Raises
    ------
    NNPipeError
        If the file or the candidate does not exist.
    """
    path, title = reference, ""
    if not Path(reference).exists() and "#" in reference:
        path, _, title = reference.partition("#")
    found = read_result(path)
    if isinstance(found, Run):
        if title and title != found.title:
            raise ConfigError(f"{path}: the run there is called {found.title!r}, not {title!r}")
        return GatedCandidate(reference, found)
    if not title:
        titles = ", ".join(f"{path}#{run.title}" for run in found.whole)
        raise ConfigError(f"{path} holds several candidates: name one, {titles}")
    try:
        return GatedCandidate(reference, find_candidate(found, title), found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def find_candidate(comparison: Comparison, title: str) -> Run:
    """Return the measurement of a candidate.

    Raises
    ------
    ConfigError
        If there is no candidate of this title, or it failed.
    """
    run = comparison.run_of(title)
    if title in comparison.failures:
        raise ConfigError(f"{title} failed: {comparison.failures[title]}")
    return run


def check_slowdown(
    baseline: GatedCandidate, new: GatedCandidate, limit: float, confidence: float
) -> Criterion:
    """Return the criterion of the relative increase of the median time."""
    name = "slowdown"
    if baseline.is_same_result(new):
        return build_same_criterion(name, limit)
    same = (
        baseline.whole is not None
        and new.whole is not None
        and _is_same_comparison(baseline.whole, new.whole)
    )
    if not same and (unlike := find_different_conditions(baseline.run, new.run)):
        return Criterion(
            name, limit, "undecided", None, None, f"not measured alike: {', '.join(unlike)} differ"
        )
    turns = [_compute_medians(each) for each in (baseline, new)]
    if same and baseline.whole is not None:
        # Intermediate looks at these measurements widen the intervals.
        whole = baseline.whole
        level = max(
            confidence,
            whole.plan.compute_pair_confidence(
                len({*whole.failures, *(run.title for run in whole.runs)})
            ),
        )
        logs = start_ratios(turns[0], turns[1])
        if not len(logs):
            return Criterion(name, limit, "undecided", None, None, "the two never ran together")
        found = compute_centre(logs, level)
        return build_criterion(name, limit, found, f"paired in {found.number} starts", "starts")
    if all(turns):
        centres = [
            _compute_start_median(each, rounds, confidence)
            for each, rounds in zip((baseline, new), turns, strict=True)
        ]
        found = _compute_difference(centres[0], centres[1])
        basis = f"{centres[0].number} and {centres[1].number} starts at different times"
        return build_criterion(name, limit, found, basis, "starts of each")
    alone = [_compute_log_median(each, confidence) for each in (baseline, new)]
    found = _compute_difference(alone[0], alone[1])
    basis = (
        f"{alone[0].number:,} and {alone[1].number:,} calls, one start each: that starts differ, "
        f"often by 1 %, is "
        "not in the interval; nnpipe compare has it in"
    )
    return build_criterion(name, limit, found, basis, "calls of each")


def find_different_conditions(one: Run, two: Run) -> list[str]:
    """Return the names of conditions that differ between two runs but should not."""
    return [
        name for path, name in _CONDITIONS.items() if _get_field(one, path) != _get_field(two, path)
    ]


def _compute_difference(first: Centre, second: Centre) -> Centre:
    """Return the difference of two independent values (MOVER: Zou and Donner, Stat. Med. 27,
    2008, 1693-1702).
    """
    value = second.value - first.value
    number, needed = min(first.number, second.number), max(first.needed, second.needed)
    if first.interval is None or second.interval is None:
        return Centre(value, None, number, needed)
    below = math.hypot(second.value - second.interval[0], first.interval[1] - first.value)
    above = math.hypot(second.interval[1] - second.value, first.value - first.interval[0])
    return Centre(value, (value - below, value + above), number, needed)


def _compute_log_median(each: GatedCandidate, confidence: float) -> Centre:
    """Return the logarithm of the median time of a run's calls."""
    inference = each.run.series.get("inference")
    if inference is None or not len(inference):
        raise ConfigError(f"{each.name}: nothing was timed in it")
    latencies = np.asarray(inference["latency_ns"], np.float64)
    median = float(np.median(latencies))
    interval = compute_quantile_interval(latencies, 0.5, confidence)
    if not median > 0 or (interval is not None and not interval[0] > 0):
        raise ConfigError(f"{each.name}: its calls took no time that the clock could see")
    ends = None if interval is None else (math.log(interval[0]), math.log(interval[1]))
    needed = count_samples_needed(0.5, confidence)
    return Centre(
        math.log(median), ends, len(latencies), max(needed, 0 if ends else 2 * len(latencies))
    )


def _compute_start_median(each: GatedCandidate, turns: Medians, confidence: float) -> Centre:
    """Return the logarithm of the time of a start, from the median of its blocks."""
    medians = [float(np.median([*rounds.values()])) for rounds in turns.values()]
    if min(medians) <= 0:
        raise ConfigError(f"{each.name}: its calls took no time that the clock could see")
    return compute_centre(np.log(medians), confidence)


def _compute_medians(each: GatedCandidate) -> Medians:
    return {} if each.whole is None else compute_block_quantiles(each.run, 0.5)


def _is_same_comparison(one: Comparison, two: Comparison) -> bool:
    return (one.created, one.command, one.title, one.seconds) == (
        two.created,
        two.command,
        two.title,
        two.seconds,
    )


def _get_field(run: Run, path: tuple[str, ...]) -> Any:
    found: Any = getattr(run, path[0])
    for key in path[1:]:
        found = found.get(key) if isinstance(found, dict) else None
    return found
