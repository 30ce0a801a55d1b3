"""The result of one measurement: everything needed to judge it, and to judge it again later."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.files import write_text
from nnpipe.measure.dependence import Sample
from nnpipe.measure.packed import LIMIT, pack, unpack
from nnpipe.measure.quantities import ON_TARGET, ROUND_TRIP, call_time

SCHEMA = 1
COMPARISON = "comparison"  # what ``kind`` is in the file of several runs that took turns

# Bounds on what is taken from a file, so that none can exhaust the memory of whoever reads it.
_FILE_LIMIT = 1 << 28  # bytes; ten million inferences need half of it
_NODE_LIMIT = 1 << 20  # JSON values; bulk arrays are text and count as one each
_ARRAYS_LIMIT = 1 << 30  # bytes of all arrays together, unpacked

T = TypeVar("T")

_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
_COLUMNS = {"resources": ("time_ns",), "paced": ("start_ns", "latency_ns", "asleep")}
_COLUMNS |= {"inference": ("start_ns", "latency_ns", "samples")}


@dataclass(frozen=True)
class Series:
    """Columns of equal length: one row for each time something was observed.

    Parameters
    ----------
    columns
        Arrays by name; the name ends in the unit: ``start_ns``, ``latency_ns``,
        ``cpu_percent``, ``process_bytes``.
    """

    columns: Mapping[str, npt.NDArray[Any]]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if (
                column.ndim != 1
                or column.dtype.kind not in "iuf"
                or (name.endswith("_ns") and column.dtype.kind == "f")
            ):
                raise ArtifactError(f"{name!r} is no column of a series: {column.dtype} of shape {column.shape}")
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ArtifactError(f"the columns of a series differ in length: {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns


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
        else :class:`~nnpipe.measure.sampler.Sampler` records; ``target``: the same of the target;
        ``paced``: calls at the pace of use (:class:`~nnpipe.measure.pace.Paced`), divided up as ``inference`` is.
    evaluation
        Predictions and truth, if quality was measured.
    created
        Date and time with zone, ISO 8601.
    verification
        What comparing the model's outputs with those of the one that it was made from gave: ``verdict`` (``same``,
        ``close``, ``different``, or ``unknown`` where it could not be done), ``reason``, and figures; may be empty.
    audits
        By name (``outputs``, ``caching``) what an audit gave (:mod:`nnpipe.measure.audit`): ``verdict`` (``passed``,
        ``failed`` or ``unknown``), ``reason``, and figures; may be empty.
    preparation
        How samples were prepared, as :class:`~nnpipe.core.preparation.Preparation` says it, and under ``arrived`` what
        came of that (:func:`~nnpipe.measure.arrivals.arrivals`); empty in files of older versions.
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

        Figures are named as :mod:`nnpipe.measure.quantities` has them, in its units.
        """
        from nnpipe.measure.diagnosis import diagnose  # it reads runs, as this does statistics
        from nnpipe.measure.quality import quality_doubts
        from nnpipe.measure.statistics import percentile

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
            arrays = _Arrays()
            return cls(
                title=_of(str, data, "title"),
                command=tuple(map(str, _of(list, data, "command"))),
                components=_of(dict, data, "components"),
                artifact=_of(dict, data, "artifact"),
                frameworks=_of(dict, data, "frameworks"),
                host=_of(dict, data, "host"),
                timing=_of(dict, data, "timing"),
                series=_series(_of(dict, data, "series"), arrays),
                evaluation=_evaluation(data["evaluation"], arrays),
                created=_of(str, data, "created"),
                # Files from before there were such things have none.
                verification=_of(dict, data, "verification") if "verification" in data else {},
                audits=_of(dict, data, "audits") if "audits" in data else {},
                preparation=_of(dict, data, "preparation") if "preparation" in data else {},
            )
        except KeyError as error:
            raise ArtifactError(f"not a whole result file: {error} is missing") from None
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"not a usable result file: {error}") from None


def read_json(path: Path) -> Any:
    """Read the JSON of a result file, unless it is too large to be one.

    Raises
    ------
    ArtifactError
        If that cannot be done; the message does not name the file.
    """
    try:
        if not path.is_file():
            raise ArtifactError("no such result file")
        if path.stat().st_size > _FILE_LIMIT:
            raise ArtifactError("too large for a result file")
        return _parse(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror or error}") from None


def is_result(path: Path) -> bool:
    """Return whether a file is the result of a measurement or of a comparison, by what stands at its top."""
    try:
        data = read_json(path)
    except ArtifactError:
        return False
    return isinstance(data, dict) and "schema" in data and ("series" in data or data.get("kind") == COMPARISON)


class _Arrays:
    """Unpacks arrays until they are too many bytes together."""

    def __init__(self) -> None:
        self.left = _ARRAYS_LIMIT

    def __call__(self, packed: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        found = {}
        for name in packed:
            found[name] = unpack(_of(dict, packed, name), min(self.left, LIMIT))
            self.left -= found[name].nbytes
        return found


def _series(data: Mapping[str, Any], arrays: _Arrays) -> dict[str, Series]:
    found = {name: Series(arrays(_of(dict, data, name))) for name in data}
    for name, columns in _COLUMNS.items():
        for column in columns:
            if name in found and column not in found[name]:
                raise ValueError(f"the series {name!r} has no column {column!r}")
    return found


def _evaluation(data: Any, arrays: _Arrays) -> Evaluation | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        raise TypeError("'evaluation' should be an object")
    found = arrays(_of(dict, data, "arrays"))
    for name, array in found.items():
        if not array.ndim:
            raise ValueError(f"the evaluation's {name!r} has no axis for samples")
    return Evaluation(_of(str, data, "task"), found, tuple(map(str, _of(list, data, "class_names"))))


def _of(kind: type[T], data: Mapping[str, Any], name: str) -> T:
    value = data[name]
    if not isinstance(value, kind):
        raise TypeError(f"{name!r} should be {_KINDS[kind]}")
    return value


def _parse(content: bytes) -> Any:
    # Each value but the first follows one of these; a small file of many empty lists would fill the memory.
    if sum(map(content.count, (b",", b":", b"[", b"{"))) > _NODE_LIMIT:
        raise ArtifactError("not a result file: too many values")
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_number, parse_float=_number)
    except RecursionError:
        raise ArtifactError("not a result file: nested too deeply") from None
    except ValueError as error:
        raise ArtifactError(f"not a result file: {error}") from None


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number")
    return number
