"""Scores of the points of series that were computed elsewhere, to be judged."""

from __future__ import annotations

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
from nnpipe.datasets._series_windows import Times, files_of_windows, of_labels, of_times, times_of
from nnpipe.datasets._split import TEST
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.tasks.series_anomaly.task import SeriesAnomaly


class SeriesScoresDataset(InMemoryDataset):
    """Scores of the points of series, a CSV file for each, to be judged by ``nnpipe judge SeriesScoresDataset``.

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
                windows.append(of_labels(table.kinds(self.label_column)))
            else:
                windows.append(of_times(path, times_of(path, table.texts(self.time_column)), spans))
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
        return list(files_of_windows(self.windows, paths, root))
