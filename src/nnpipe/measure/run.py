"""The result of one measurement: everything needed to judge it, and to judge it again later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.files import write_text
from nnpipe.measure.packed import pack, unpack

SCHEMA = 1
_FILE_LIMIT = 1 << 30


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
    series
        ``inference``: ``start_ns`` from the start of the window, ``latency_ns``, and ``samples`` in each call;
        ``resources``: ``time_ns`` from the same start, ``cpu_percent``, ``process_bytes``, ``memory_bytes``, and
        where there is a GPU ``gpu_percent``, ``gpu_bytes``.
    evaluation
        Predictions and truth, if quality was measured.
    created
        Date and time with zone, ISO 8601.
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

    def to_json(self) -> dict[str, Any]:
        """Give the run as JSON can hold it; ``summary`` is for human readers and ignored when read."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "created": self.created,
            "command": list(self.command),
            "summary": self.summary(),
            "components": dict(self.components),
            "artifact": dict(self.artifact),
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
        """Count and median, so that a person who opens the file sees what it is about."""
        found: dict[str, Any] = {}
        inference = self.series.get("inference")
        if inference is not None and len(inference):
            found = {
                "inferences": len(inference),
                "median_latency_ms": round(float(np.median(inference["latency_ns"])) / 1e6, 6),
            }
        if self.evaluation is not None:
            found["evaluated_samples"] = len(self.evaluation)
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
        path = Path(path)
        if not path.is_file():
            raise ArtifactError(f"{path}: no such result file")
        if path.stat().st_size > _FILE_LIMIT:
            raise ArtifactError(f"{path}: too large for a result file")
        try:
            return cls.from_json(json.loads(path.read_text("utf-8")))
        except RecursionError:
            raise ArtifactError(f"{path}: not a result file (nested too deeply)") from None
        except (ValueError, KeyError, TypeError, AttributeError, ArtifactError) as error:
            cause = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ArtifactError(f"{path}: not a usable result file: {cause}") from None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Read what :meth:`to_json` gave."""
        if data.get("schema") != SCHEMA:
            raise ArtifactError(f"schema {data.get('schema')!r} is unknown, this version reads {SCHEMA}")
        evaluation = data["evaluation"]
        return cls(
            title=str(data["title"]),
            command=tuple(map(str, data["command"])),
            components=dict(data["components"]),
            artifact=dict(data["artifact"]),
            frameworks=dict(data["frameworks"]),
            host=dict(data["host"]),
            timing=dict(data["timing"]),
            series={name: Series({c: unpack(a) for c, a in s.items()}) for name, s in data["series"].items()},
            evaluation=None
            if evaluation is None
            else Evaluation(
                str(evaluation["task"]),
                {name: unpack(array) for name, array in evaluation["arrays"].items()},
                tuple(map(str, evaluation["class_names"])),
            ),
            created=str(data["created"]),
        )
