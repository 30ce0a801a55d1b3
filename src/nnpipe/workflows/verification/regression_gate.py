"""Deciding whether one result is worse than another by more than is allowed: yes, no, or undecided."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.autocorrelation import quantile_interval
from nnpipe.measuring.comparison import Comparison, quantiles, read_result
from nnpipe.measuring.paired_comparison import Medians, start_ratios
from nnpipe.measuring.run import Run
from nnpipe.measuring.signed_rank import Centre, centre
from nnpipe.measuring.statistics import samples_needed
from nnpipe.workflows.verification.gate_criterion import Criterion, GatedCandidate, decided, same_result

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


def entry(reference: str) -> GatedCandidate:
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
        return GatedCandidate(reference, candidate_of(found, title), found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def candidate_of(comparison: Comparison, title: str) -> Run:
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


def slowdown(baseline: GatedCandidate, new: GatedCandidate, limit: float, confidence: float) -> Criterion:
    """Return the criterion of the relative increase of the median time."""
    name = "slowdown"
    if baseline.is_same_result(new):
        return same_result(name, limit)
    same = baseline.whole is not None and new.whole is not None and _same_comparison(baseline.whole, new.whole)
    if not same and (unlike := different_conditions(baseline.run, new.run)):
        return Criterion(name, limit, "undecided", None, None, f"not measured alike: {', '.join(unlike)} differ")
    turns = [_turns(each) for each in (baseline, new)]
    if same and baseline.whole is not None:
        # Intermediate looks at these measurements widen the intervals.
        whole = baseline.whole
        level = max(confidence, whole.plan.level(len({*whole.failures, *(run.title for run in whole.runs)})))
        logs = start_ratios(turns[0], turns[1])
        if not len(logs):
            return Criterion(name, limit, "undecided", None, None, "the two never ran together")
        found = centre(logs, level)
        return decided(name, limit, found, f"paired in {found.number} starts", "starts")
    if all(turns):
        centres = [_of_starts(each, rounds, confidence) for each, rounds in zip((baseline, new), turns, strict=True)]
        found = _difference(centres[0], centres[1])
        basis = f"{centres[0].number} and {centres[1].number} starts at different times"
        return decided(name, limit, found, basis, "starts of each")
    alone = [_alone(each, confidence) for each in (baseline, new)]
    found = _difference(alone[0], alone[1])
    basis = (
        f"{alone[0].number:,} and {alone[1].number:,} calls, one start each: that starts differ, often by 1 %, is "
        "not in the interval; nnpipe compare has it in"
    )
    return decided(name, limit, found, basis, "calls of each")


def different_conditions(one: Run, two: Run) -> list[str]:
    """Return the names of conditions that differ between two runs but should not."""
    return [name for path, name in _CONDITIONS.items() if _at(one, path) != _at(two, path)]


def _difference(first: Centre, second: Centre) -> Centre:
    """Return the difference of two independent values (MOVER: Zou and Donner, Stat. Med. 27, 2008, 1693-1702)."""
    value = second.value - first.value
    number, needed = min(first.number, second.number), max(first.needed, second.needed)
    if first.interval is None or second.interval is None:
        return Centre(value, None, number, needed)
    below = math.hypot(second.value - second.interval[0], first.interval[1] - first.value)
    above = math.hypot(second.interval[1] - second.value, first.value - first.interval[0])
    return Centre(value, (value - below, value + above), number, needed)


def _alone(each: GatedCandidate, confidence: float) -> Centre:
    """Return the logarithm of the median time of a run's calls."""
    inference = each.run.series.get("inference")
    if inference is None or not len(inference):
        raise ConfigError(f"{each.name}: nothing was timed in it")
    latencies = np.asarray(inference["latency_ns"], np.float64)
    median = float(np.median(latencies))
    interval = quantile_interval(latencies, 0.5, confidence)
    if not median > 0 or (interval is not None and not interval[0] > 0):
        raise ConfigError(f"{each.name}: its calls took no time that the clock could see")
    ends = None if interval is None else (math.log(interval[0]), math.log(interval[1]))
    needed = samples_needed(0.5, confidence)
    return Centre(math.log(median), ends, len(latencies), max(needed, 0 if ends else 2 * len(latencies)))


def _of_starts(each: GatedCandidate, turns: Medians, confidence: float) -> Centre:
    """Return the logarithm of the time of a start, from the median of its blocks."""
    medians = [float(np.median([*rounds.values()])) for rounds in turns.values()]
    if min(medians) <= 0:
        raise ConfigError(f"{each.name}: its calls took no time that the clock could see")
    return centre(np.log(medians), confidence)


def _turns(each: GatedCandidate) -> Medians:
    return {} if each.whole is None else quantiles(each.run, 0.5)


def _same_comparison(one: Comparison, two: Comparison) -> bool:
    return (one.created, one.command, one.title, one.seconds) == (two.created, two.command, two.title, two.seconds)


def _at(run: Run, path: tuple[str, ...]) -> Any:
    found: Any = getattr(run, path[0])
    for key in path[1:]:
        found = found.get(key) if isinstance(found, dict) else None
    return found
