"""The windows of anomalies in series: from a file of times, or from a column of labels."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError

_LIMIT = 64 << 20  # bytes of a file of windows
Times = npt.NDArray[np.datetime64]

_EPOCH = re.compile(r"\d{9,10}|\d{12,13}")  # seconds or milliseconds since 1970, from 1973 on
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
_SLASHES = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(.*)")


def files_of_windows(windows: Path, paths: Sequence[Path], root: Path) -> list[tuple[Path, Times]]:
    """Return the file and the windows of each series that a file of windows names, in the order of the names.

    Names of files may have a prefix: ``numenta_Twitter_volume_CRM.csv`` belongs to ``Twitter_volume_CRM.csv``.

    Raises
    ------
    DatasetError
        If a file is missing, or the file of windows is not one.
    """
    return [(_file_of(name, paths, root), spans) for name, spans in sorted(windows_of(windows).items())]


def windows_of(path: Path) -> Mapping[str, Times]:
    """Return the windows of each series from a JSON file, ``(windows, 2)`` times by the series' name.

    Raises
    ------
    DatasetError
        If the file is not one of windows.
    """
    try:
        if path.stat().st_size > _LIMIT:
            raise DatasetError(f"{path} is too large for a file of windows")
        content = parse_json(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path} cannot be read as windows: {error}") from None
    if not isinstance(content, dict) or not content:
        raise DatasetError(f"{path} should hold the windows of each series by its name")
    found = {}
    for name, spans in content.items():
        fits = isinstance(spans, list) and all(
            isinstance(span, list) and len(span) == 2 and all(isinstance(end, str) for end in span) for span in spans
        )
        if not fits:
            raise DatasetError(f"{path}: {name[:80]!r} should have a list of windows, each a first and a last time")
        found[name] = times_of(path, [end for span in spans for end in span]).reshape(-1, 2)
    return found


def of_times(path: Path, times: Times, spans: Times) -> npt.NDArray[np.int64]:
    """Return the number of each point's window, ``(points,)``; -1 outside.

    Raises
    ------
    DatasetError
        If a window has no points, or two share one.
    """
    found = np.full(len(times), -1, np.int64)
    for number, (first, last) in enumerate(spans):
        inside = (times >= first) & (times <= last)
        if not inside.any():
            raise DatasetError(f"{path} has no points from {first} to {last}, where there should be an anomaly")
        if (found[inside] >= 0).any():
            raise DatasetError(f"{path}: the window from {first} to {last} overlaps the one before")
        found[inside] = number
    return found


def of_labels(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of each point's window, which are stretches of ones."""
    starts = np.diff(labels, prepend=0) == 1
    return np.where(labels == 1, np.cumsum(starts) - 1, -1)


def times_of(path: Path, texts: Sequence[str]) -> Times:
    """Return times such as ``2014-04-10 07:15:00``, in UTC where they have an offset.

    Year, month and day may also be separated by slashes, day, month and year by points, and seconds or milliseconds
    since 1970 are times as well.

    Raises
    ------
    DatasetError
        If a text is no time; whether 04/10/2014 begins with the day or the month cannot be told.
    """
    plain = [_plain(text.strip()) for text in texts]
    try:
        return _times(plain)
    except ValueError:
        for text, written in zip(texts, plain, strict=True):
            try:
                _times([written])
            except ValueError:
                raise DatasetError(f"{path}: {text[:40]!r} is no time such as 2014-04-10 07:15:00") from None
        raise


def _plain(text: str) -> str:
    """Return a time as numpy reads it, if it is one of the other forms."""
    if _EPOCH.fullmatch(text):
        return str(np.datetime64(int(text.ljust(13, "0") if len(text) <= 10 else text), "ms"))
    if found := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = found.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{rest}"
    elif found := _SLASHES.fullmatch(text):
        year, month, day, rest = found.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{rest}"
    return re.sub(r"(:\d\d),(\d+)$", r"\1.\2", text)


def _times(texts: Sequence[str]) -> Times:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # numpy keeps no time zones, and converts to UTC, as is wanted
        found = np.array(texts, "datetime64[us]")
    if np.isnat(found).any():  # of an empty text
        raise ValueError("no time")
    return found


def _file_of(name: str, paths: Sequence[Path], root: Path) -> Path:
    folder, _, last = name.rpartition("/")
    for path in paths:
        if (path.name == last or path.name.endswith(f"_{last}")) and path.parent.as_posix().endswith(folder):
            return path
    raise DatasetError(f"{root} has no scores of {name[:120]!r}")
