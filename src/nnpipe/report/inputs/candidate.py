"""The validated data of a run that reports need; a result file may contain anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.measuring.diagnosis import ValidityWarning, diagnose
from nnpipe.measuring.quality_warnings import check_quality
from nnpipe.measuring.quantile_intervals import count_warm_up_calls
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import LATENCY, ON_TARGET, CallTime, Series, call_time
from nnpipe.measuring.statistics import Summary
from nnpipe.measuring.validity_warning import OF_QUALITY
from nnpipe.report.formatting import NOTHING, clean, shorten
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.report.inputs.quality import PairedQuality, Quality, compare_quality, is_comparable
from nnpipe.report.quantity_text import format_quantity

TIMES = ("host_ns", "wire_ns", "target_ns")
_SOMETIMES = ("scheduled_ns", "target_counts")  # under a load, and of targets without a clock
RESOURCES = (
    "cpu_percent",
    "machine_cpu_percent",
    "process_bytes",
    "memory_bytes",
    "gpu_percent",
    "gpu_bytes",
)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A run with all data that the sections of a report need; created by :meth:`from_run`.

    Attributes
    ----------
    run
        The run that was measured.
    number
        Its number in the report, from 0, which also decides its colour.
    name
        Its title, unique in the report.
    timed
        The kind of its calls' times; only times of one kind are compared.
    latency
        The times of its calls in nanoseconds, of the kind ``timed``; ``None`` if nothing was timed.
    warm_up, steady
        The number of calls at the beginning that seem to be warm-up, and the latency of the others;
        ``None`` without signs of warm-up.
    doubts
        Reasons to doubt the times or the predictions.
    round_trip
        Times of calls measured by the host, in nanoseconds; ``None`` without a target.
    inference, resources, paced
        The checked series in order of time; empty if there is none.  Resources may contain NaN.
    quality
        Its judged predictions; ``None`` if there are none, or their task is not known here.
    import_ns, load_ns, first_ns, size, throughput, peak_memory
        Times in nanoseconds, size in bytes, samples per second, memory in bytes; ``None`` if
        unknown.
    verdict, verdict_reason
        Whether the model's outputs agree with its source's: ``same``, ``close``, ``different`` or
        ``unknown``, and why; empty if they were not compared.
    verified_samples, same_class
        The number of compared samples, and of those with the same class.
    profile, no_profile
        The times of its layers, or why there are none although they were asked for.
    """

    run: Run
    number: int
    name: str
    timed: CallTime
    latency: Summary | None
    warm_up: int
    steady: Summary | None
    doubts: tuple[ValidityWarning, ...]
    round_trip: Summary | None
    inference: Series
    resources: Series
    target: Series | None
    paced: Series
    quality: Quality | None
    import_ns: float | None
    load_ns: float | None
    first_ns: float | None
    size: float | None
    throughput: float | None
    peak_memory: float | None
    verdict: str
    verdict_reason: str
    verified_samples: float | None
    same_class: float | None
    profile: LayerProfile | None
    no_profile: str

    @classmethod
    def from_run(cls, run: Run, number: int = 0, name: str | None = None) -> Candidate:
        """Return the candidate of a run after checking the run's data.

        Raises
        ------
        NNPipeError
            If a series, a time or an array is invalid; the message names it.
        """
        inference = _read_series(
            run,
            "inference",
            "start_ns",
            ("latency_ns",),
            ("samples", "scheduled_ns", "target_counts", *TIMES),
        )
        resources = _read_series(run, "resources", "time_ns", (), RESOURCES)
        paced = _read_series(run, "paced", "start_ns", ("latency_ns", "asleep"), TIMES)
        timed = call_time(inference.columns, run.timing)
        remote = "protocol" in run.components
        # The process that runs the model is on the target.
        target = _read_series(run, "target", "time_ns", (), RESOURCES) if remote else None
        running = resources if target is None else target
        memory = select_known_values(running, "process_bytes")[1]
        session = run.timing.get("session")
        loaded = (
            session
            if remote and isinstance(session, Mapping) and "load_ns" in session
            else run.timing
        )
        times = inference[timed.column] if len(inference) else np.empty(0)
        warm_up = count_warm_up_calls(times)
        return cls(
            run=run,
            number=number,
            name=name or format_run_title(run),
            timed=timed,
            latency=Summary.from_values(times) if len(times) else None,
            warm_up=warm_up,
            steady=Summary.from_values(times[warm_up:]) if warm_up else None,
            doubts=(
                *diagnose(run, warm_up if timed in (LATENCY, ON_TARGET) else None),
                *check_quality(run),
            ),
            round_trip=Summary.from_values(inference["latency_ns"]) if timed is ON_TARGET else None,
            inference=inference,
            resources=resources,
            target=target,
            paced=paced,
            quality=Quality.from_run(run),
            import_ns=_read_number(run.timing, "import_ns"),
            load_ns=_read_number(loaded, "load_ns"),
            first_ns=_read_number(run.timing, "first_ns"),
            size=_read_number(run.artifact, "size"),
            throughput=_compute_throughput(run, times, inference),
            peak_memory=float(np.max(memory)) if len(memory) else None,
            verdict=clean(run.verification.get("verdict", ""), 40),
            verdict_reason=clean(run.verification.get("reason", ""), 300),
            verified_samples=_read_number(run.verification, "samples"),
            same_class=_read_number(run.verification, "same_class"),
            profile=LayerProfile.from_json(run.profile) if "layers" in run.profile else None,
            no_profile=clean(run.profile.get("reason", ""), 500),
        )

    @property
    def times(self) -> npt.NDArray[Any]:
        """Time of each inference in the order of the calls, in nanoseconds."""
        return self.inference[self.timed.column]

    @property
    def made_of(self) -> str:
        """Format, compilers and runtime in one line."""
        roles = self.run.components
        format = clean(self.run.artifact.get("format", ""), 40)
        path = [get_class_name(part) for part in list_role_components(roles.get("compilers"))]
        runtime = list_role_components(roles.get("runtime"))
        path.append(get_class_name(runtime[0]) if runtime else "in its own framework")
        return " · ".join(filter(None, (format, " → ".join(path))))


