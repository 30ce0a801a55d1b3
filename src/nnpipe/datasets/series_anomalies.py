"""Series of numbers from CSV files in which anomalies are to be found."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import find_files
from nnpipe.datasets._number_table import read_column_names, read_numbers
from nnpipe.datasets._split import TEST, get_split_index
from nnpipe.datasets.anomaly_scores import ScoreTable
from nnpipe.datasets.in_memory import InMemoryDataset, Samples, check_indices
from nnpipe.tasks.series_anomaly.task import SeriesAnomaly

_LIMIT = 64 << 20  # bytes of a file of windows
Times = npt.NDArray[np.datetime64]

_EPOCH = re.compile(r"\d{9,10}|\d{12,13}")  # seconds or milliseconds since 1970, from 1973 on
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
_SLASHES = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(.*)")


def match_window_files(
    windows: Path, paths: Sequence[Path], root: Path
) -> list[tuple[Path, Times]]:
    """Return the file and the windows of each series that a file of windows names, in the order of
    the names.

    Names of files may have a prefix: ``numenta_Twitter_volume_CRM.csv`` belongs to
    ``Twitter_volume_CRM.csv``.

    Raises
    ------
    DatasetError
        If a file is missing, or the file of windows is not one.
    """
    return [
        (_find_file(name, paths, root), spans)
        for name, spans in sorted(read_windows(windows).items())
    ]


def read_windows(path: Path) -> Mapping[str, Times]:
    """Return the windows of each series from a JSON file, ``(windows, 2)`` times by the series'
    name.

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
            isinstance(span, list) and len(span) == 2 and all(isinstance(end, str) for end in span)
            for span in spans
        )
        if not fits:
            raise DatasetError(
                f"{path}: {name[:80]!r} should have a list of windows, each a first and a last time"
            )
        found[name] = parse_times(path, [end for span in spans for end in span]).reshape(-1, 2)
    return found


def compute_windows_from_times(path: Path, times: Times, spans: Times) -> npt.NDArray[np.int64]:
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
            raise DatasetError(
                f"{path} has no points from {first} to {last}, where there should be an anomaly"
            )
        if (found[inside] >= 0).any():
            raise DatasetError(f"{path}: the window from {first} to {last} overlaps the one before")
        found[inside] = number
    return found


