"""The interface by which long-running work reports its progress."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Wraps an iterable and shows how far it has come; ``total`` is its length if it has no
    ``len``.
    """

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        raise NotImplementedError


def silent(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Return the items and show nothing; the default of every ``progress`` parameter."""
    return items


def tell(progress: Progress, done: int, total: int, figures: Mapping[str, float]) -> None:
    """Report how much of the whole work is done, with the latest metrics, to ``progress.tell``
    if it exists.
    """
    told = getattr(progress, "tell", None)
    if told is not None:
        told(done, total, figures)


class Renaming:
    """A progress that renames metrics before it passes them to another progress."""

    def __init__(
        self, progress: Progress, rename: Callable[[Mapping[str, float]], Mapping[str, float]]
    ) -> None:
        self._progress = progress
        self._rename = rename

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        return self._progress(items, what, total)

    def tell(self, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Pass the report on with renamed metrics."""
        tell(self._progress, done, total, self._rename(figures))


# The progress of a training as lines of JSON in a file that other processes read.
#
# Each line is an object such as ``{"fraction": 0.4, "metrics": {"loss": 0.12}}``: the part of the
# work that is done, from 0 to 1, and metrics by name.  Both may be left out.  Metrics may be NaN or
# infinite, as Python's ``json`` writes them.

log = logging.getLogger("nnpipe")

VARIABLE = "NNPIPE_PROGRESS"
"""The environment variable in which a job's script finds the path of the file."""

MOST_METRICS, LONGEST_NAME, LONGEST_LINE = 200, 200, 1 << 16
"""Limits of what is read: metrics in a line, characters in a name, bytes in a line."""


@dataclass(frozen=True)
class Report:
    """How far a training was at one moment; ``fraction`` is None if the line did not contain it."""

    fraction: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def append(path: Path, fraction: float | None, metrics: Mapping[str, float]) -> None:
    """Append a line to the file with a single write, so that several processes can write to it."""
    said: dict[str, Any] = {} if fraction is None else {"fraction": min(1.0, max(0.0, fraction))}
    said["metrics"] = {name: float(value) for name, value in metrics.items()}
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, json.dumps(said).encode() + b"\n")
    finally:
        os.close(handle)


class ProgressFile:
    """A progress that writes to a file; give it as ``progress`` to
    :meth:`nnpipe.training.trainer.Trainer.fit`.

    If the file cannot be written, this is logged once, and the training continues.

    Parameters
    ----------
    path
        The file, such as the one that ``NNPIPE_PROGRESS`` names in a job.
    shown
        Another progress that shows the same.
    begin, end
        The part of the whole work that this progress covers, as fractions from 0 to 1.
    """

    def __init__(
        self, path: str | Path, shown: Progress = silent, *, begin: float = 0.0, end: float = 1.0
    ) -> None:
        self.path, self.shown, self.begin, self.end = Path(path), shown, begin, end
        self._failed = False

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        return self.shown(items, what, total)

    def tell(self, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Append a line to the file."""
        part = done / total if total else 0.0
        try:
            append(self.path, self.begin + (self.end - self.begin) * part, figures)
        except OSError as error:
            if not self._failed:
                log.warning("%s: progress cannot be told: %s", self.path, error.strerror or error)
            self._failed = True

    def part(self, number: int, of: int) -> ProgressFile:
        """Return the progress of part ``number``, counted from 0, of ``of`` equal parts."""
        step = (self.end - self.begin) / of
        return ProgressFile(
            self.path,
            self.shown,
            begin=self.begin + number * step,
            end=self.begin + (number + 1) * step,
        )


def parse_report(line: bytes) -> Report | None:
    """Parse a line; return None if it contains no report."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    fraction = _parse_number(said.get("fraction"))
    if fraction is not None and not 0.0 <= fraction <= 1.0:
        fraction = None
    given = said.get("metrics")
    metrics: dict[str, float] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        number = _parse_number(value)
        if number is not None and _is_valid_name(name) and len(metrics) < MOST_METRICS:
            metrics[name] = number
    return None if fraction is None and not metrics else Report(fraction, metrics)


class Reader:
    """Reads a growing file piece by piece; an incomplete line is kept until its rest arrives.

    Attributes
    ----------
    skipped
        The number of lines without a report.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self._rest = b""
        self._passing = False

    def feed(self, piece: bytes) -> list[Report]:
        """Return the reports of the lines that this piece completes."""
        *lines, rest = (self._rest + piece).split(b"\n")
        found = []
        for line in lines:
            report = None if self._passing else parse_report(line)
            self._passing = False
            if report is not None:
                found.append(report)
            elif line.strip():
                self.skipped += 1
        self._passing = self._passing or len(rest) > LONGEST_LINE
        self._rest = b"" if self._passing else rest
        return found


def _parse_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_valid_name(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()