def format_quality(candidate: Candidate) -> str:
    """Return the metric of quality as text, with a question mark if there is reason to distrust
    it.
    """
    if candidate.quality is None:
        return NOTHING
    doubtful = any(doubt.kind in OF_QUALITY for doubt in candidate.doubts)
    return format_quantity(candidate.quality.quantity, candidate.quality.value) + (
        " (?)" if doubtful else ""
    )


def select_known_values(
    resources: Series, column: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the times and values of a column of the resources, without missing values."""
    if column not in resources:
        return np.empty(0), np.empty(0)
    values = resources[column]
    there = ~np.isnan(values)
    return resources["time_ns"][there], values[there]


def create_candidates(runs: Sequence[Run], sources: Sequence[object] = ()) -> tuple[Candidate, ...]:
    """Return the checked candidates of runs, with unique names.

    Raises
    ------
    ArtifactError
        If a run holds invalid data; the message begins with the run's source, or with its name if
        there is none.
    """
    taken: set[str] = set()
    found = []
    titles = [format_run_title(run) for run in runs]
    for number, (run, source) in enumerate(zip_longest(runs, sources[: len(runs)])):
        title, again = titles[number], 2
        if titles.count(title) > 1 and isinstance(source, Path) and sources.count(source) == 1:
            # the name of a file is more informative than a number
            title = f"{title} ({clean(source.stem, 60)})"
        name = title
        while name in taken:
            name, again = f"{title} ({again})", again + 1
        taken.add(name)
        try:
            found.append(Candidate.from_run(run, number, name))
        except NNPipeError as error:
            raise ArtifactError(f"{name if source is None else source}: {error}") from None
    return tuple(found)


def format_run_title(run: Run) -> str:
    """Return a run's title as one line."""
    return clean(run.title, 120) or "untitled"


def list_role_components(component: Any) -> list[Any]:
    """Return the components of a role as a list, which is empty if there are none."""
    if component is None:
        return []
    return list(component) if isinstance(component, (list, tuple)) else [component]


def get_class_name(component: Any) -> str:
    """Return the name of a component's class without its module."""
    path = component.get("class", "") if isinstance(component, Mapping) else component
    return shorten(clean(path).rpartition(".")[2], 60) or "unnamed"


def _read_series(
    run: Run, name: str, axis: str, required: Sequence[str], optional: Sequence[str]
) -> Series:
    given = run.series.get(name)
    if given is None or not len(given):
        return Series({})
    columns = {}
    for column in (axis, *required, *optional):
        if column in given:
            columns[column] = _check_column(
                name, column, given[column], gaps=name in ("resources", "target") and column != axis
            )
        elif column not in optional:
            raise ArtifactError(f"series {name!r} has no column {column!r}; measure again")
    order = columns[axis]
    if (order[1:] < order[:-1]).any():
        # Threads and devices may deliver their rows late.
        places = np.argsort(order, kind="stable")
        columns = {column: values[places] for column, values in columns.items()}
    return Series(columns)


def _check_column(name: str, column: str, values: npt.NDArray[Any], gaps: bool) -> npt.NDArray[Any]:
    known = values[~np.isnan(values)] if gaps else values
    # Sampling may begin before the first inference, so points in time may be negative.
    least = -np.inf if column in ("start_ns", "time_ns") else 0
    if not np.isfinite(known).all() or (known < least).any():
        raise ArtifactError(
            f"series {name!r}: {column} has entries that are negative or not finite; measure again"
        )
    return values


def _read_number(mapping: Mapping[str, Any], name: str) -> float | None:
    value = mapping.get(name)
    if value is None:
        return None
    try:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value < math.inf
        ):
            raise ArtifactError(
                f"{name} must be a number from 0 upwards, not {clean(repr(value), 40)}"
            )
        return float(value)
    except OverflowError:
        raise ArtifactError(f"{name} is too large") from None


