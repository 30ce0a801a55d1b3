"""Scores of the points of series that were computed elsewhere, to be judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets._class_folders import files_in
from nnpipe.datasets._score_table import ScoreTable
from nnpipe.datasets._split import TEST
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.tasks.series_anomaly.task import SeriesAnomaly

_LIMIT = 64 << 20  # bytes of a file of windows
Times = npt.NDArray[np.datetime64]


class SeriesScoresDataset(InMemoryDataset):
    """Scores of the points of series, a CSV file for each series; ``nnpipe judge`` judges them as NAB does.

    ``dataset_root`` is a folder such as ``results/numenta`` of the Numenta Anomaly Benchmark, or one file.  With
    ``windows``, such as NAB's ``combined_windows.json``, there is one series for each entry of it; the names of files
    may have a prefix, as in ``realTweets/numenta_Twitter_volume_CRM.csv``.  Without it, points of anomalies have a 1
    in ``label_column``.  All points are the test split.
    """

    dataset_root: Path = argument(Path("scores"), help="folder of CSV files of scores, or one such file")
    windows: Path | None = argument(None, help="JSON file: for each series, the first and the last time of each window")
    score_column: str = argument("anomaly_score", help="column of the scores; greater means more anomalous")
    time_column: str = argument("timestamp", help="column of the times, if there are windows")
    label_column: str = argument("label", help="column that is 1 inside a window, if there is no file of windows")
    thresholds: tuple[float, ...] = argument(
        (),
        help="scores from which on a point is a detection: one for all profiles, or one each for standard, low FP and "
        "low FN; by default the best for the samples at hand",
    )

    @property
    def spec(self) -> DatasetSpec:
        """A score, the number of a point's window and of its series."""
        return DatasetSpec(
            SeriesAnomaly.name,
            inputs=(TensorSpec("score", (None,), "float64"),),
            targets=(TensorSpec("window", (None,), "int64"), TensorSpec("series", (None,), "int64")),
        )

    @cached_property
    def task(self) -> SeriesAnomaly:
        """The task, with the thresholds."""
        return SeriesAnomaly(thresholds=self.thresholds)

    def load(self) -> Samples:
        """Return the scores of all series, one after the other."""
        scores: list[npt.NDArray[np.float64]] = []
        windows: list[npt.NDArray[np.int64]] = []
        for path, spans in self._files():
            table = ScoreTable(path, self.score_column)
            scores.append(table.numbers(self.score_column))
            if spans is None:
                windows.append(_of_labels(table.kinds(self.label_column)))
            else:
                windows.append(of_times(path, _times(path, table.texts(self.time_column)), spans))
        counts = [len(score) for score in scores]
        series = np.repeat(np.arange(len(counts)), counts)
        return Samples(
            {"score": np.concatenate(scores)},
            {"window": np.concatenate(windows), "series": series},
            official=np.full(len(series), TEST, np.int8),
        )

    def _files(self) -> list[tuple[Path, Times | None]]:
        root = self.dataset_root
        if root.is_file():
            paths = [root]
        elif root.is_dir():
            paths = files_in(root, {".csv"})
        else:
            raise DatasetError(f"{root} is not there; --dataset-root names a folder of CSV files of scores")
        if self.windows is None:
            if not paths:
                raise DatasetError(f"{root} holds no CSV files")
            return [(path, None) for path in paths]
        return [(_file_of(name, paths, root), spans) for name, spans in sorted(windows_of(self.windows).items())]


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
        content = json.loads(path.read_text("utf-8"))
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
        found[name] = _times(path, [end for span in spans for end in span]).reshape(-1, 2)
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


def _of_labels(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of each point's window, which are stretches of ones."""
    starts = np.diff(labels, prepend=0) == 1
    return np.where(labels == 1, np.cumsum(starts) - 1, -1)


def _times(path: Path, texts: list[str]) -> Times:
    try:
        return np.array(texts, "datetime64[us]")
    except ValueError:
        for text in texts:
            try:
                np.datetime64(text, "us")
            except ValueError:
                raise DatasetError(f"{path}: {text[:40]!r} is no time such as 2014-04-10 07:15:00") from None
        raise


def _file_of(name: str, paths: list[Path], root: Path) -> Path:
    folder, _, last = name.rpartition("/")
    for path in paths:
        if (path.name == last or path.name.endswith(f"_{last}")) and path.parent.as_posix().endswith(folder):
            return path
    raise DatasetError(f"{root} has no scores of {name[:120]!r}")