def compute_windows_from_labels(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of each point's window, which are stretches of ones."""
    starts = np.diff(labels, prepend=0) == 1
    return np.where(labels == 1, np.cumsum(starts) - 1, -1)


def parse_times(path: Path, texts: Sequence[str]) -> Times:
    """Return times such as ``2014-04-10 07:15:00``, in UTC where they have an offset.

    Year, month and day may also be separated by slashes, day, month and year by points, and seconds
    or milliseconds since 1970 are times as well.

    Raises
    ------
    DatasetError
        If a text is no time; whether 04/10/2014 begins with the day or the month cannot be told.
    """
    plain = [_normalize_time(text.strip()) for text in texts]
    try:
        return _convert_times(plain)
    except ValueError:
        for text, written in zip(texts, plain, strict=True):
            try:
                _convert_times([written])
            except ValueError:
                raise DatasetError(
                    f"{path}: {text[:40]!r} is no time such as 2014-04-10 07:15:00"
                ) from None
        raise


def _normalize_time(text: str) -> str:
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


def _convert_times(texts: Sequence[str]) -> Times:
    with warnings.catch_warnings():
        # numpy keeps no time zones, and converts to UTC, as is wanted
        warnings.simplefilter("ignore", UserWarning)
        found = np.array(texts, "datetime64[us]")
    if np.isnat(found).any():  # of an empty text
        raise ValueError("no time")
    return found


def _find_file(name: str, paths: Sequence[Path], root: Path) -> Path:
    folder, _, last = name.rpartition("/")
    for path in paths:
        if (
            path.name == last or path.name.endswith(f"_{last}")
        ) and path.parent.as_posix().endswith(folder):
            return path
    raise DatasetError(f"{root} has no scores of {name[:120]!r}")


Ints = npt.NDArray[np.int64]


class SeriesAnomaliesDataset(Dataset):
    """Your own series with anomalies: a CSV file for each, with a column for each quantity.

    There is a sample for each point: the rows up to it, as many as ``window`` says; before the
    first row, it is repeated.  Anomalies are stretches of ones in ``label_column``, or windows of
    time in a JSON file, such as ``combined_windows.json`` of the Numenta Anomaly Benchmark with its
    folder ``data``.

    By default all points are the test split.  With a smaller ``test_fraction``, the first part of
    each series is for training and validation.
    """

    formerly: ClassVar[tuple[str, ...]] = ("AnomalyDetectionDataset",)

    dataset_root: Path = argument(
        Path("series"), help="CSV file, or folder of CSV files with the same columns"
    )
    test_fraction: float = argument(
        1.0, help="last part of each series, for testing", minimum=0.0, maximum=1.0
    )
    columns: tuple[str, ...] = argument(
        (), help="columns that the model is given; by default all but those of times and labels"
    )
    window: int = argument(
        24, help="rows that the model is given for a point", minimum=1, maximum=1 << 20
    )
    windows: Path | None = argument(
        None, help="JSON file: for each series, the first and the last time of each window"
    )
    time_column: str = argument("timestamp", help="column of the times, if there are windows")
    label_column: str = argument(
        "label", help="column that is 1 inside a window, if there is no file of windows"
    )
    thresholds: tuple[float, ...] = argument(
        (),
        help="scores from which on a point is a detection: one for all profiles, or one each for "
        "standard, low FP and low FN; by default the best for the samples at hand",
    )

    def prepare(self) -> None:
        """Read all series."""
        _ = self._series

    @property
    def spec(self) -> DatasetSpec:
        """The rows up to a point, and the number of its window and of its series."""
        return DatasetSpec(
            SeriesAnomaly.name,
            inputs=(TensorSpec("points", (None, self.window, len(self._columns)), "float32"),),
            targets=(
                TensorSpec("window", (None,), "int64"),
                TensorSpec("series", (None,), "int64"),
            ),
        )

    @cached_property
    def task(self) -> SeriesAnomaly:
        """The task, with the thresholds."""
        return SeriesAnomaly(thresholds=self.thresholds)

    @cached_property
    def _files(self) -> list[tuple[Path, Times | None]]:
        root = self.dataset_root
        paths = [root] if root.is_file() else find_files(root, {".csv"}) if root.is_dir() else []
        if not paths:
            raise DatasetError(f"{root} is no CSV file, and no folder of CSV files")
        if self.windows is None:
            return [(path, None) for path in paths]
        return list(match_window_files(self.windows, paths, root))

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        if self.columns:
            return self.columns
        path = self._files[0][0]
        found = tuple(
            name
            for name in read_column_names(path)
            if name not in (self.time_column, self.label_column)
        )
        if not found:
            raise DatasetError(
                f"{path} has no columns beside {self.time_column} and {self.label_column}"
            )
        return found

    @cached_property
    def _series(self) -> list[tuple[npt.NDArray[np.float32], Ints]]:
        """The numbers of each series, ``(points, columns)``, and the windows of its points."""
        return [
            (read_numbers(path, self._columns), self._compute_windows(path, spans))
            for path, spans in self._files
        ]

    def _compute_windows(self, path: Path, spans: Times | None) -> Ints:
        if spans is None:
            return compute_windows_from_labels(self._read_labels(path))
        return compute_windows_from_times(
            path,
            parse_times(path, ScoreTable(path, self.time_column).get_texts(self.time_column)),
            spans,
        )

    def _read_labels(self, path: Path) -> Ints:
        try:
            return np.asarray(read_numbers(path, (self.label_column,))[:, 0] != 0, np.int64)
        except DatasetError:  # words such as True and False
            return ScoreTable(path, self.label_column).parse_anomaly_labels(self.label_column)

    @cached_property
    def _starts(self) -> Ints:
        return np.concatenate([[0], np.cumsum([len(numbers) for numbers, _ in self._series])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return the rows up to some points, and what these are."""
        indices = check_indices(indices, len(self))
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        inputs = np.empty((len(indices), self.window, len(self._columns)), np.float32)
        windows = np.empty(len(indices), np.int64)
        back = np.arange(1 - self.window, 1)
        for place, (owner, point) in enumerate(
            zip(owners, indices - self._starts[owners], strict=True)
        ):
            numbers, of_points = self._series[owner]
            inputs[place] = numbers[np.maximum(point + back, 0)]
            windows[place] = of_points[point]
        return {"points": inputs}, {"window": windows, "series": owners.astype(np.int64)}

    def split(self, name: str) -> Ints:
        """Return the indices of one split, in the order of time."""
        place = get_split_index(name)
        parts = []
        for first, end in zip(self._starts, self._starts[1:], strict=False):
            test = end - round((end - first) * self.test_fraction)
            ends = (first, test - round((test - first) * self.validation_fraction), test, end)
            parts.append(np.arange(ends[place], ends[place + 1], dtype=np.int64))
        return np.concatenate(parts)


class SeriesScoresDataset(InMemoryDataset):
    """Scores of the points of series, a CSV file for each, to be judged by ``nnpipe judge
    SeriesScoresDataset``.

    ``dataset_root`` is a folder such as ``results/numenta`` of the Numenta Anomaly Benchmark, or
    one file.  With ``windows``, such as NAB's ``combined_windows.json``, there is one series for
    each entry of it; the names of files may have a prefix, as in
    ``realTweets/numenta_Twitter_volume_CRM.csv``.  Without it, points of anomalies have a 1 in
    ``label_column``.  All points are the test split.
    """

    dataset_root: Path = argument(
        Path("scores"), help="folder of CSV files of scores, or one such file"
    )
    windows: Path | None = argument(
        None, help="JSON file: for each series, the first and the last time of each window"
    )
    score_column: str = argument(
        "anomaly_score", help="column of the scores; greater means more anomalous"
    )
    time_column: str = argument("timestamp", help="column of the times, if there are windows")
    label_column: str = argument(
        "label", help="column that is 1 inside a window, if there is no file of windows"
    )
    thresholds: tuple[float, ...] = argument(
        (),
        help="scores from which on a point is a detection: one for all profiles, or one each for "
        "standard, low FP and low FN; by default the best for the samples at hand",
    )

    @property
    def spec(self) -> DatasetSpec:
        """A score, the number of a point's window and of its series."""
        return DatasetSpec(
            SeriesAnomaly.name,
            inputs=(TensorSpec("score", (None,), "float64"),),
            targets=(
                TensorSpec("window", (None,), "int64"),
                TensorSpec("series", (None,), "int64"),
            ),
        )

    @cached_property
    def task(self) -> SeriesAnomaly:
        """The task, with the thresholds."""
        return SeriesAnomaly(thresholds=self.thresholds)

    def load(self) -> Samples:
        """Return the scores of all series, one after the other."""
        scores: list[npt.NDArray[np.float64]] = []
        windows: list[npt.NDArray[np.int64]] = []
        for path, spans in self._list_series():
            table = ScoreTable(path, self.score_column)
            scores.append(table.numbers(self.score_column))
            if spans is None:
                windows.append(
                    compute_windows_from_labels(table.parse_anomaly_labels(self.label_column))
                )
            else:
                windows.append(
                    compute_windows_from_times(
                        path, parse_times(path, table.get_texts(self.time_column)), spans
                    )
                )
        counts = [len(score) for score in scores]
        series = np.repeat(np.arange(len(counts)), counts)
        return Samples(
            {"score": np.concatenate(scores)},
            {"window": np.concatenate(windows), "series": series},
            official=np.full(len(series), TEST, np.int8),
        )

    def _list_series(self) -> list[tuple[Path, Times | None]]:
        root = self.dataset_root
        if root.is_file():
            paths = [root]
        elif root.is_dir():
            paths = find_files(root, {".csv"})
        else:
            raise DatasetError(
                f"{root} is not there; --dataset-root names a folder of CSV files of scores"
            )
        if self.windows is None:
            if not paths:
                raise DatasetError(f"{root} holds no CSV files")
            return [(path, None) for path in paths]
        return list(match_window_files(self.windows, paths, root))
