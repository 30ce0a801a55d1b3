"""The figures of a report as JSON for programs: values, units, counts, intervals and doubts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import find_quantity
from nnpipe.measuring.run_figures import (
    BOARD_FIGURES,
    compute_count_figure,
    compute_energy_figure,
    get_board_bytes,
    get_board_figure,
    get_counter,
)
from nnpipe.measuring.series import PACED, ROUND_TRIP
from nnpipe.measuring.statistics import CONFIDENCE, Summary
from nnpipe.report.inputs.candidate import Candidate, compare_candidate_quality
from nnpipe.report.inputs.pareto_front import compute_pareto_standings
from nnpipe.report.inputs.quality import as_figure
from nnpipe.report.sections.pace import PaceFigures
from nnpipe.report.sections.verdict import CandidateFailure

SCHEMA = 1
KIND = "nnpipe report summary"


def build_json_summary(
    candidates: Sequence[Candidate], title: str, failures: Sequence[CandidateFailure] = ()
) -> dict[str, Any]:
    """Return everything in the summary of a report, as values for JSON.

    Times are in seconds, sizes in bytes, shares from 0 to 1, rates per second.
    Unknown values are null, with a reason if there is one.
    """
    found = compute_pareto_standings(candidates)
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "title": title,
        "confidence": CONFIDENCE,
        "candidates": [
            {
                **_build_candidate_summary(candidate),
                "front": {"on_front": standing.on_front, "share": standing.share}
                if (standing := found.get(candidate.number))
                else None,
                "against_first": _compare_with_first(candidates[0], candidate),
            }
            for candidate in candidates
        ],
        "failed": [{"title": failure.title, "reason": failure.cause} for failure in failures],
    }


def _build_candidate_summary(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "made_of": candidate.made_of,
        "created": candidate.run.created,
        "sha256": _to_text(candidate.run.artifact.get("sha256")),
        "figures": {
            name: _serialize_figure(name, known) | _compute_calls_needed(candidate, name)
            for name, known in collect_figures(candidate).items()
        },
        "warm_up_calls": candidate.warm_up,
        "doubts": [{"kind": doubt.kind, "reason": doubt.reason} for doubt in candidate.doubts],
        "verdict": {
            "as_source": candidate.verdict or None,
            "reason": candidate.verdict_reason,
            "samples": _to_integer(candidate.verified_samples),
            "same_class": _to_integer(candidate.same_class),
        },
    }


def _compute_calls_needed(candidate: Candidate, name: str) -> dict[str, int]:
    """Return the number of calls that a percentile needs, as a dict; an empty dict for other or
    known figures.
    """
    share, summary = find_quantity(name).percentile, candidate.latency
    if name.startswith(ROUND_TRIP.name):
        summary = candidate.round_trip
    elif name.startswith(PACED.name):
        paced = PaceFigures.from_candidate(candidate)
        summary = None if paced is None else paced.asleep
    if summary is None or share is None or (found := summary.percentile(share)).value is not None:
        return {}
    return {"calls_needed": found.needed}


def collect_figures(candidate: Candidate) -> dict[str, Figure]:
    """Return every figure of a candidate by its name in :mod:`nnpipe.measuring.quantities`, in its
    unit.

    An unknown figure has no value, but a reason if there is one.
    """
    found, judged = collect_cost_figures(candidate), candidate.quality
    if judged is not None:
        found[judged.metric.name] = judged.figure
        for metric in judged.task.metrics[1:]:
            figure = judged.get_figure(metric)
            if figure.value is not None or judged.evaluation.not_finite.any():
                found[metric.name] = figure
    return found


def collect_cost_figures(candidate: Candidate) -> dict[str, Figure]:
    """Return the figures of speed and cost of a candidate, like :func:`collect_figures`."""
    found = {
        "load": _create_seconds_figure(candidate.load_ns),
        "import": _create_seconds_figure(candidate.import_ns),
    }
    found["first_inference"] = _create_seconds_figure(candidate.first_ns)
    if candidate.latency is not None:
        found |= _create_time_figures(candidate.timed.name, candidate.latency)
        if candidate.throughput:
            found["throughput"] = _create_throughput_figure(candidate.throughput, candidate.latency)
    if candidate.round_trip is not None:
        found |= _create_time_figures(ROUND_TRIP.name, candidate.round_trip)
    if (paced := PaceFigures.from_candidate(candidate)) is not None:
        found |= _create_time_figures(PACED.name, paced.asleep)
    if (energy := compute_energy_figure(candidate.run)) is not None:
        found["energy"] = energy
    if counter := get_counter(candidate.run):
        found[counter] = compute_count_figure(candidate.run, counter)
    if get_board_bytes(candidate.run):
        found |= {name: get_board_figure(candidate.run, name) for name in BOARD_FIGURES}
    found["size"], found["memory"] = (
        _create_exact_figure(candidate.size),
        _create_exact_figure(candidate.peak_memory),
    )
    return found


def _create_time_figures(name: str, summary: Summary) -> dict[str, Figure]:
    calls = len(summary)
    found = {
        f"{name}_{each.name}": Figure(None, count=calls, reason=f"needs {each.needed:,} calls")
        if each.value is None
        else _create_figure(each.value / 1e9, _convert_to_seconds(each.interval), calls)
        for each in summary.percentiles
    }
    return found | {
        f"{name}_mean": _create_figure(
            summary.mean / 1e9, _convert_to_seconds(summary.mean_interval), calls
        )
    }


def _create_throughput_figure(value: float, latency: Summary) -> Figure:
    ends = latency.mean_interval
    if ends is None or ends[0] <= 0:
        return Figure(value, count=len(latency))
    # The throughput is inverse to the mean time, so its interval follows from that of the mean.
    work = value * latency.mean
    return Figure(value, work / ends[1], work / ends[0], len(latency))


def _create_figure(value: float, ends: tuple[float, float] | None, count: int) -> Figure:
    return Figure(value, count=count) if ends is None else Figure(value, *ends, count)


def _create_exact_figure(value: float | None) -> Figure:
    return Figure.unknown("") if value is None else Figure.exactly(value)


def _create_seconds_figure(nanoseconds: float | None) -> Figure:
    return _create_exact_figure(None if nanoseconds is None else nanoseconds / 1e9)


def _convert_to_seconds(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (interval[0] / 1e9, interval[1] / 1e9)


def _compare_with_first(first: Candidate, other: Candidate) -> Mapping[str, Any] | None:
    pair = compare_candidate_quality(first, other) if other is not first else None
    if pair is None or other.quality is None:
        return None
    gap, name = pair.gap, f"{other.quality.metric.name}_difference"
    found = {name: _serialize_figure(name, as_figure(gap))}
    if pair.agreement is not None:
        found["agreement_with_first"] = _serialize_figure(
            "agreement_with_first", Figure(pair.agreement, count=other.quality.samples)
        )
    return found


def _serialize_figure(name: str, known: Figure) -> dict[str, Any]:
    enclosed = (
        known.value is not None and known.low < known.high and math.isfinite(known.low + known.high)
    )
    figure = {
        "value": None if known.value is None else float(known.value),
        "unit": find_quantity(name).unit,
        "count": known.count if known.count > 1 else None,
        "interval": [float(known.low), float(known.high)] if enclosed else None,
    }
    return figure | ({"reason": known.reason} if known.reason else {})


def _to_integer(value: float | None) -> int | None:
    return None if value is None else int(value)


def _to_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
