"""The result of one measurement, with all the data needed to evaluate it, also later."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.files import write_text
from nnpipe.core.task import find_task
from nnpipe.measuring.quantile_intervals import Sample
from nnpipe.measuring.quantities import UNITS
from nnpipe.measuring.result_json import (
    COMPARISON,
    ArrayUnpacker,
    pack,
    read_evaluation,
    read_json,
    read_series,
    require_entry_type,
)
from nnpipe.measuring.series import ON_TARGET, ROUND_TRIP, Series, call_time

SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One candidate measured once.

    Parameters
    ----------
    title
        The name of the candidate in reports.
    command
        The command line of the measurement.
    components
        Class and arguments of each component, by role (``dataset``, ``wrapper``, ``compilers``,
        ``runtime``).
    artifact
        The model file that ran: format, inputs and outputs, SHA-256, size in bytes, parents; may be
        empty.
    frameworks
        Versions by package name.
    host
        Facts about the machine, before and after the measurement.
    timing
        Times in nanoseconds (``load_ns``, ``first_ns``) and counts (``warmup``, ``batch_size``).

        ``load``, if there was a load scenario: ``scenario``, the requested ``rate`` (queries per
        second), ``seed``, ``samples_per_query``, ``calls_per_query``, ``queries_in_memory``,
        ``ended`` (the condition that ended it), ``busy_ns`` (its duration), ``unanswered`` (queries
        that were due but not sent), ``max_latency`` (a bound such as ``10ms@p99``) and ``search``
        (the search for the highest rate that keeps the bound).

        ``pace``, if there is a series ``paced``: ``period_ns`` from call to call, and the number of
        ``missed`` calls.

        ``energy``, if it was to be measured: the ``source`` and the ``meter``, and ``idle_watts``
        and ``idle_seconds`` if the idle power is to be subtracted; or the ``reason`` why there is
        no series ``energy``.
    series
        ``inference``: ``start_ns`` from the start of the window, ``latency_ns``, and ``samples`` of
        each call.  If the model ran on a target, also ``host_ns``, ``wire_ns``, ``serve_ns`` and
        ``target_ns``, which add up to ``latency_ns``
        (:meth:`~nnpipe.protocols.client.session.RemoteSession.split`).  With a load, there is one
        row per query (offline, per call).  In the server scenario, ``scheduled_ns`` is when the
        query was due and ``latency_ns`` counts from then; ``start_ns`` is when it was sent, and the
        parts add up to the time from then.

        ``resources``: ``time_ns`` from the same start, ``cpu_percent``, ``process_bytes``,
        ``memory_bytes`` and the other columns of
        :class:`~nnpipe.measuring.resource_sampler.UsageSampler`; ``target``: the same for the
        target.

        ``paced``: calls at a pace (:class:`~nnpipe.measuring.pace.PacedCalls`), with the same parts
        as ``inference``.

        ``energy``: blocks of calls with their ``joules``
        (:func:`~nnpipe.measuring.energy.measure_energy`).
    evaluation
        Predictions and truth, if quality was measured.
    created
        Date and time with time zone, ISO 8601.
    verification
        The comparison of the model's outputs with those of its source model: ``verdict`` (``same``,
        ``close``, ``different``, or ``unknown`` if they could not be compared), ``reason``, and
        values; may be empty.
    audits
        The result of each audit (:mod:`nnpipe.measuring.audit`), by name (``outputs``,
        ``caching``): ``verdict`` (``passed``, ``failed`` or ``unknown``), ``reason``, and values;
        may be empty.
    preparation
        How samples were prepared, as in :class:`~nnpipe.core.model_metadata.Preparation`, with the
        resulting value ranges under ``arrived``
        (:func:`~nnpipe.measuring._sample_preparation.measure_input_ranges`), and how the data set
        was understood under ``read`` (:attr:`~nnpipe.core.dataset.Dataset.reading_notes`); empty in
        files of older versions.
    profile
        The times and costs of the layers, measured in a process of its own after everything else,
        as in :class:`~nnpipe.report.inputs.layer_profile.LayerProfile`; or the ``reason`` why there
        are none; may be empty.

    Examples
    --------
    >>> start, took, samples = np.arange(3) * 1_000_000, np.full(3, 900_000), np.ones(3, np.int64)
    >>> calls = {"start_ns": start, "latency_ns": took, "samples": samples}
    >>> run = Run("digits", (), {}, {}, {}, {"batch_size": 1}, {"inference": Series(calls)})
    >>> run.write("result.json")
    >>> Run.read("result.json").summary()["inferences"]
    3
    """

    title: str
    command: tuple[str, ...]
    components: Mapping[str, Any]
    frameworks: Mapping[str, str]
    host: Mapping[str, Any]
    timing: Mapping[str, Any]
    series: Mapping[str, Series]
    evaluation: Evaluation | None = None
    artifact: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    verification: Mapping[str, Any] = field(default_factory=dict)
    audits: Mapping[str, Any] = field(default_factory=dict)
    preparation: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the run in its JSON form; ``summary`` is for human readers and ignored when
        read.
        """
        return {
            "schema": SCHEMA,
            "title": self.title,
            "created": self.created,
            "command": list(self.command),
            "summary": self.summary(),
            "components": dict(self.components),
            "artifact": dict(self.artifact),
            "verification": dict(self.verification),
            "audits": dict(self.audits),
            "preparation": dict(self.preparation),
            "profile": dict(self.profile),
            "frameworks": dict(self.frameworks),
            "host": dict(self.host),
            "timing": dict(self.timing),
            "series": {
                name: {c: pack(a) for c, a in series.columns.items()}
                for name, series in self.series.items()
            },
            "evaluation": None
            if self.evaluation is None
            else {
                "task": self.evaluation.task,
                "class_names": list(self.evaluation.class_names),
                "arrays": {name: pack(array) for name, array in self.evaluation.arrays.items()},
                "ragged": {
                    name: {"values": pack(rows.values), "counts": pack(rows.counts)}
                    for name, rows in self.evaluation.ragged.items()
                },
                "settings": dict(self.evaluation.settings),
            },
        }

    def summary(self) -> dict[str, Any]:
        """Return counts, the median, the metrics of quality and the doubts, for human readers of
        the file.

        The names and units are those of :mod:`nnpipe.measuring.quantities`.
        """
        from nnpipe.measuring.diagnosis import diagnose
        from nnpipe.measuring.quality_warnings import check_quality
        from nnpipe.measuring.run_figures import compute_energy_figure
        from nnpipe.measuring.statistics import compute_percentile

        found: dict[str, Any] = {}
        inference = self.series.get("inference")
        if inference is not None and len(inference):
            found["inferences"] = len(inference)
            counted = call_time(inference.columns, self.timing)
            times = [(counted.name, counted.column)]
            if counted is ON_TARGET:
                times.append((ROUND_TRIP.name, ROUND_TRIP.column))
            for name, column in times:
                median = compute_percentile(Sample(inference[column].astype(np.float64)), 0.5)
                found[f"{name}_median"] = {
                    "value": None if median.value is None else median.value / 1e9,
                    "interval": None
                    if median.interval is None
                    else [end / 1e9 for end in median.interval],
                    "unit": "s",
                }
        if (energy := compute_energy_figure(self)) is not None and energy.value is not None:
            found["energy"] = {
                "value": energy.value,
                "interval": [energy.low, energy.high]
                if math.isfinite(energy.high - energy.low)
                else None,
                "unit": UNITS["energy"],
            }
        if self.evaluation is not None:
            found["evaluated_samples"] = len(self.evaluation)
            task = find_task(self.evaluation)
            for metric in () if task is None else task.metrics:
                value = metric.compute(self.evaluation)
                if not math.isnan(value):
                    known = value if math.isfinite(value) else None
                    found[metric.name] = {"value": known, "unit": UNITS[metric.kind]}
            if lost := int(self.evaluation.not_finite.sum()):
                found["not_finite_samples"] = lost
        if doubts := (*diagnose(self), *check_quality(self)):
            found["doubts"] = [f"{doubt.kind}: {doubt.reason}" for doubt in doubts]
        return found

    def write(self, path: str | Path) -> None:
        """Write the result file atomically."""
        write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a result file.

        Raises
        ------
        ArtifactError
            If it is missing, damaged, or not a result file; the message names it.
        """
        try:
            return cls.from_json(read_json(Path(path)))
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, data: Any) -> Run:
        """Make a run from the output of :meth:`to_json`.

        Raises
        ------
        ArtifactError
            If it is malformed.
        """
        if not isinstance(data, dict) or "schema" not in data:
            raise ArtifactError("not a result file")
        if data.get("kind") == COMPARISON:
            raise ArtifactError("the result of a comparison, not of one run")
        if data["schema"] != SCHEMA:
            raise ArtifactError(
                f"schema {str(data['schema'])[:40]} is unknown, this version reads {SCHEMA}"
            )
        try:
            arrays = ArrayUnpacker()
            return cls(
                title=require_entry_type(str, data, "title"),
                command=tuple(map(str, require_entry_type(list, data, "command"))),
                components=require_entry_type(dict, data, "components"),
                artifact=require_entry_type(dict, data, "artifact"),
                frameworks=require_entry_type(dict, data, "frameworks"),
                host=require_entry_type(dict, data, "host"),
                timing=require_entry_type(dict, data, "timing"),
                series=read_series(require_entry_type(dict, data, "series"), arrays),
                evaluation=read_evaluation(data["evaluation"], arrays),
                created=require_entry_type(str, data, "created"),
                # Files of earlier versions have no such entries.
                verification=require_entry_type(dict, data, "verification")
                if "verification" in data
                else {},
                audits=require_entry_type(dict, data, "audits") if "audits" in data else {},
                preparation=require_entry_type(dict, data, "preparation")
                if "preparation" in data
                else {},
                profile=require_entry_type(dict, data, "profile") if "profile" in data else {},
            )
        except KeyError as error:
            raise ArtifactError(f"not a whole result file: {error} is missing") from None
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"not a usable result file: {error}") from None
