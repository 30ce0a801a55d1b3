"""The result of one measurement: everything needed to judge it, and to judge it again later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.files import write_text
from nnpipe.measuring.autocorrelation import Sample
from nnpipe.measuring.json_arrays import pack
from nnpipe.measuring.quantities import ON_TARGET, ROUND_TRIP, call_time
from nnpipe.measuring.result_json import COMPARISON, ArrayUnpacker, evaluation_of, read_json, series_of, typed
from nnpipe.measuring.series import Series

SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One candidate measured once.

    Parameters
    ----------
    title
        What the candidate is called in reports.
    command
        The command line that made this.
    components
        By role (``dataset``, ``wrapper``, ``compilers``, ``runtime``): class and arguments.
    artifact
        The model file that ran: format, inputs and outputs, SHA-256, size in bytes, parents; may be empty.
    frameworks
        Versions by package name.
    host
        Facts about the machine, before and after.
    timing
        Single times in nanoseconds: ``load_ns``, ``first_ns``, and counts: ``warmup``, ``batch_size``.
        ``load``, if queries came as one of MLPerf's scenarios says: ``scenario``, ``rate`` asked for (queries a
        second), ``seed``, ``samples_per_query``, ``calls_per_query``, ``queries_in_memory``; ``ended`` (what ended
        it), ``busy_ns`` (how long it lasted), ``unanswered`` (queries due and not sent); ``max_latency``, a bound
        such as ``10ms@p99``; ``search``, how the highest rate that keeps it was looked for.
        ``pace``, if there is a series ``paced``: ``period_ns`` from call to call, ``missed`` turns.
    series
        ``inference``: ``start_ns`` from the start of the window, ``latency_ns``, and ``samples`` in each call;
        where the model ran on a target also ``host_ns``, ``wire_ns``, ``serve_ns`` and ``target_ns``, which add up
        to ``latency_ns`` (:meth:`~nnpipe.protocols.client.session.RemoteSession.split`);
        under a load one row a query (offline, a call), and in the server scenario ``scheduled_ns``, when it was
        due: ``latency_ns`` counts from then, ``start_ns`` is when it was sent, and the parts add up to the rest;
        ``resources``: ``time_ns`` from the same start, ``cpu_percent``, ``process_bytes``, ``memory_bytes`` and what
        else :class:`~nnpipe.measuring.resource_sampler.UsageSampler` records; ``target``: the same of the target;
        ``paced``: calls at the pace of use (:class:`~nnpipe.measuring.pace.Paced`), divided up as ``inference`` is.
    evaluation
        Predictions and truth, if quality was measured.
    created
        Date and time with zone, ISO 8601.
    verification
        What comparing the model's outputs with those of the one that it was made from gave: ``verdict`` (``same``,
        ``close``, ``different``, or ``unknown`` where it could not be done), ``reason``, and figures; may be empty.
    audits
        By name (``outputs``, ``caching``) what an audit gave (:mod:`nnpipe.measuring.audit`): ``verdict`` (``passed``,
        ``failed`` or ``unknown``), ``reason``, and figures; may be empty.
    preparation
        How samples were prepared, as :class:`~nnpipe.core.preparation.Preparation` says it, and under ``arrived`` what
        came of that (:func:`~nnpipe.measuring.input_ranges.input_ranges`); empty in files of older versions.

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

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON can hold it; ``summary`` is for human readers and ignored when read."""
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
            "frameworks": dict(self.frameworks),
            "host": dict(self.host),
            "timing": dict(self.timing),
            "series": {name: {c: pack(a) for c, a in series.columns.items()} for name, series in self.series.items()},
            "evaluation": None
            if self.evaluation is None
            else {
                "task": self.evaluation.task,
                "class_names": list(self.evaluation.class_names),
                "arrays": {name: pack(array) for name, array in self.evaluation.arrays.items()},
            },
        }

    def summary(self) -> dict[str, Any]:
        """Return counts, the median, the accuracy and what speaks against them, for a person who opens the file.

        Figures are named as :mod:`nnpipe.measuring.quantities` has them, in its units.
        """
        from nnpipe.measuring.diagnosis import diagnose
        from nnpipe.measuring.quality_doubts import quality_doubts
        from nnpipe.measuring.statistics import percentile

        found: dict[str, Any] = {}
        inference = self.series.get("inference")
        if inference is not None and len(inference):
            found["inferences"] = len(inference)
            counted = call_time(inference.columns, self.timing)
            times = [(counted.name, counted.column)]
            if counted is ON_TARGET:
                times.append((ROUND_TRIP.name, ROUND_TRIP.column))
            for name, column in times:
                median = percentile(Sample(inference[column].astype(np.float64)), 0.5)
                found[f"{name}_median"] = {
                    "value": None if median.value is None else median.value / 1e9,
                    "interval": None if median.interval is None else [end / 1e9 for end in median.interval],
                    "unit": "s",
                }
        if self.evaluation is not None:
            found["evaluated_samples"] = len(self.evaluation)
            arrays = self.evaluation.arrays
            if (
                self.evaluation.task == "classification"
                and {"truth", "predicted"} <= arrays.keys()
                and len(self.evaluation)
            ):
                found["accuracy"] = {"value": float(np.mean(arrays["truth"] == arrays["predicted"])), "unit": "1"}
        if doubts := (*diagnose(self), *quality_doubts(self)):
            found["doubts"] = [f"{doubt.kind}: {doubt.reason}" for doubt in doubts]
        return found

    def write(self, path: str | Path) -> None:
        """Write the result file, whole or not at all."""
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
        """Read what :meth:`to_json` gave.

        Raises
        ------
        ArtifactError
            If it is anything else.
        """
        if not isinstance(data, dict) or "schema" not in data:
            raise ArtifactError("not a result file")
        if data.get("kind") == COMPARISON:
            raise ArtifactError("the result of a comparison, not of one run")
        if data["schema"] != SCHEMA:
            raise ArtifactError(f"schema {str(data['schema'])[:40]} is unknown, this version reads {SCHEMA}")
        try:
            arrays = ArrayUnpacker()
            return cls(
                title=typed(str, data, "title"),
                command=tuple(map(str, typed(list, data, "command"))),
                components=typed(dict, data, "components"),
                artifact=typed(dict, data, "artifact"),
                frameworks=typed(dict, data, "frameworks"),
                host=typed(dict, data, "host"),
                timing=typed(dict, data, "timing"),
                series=series_of(typed(dict, data, "series"), arrays),
                evaluation=evaluation_of(data["evaluation"], arrays),
                created=typed(str, data, "created"),
                # Files from before there were such things have none.
                verification=typed(dict, data, "verification") if "verification" in data else {},
                audits=typed(dict, data, "audits") if "audits" in data else {},
                preparation=typed(dict, data, "preparation") if "preparation" in data else {},
            )
        except KeyError as error:
            raise ArtifactError(f"not a whole result file: {error} is missing") from None
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"not a usable result file: {error}") from None