def _compute_throughput(run: Run, times: npt.NDArray[Any], inference: Series) -> float | None:
    if not len(inference):
        return None
    load = run.timing.get("load")
    busy_ns = _read_number(load, "busy_ns") if isinstance(load, Mapping) else None
    seconds = (busy_ns or float(np.sum(times, dtype=np.float64))) / 1e9
    samples = (
        float(np.sum(inference["samples"])) if "samples" in inference else float(len(inference))
    )
    return samples / seconds if seconds > 0 else None


_MOST_NAMED = 8


def compare_candidate_quality(first: Candidate, other: Candidate) -> PairedQuality | None:
    """Return the comparison of two candidates; ``None`` unless both were judged on the same
    samples.
    """
    return compare_quality(first.quality, other.quality)


def have_same_samples(candidates: Sequence[Candidate]) -> bool:
    """Return whether all judged candidates did the same task on the same samples, so that
    metrics can be compared.
    """
    judged = [c.quality for c in candidates if c.quality is not None]
    return all(is_comparable(judged[0], each) for each in judged[1:])


def describe_sample_differences(judged: Sequence[tuple[str, Quality | None]]) -> str:
    """Return a sentence that names the samples of candidates which were not judged alike; empty if
    they were.

    Parameters
    ----------
    judged
        The name of each candidate with its quality; ``None`` if nothing of it was judged.
    """
    known = [(name, quality) for name, quality in judged if quality is not None]
    if all(is_comparable(known[0][1], quality) for _, quality in known[1:]):
        return ""
    told = [
        f"{name}: {quality.task.name}, {quality.samples:,} samples"
        for name, quality in known[:_MOST_NAMED]
    ]
    more = f"; {len(known) - _MOST_NAMED:,} more" if len(known) > _MOST_NAMED else ""
    return (
        "The candidates were not all judged on the same samples and in the same way, so their "
        "figures of quality "
        f"cannot be compared ({'; '.join(told)}{more})."
    )


def explain_unequal_work(first: Quality | None, other: Quality | None) -> str:
    """Return why the times of two candidates' calls are not of the same work; empty if they are,
    or it is not known.
    """
    if first is None or other is None or first.task.name != other.task.name:
        return ""
    return first.task.unlike_work(first.evaluation, other.evaluation)


def find_leading_quality(candidates: Sequence[Candidate]) -> Quality | None:
    """Return the quality of the first judged candidate, whose metric the headings of tables
    name.
    """
    return next((c.quality for c in candidates if c.quality is not None), None)
