"""Series: repeated observations as columns of equal length."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from nnpipe.core.errors import ArtifactError


@dataclass(frozen=True)
class Series:
    """Columns of equal length, with one row per observation.

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
                raise ArtifactError(
                    f"{name!r} is no column of a series: {column.dtype} of shape {column.shape}"
                )
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
class CallTime:
    """A definition of the time of a call.

    Parameters
    ----------
    name
        The prefix of the names of its quantities.
    title
        A name for text.
    meaning
        The definition: when the time begins and ends.
    column
        The column of the series ``inference`` that holds it.
    ranks
        Whether it tells which model is faster.  A round trip to a target without a clock does not:
        an emulator's time is that of the machine on which it runs, and a line's is the line's.
    """

    name: str
    title: str
    meaning: str
    column: str
    ranks: bool = True


LATENCY = CallTime(
    "latency",
    "inference time",
    "time of one call, of a batch of samples, where the model runs",
    "latency_ns",
)
ON_TARGET = CallTime("latency", LATENCY.title, LATENCY.meaning, "target_ns")
RESPONSE = CallTime(
    "response",
    "response time",
    "from when a query was due to its answer, waiting included",
    "latency_ns",
)
BETWEEN = CallTime(
    "between",
    "time between answers",
    "from one answer to the next, with all queries there",
    "latency_ns",
)
ROUND_TRIP = CallTime(
    "round_trip",
    "round trip",
    "from the request on this side to the answer on this side, line included",
    "latency_ns",
    ranks=False,
)
PACED = CallTime(
    "paced",
    "time at the pace of use",
    f"{LATENCY.meaning}, after a sleep between calls",
    "latency_ns",
)


def call_time(columns: Container[str], timing: Mapping[str, Any]) -> CallTime:
    """Return the definition of the call times of a run.

    Parameters
    ----------
    columns
        Names of the columns of the series ``inference``.
    timing
        The run's ``timing``, which contains ``load`` if there was a load.
    """
    load = timing.get("load")
    if isinstance(load, Mapping) and load.get("scenario") == "offline":
        return BETWEEN
    # A schedule measures the waiting time, too, which a target's own clock cannot see.
    if "scheduled_ns" in columns:
        return RESPONSE
    # the target's counter is no clock, so nothing tells how long the model took there
    if "target_counts" in columns:
        return ROUND_TRIP
    return ON_TARGET if "target_ns" in columns else LATENCY
