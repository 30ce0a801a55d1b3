"""A report's figures for programs: values, units, counts, intervals and doubts as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.measure.statistics import CONFIDENCE, Percentile, Summary
from nnpipe.report.candidate import Candidate
from nnpipe.report.comparison import pairing
from nnpipe.report.outcome import Failure
from nnpipe.report.standing import standings

SCHEMA = 1
KIND = "nnpipe report summary"


def figures(candidates: Sequence[Candidate], title: str, failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """Give everything that the summary of a report tells.

    Times are in seconds, sizes in bytes, shares from 0 to 1, rates a second.
    What is not known is null, with a reason where there is one to tell.
    """
    found = standings(candidates)
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "title": title,
        "confidence": CONFIDENCE,
        "candidates": [
            {
                **_candidate(candidate),
                "front": {"on_front": standing.on_front, "share": standing.share}
                if (standing := found.get(candidate.number))
                else None,
                "against_first": _against(candidates[0], candidate),
            }
            for candidate in candidates
        ],
        "failed": [{"title": failure.title, "reason": failure.cause} for failure in failures],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "made_of": candidate.made_of,
        "created": candidate.run.created,
        "sha256": _text(candidate.run.artifact.get("sha256")),
        "figures": {**_times(candidate), **_sizes(candidate), **_quality(candidate)},
        "warm_up_calls": candidate.warm_up,
        "doubts": [{"kind": doubt.kind, "reason": doubt.reason} for doubt in candidate.doubts],
        "verdict": {
            "as_source": candidate.verdict or None,
            "reason": candidate.verdict_reason,
            "samples": _whole(candidate.verified_samples),
            "same_class": _whole(candidate.same_class),
        },
    }


def _times(candidate: Candidate) -> dict[str, Any]:
    latency = candidate.latency
    known: dict[str, Any] = {
        "load": _figure(_seconds(candidate.load_ns), "s"),
        "import": _figure(_seconds(candidate.import_ns), "s"),
        "first_inference": _figure(_seconds(candidate.first_ns), "s"),
    }
    if latency is None:
        return known
    known |= {f"latency_{found.name}": _percentile(found, latency) for found in latency.percentiles}
    known["latency_mean"] = _figure(latency.mean / 1e9, "s", len(latency), _scaled(latency.mean_interval, 1e-9))
    if candidate.throughput:
        work = candidate.throughput * latency.mean
        low, high = latency.mean_interval or (0.0, 0.0)
        # What is a second of inference is a second of calls: the interval is that of the mean, turned round.
        interval = (work / high, work / low) if low > 0 else None
        known["throughput"] = _figure(candidate.throughput, "/s", len(latency), interval)
    if candidate.round_trip is not None:
        found = candidate.round_trip.percentile(0.5)
        known["round_trip_median"] = _percentile(found, candidate.round_trip)
    return known


def _percentile(found: Percentile, latency: Summary) -> dict[str, Any]:
    if found.value is None:
        told = _figure(None, "s", len(latency))
        return told | {"reason": f"needs {found.needed:,} calls", "calls_needed": found.needed}
    return _figure(found.value / 1e9, "s", len(latency), _scaled(found.interval, 1e-9))


def _sizes(candidate: Candidate) -> dict[str, Any]:
    return {"size": _figure(candidate.size, "B"), "memory": _figure(candidate.peak_memory, "B")}


def _quality(candidate: Candidate) -> dict[str, Any]:
    quality = candidate.quality
    if quality is None:
        return {}
    known = {
        "accuracy": _figure(quality.accuracy, "1", quality.samples, quality.accuracy_interval),
        "mean_precision": _figure(quality.mean_precision, "1", quality.samples),
        "mean_sensitivity": _figure(quality.mean_sensitivity, "1", quality.samples),
        "macro_f1": _figure(quality.macro_f1, "1", quality.samples),
    }
    if quality.top_k_accuracy is not None:
        known[f"top_{quality.k}_accuracy"] = _figure(quality.top_k_accuracy, "1", quality.samples)
    return known


def _against(first: Candidate, other: Candidate) -> Mapping[str, Any] | None:
    pair = pairing(first, other) if other is not first else None
    if pair is None or other.quality is None:
        return None
    samples = other.quality.samples
    return {
        "accuracy_difference": _figure(pair.difference, "1", samples, (pair.low, pair.high)),
        "agreement": _figure(pair.agreement, "1", samples),
    }


def _figure(
    value: float | None, unit: str, count: int | None = None, interval: tuple[float, float] | None = None
) -> dict[str, Any]:
    known = value is not None and math.isfinite(value)
    return {
        "value": float(value) if known and value is not None else None,
        "unit": unit,
        "count": count,
        "interval": None if interval is None else [float(end) for end in interval],
    }


def _scaled(interval: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    return None if interval is None else (interval[0] * factor, interval[1] * factor)


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
