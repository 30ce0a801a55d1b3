"""Series of numbers from CSV files in which anomalies are to be found."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import Dataset
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._class_folders import files_in
from nnpipe.datasets._number_table import read_column_names, read_numbers
from nnpipe.datasets._score_table import ScoreTable
from nnpipe.datasets._series_windows import Times, files_of_windows, of_labels, of_times, times_of
from nnpipe.datasets._split import place_of_split
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.tasks.series_anomaly.task import SeriesAnomaly

Ints = npt.NDArray[np.int64]


class SeriesAnomaliesDataset(Dataset):
    """Your own series with anomalies: a CSV file for each, with a column for each quantity.

    There is a sample for each point: the rows up to it, as many as ``window`` says; before the first row, it is
    repeated.  Anomalies are stretches of ones in ``label_column``, or windows of time in a JSON file, such as
    ``combined_windows.json`` of the Numenta Anomaly Benchmark with its folder ``data``.

    By default all points are the test split.  With a smaller ``test_fraction``, the first part of each series is for
    training and validation.
    """

    formerly: ClassVar[tuple[str, ...]] = ("AnomalyDetectionDataset",)

    dataset_root: Path = argument(Path("series"), help="CSV file, or folder of CSV files with the same columns")
    test_fraction: float = argument(1.0, help="last part of each series, for testing", minimum=0.0, maximum=1.0)
    columns: tuple[str, ...] = argument(
        (), help="columns that the model is given; by default all but those of times and labels"
    )
    window: int = argument(24, help="rows that the model is given for a point", minimum=1, maximum=1 << 20)
    windows: Path | None = argument(None, help="JSON file: for each series, the first and the last time of each window")
    time_column: str = argument("timestamp", help="column of the times, if there are windows")
    label_column: str = argument("label", help="column that is 1 inside a window, if there is no file of windows")
    thresholds: tuple[float, ...] = argument(
        (),
        help="scores from which on a point is a detection: one for all profiles, or one each for standard, low FP and "
        "low FN; by default the best for the samples at hand",
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
            targets=(TensorSpec("window", (None,), "int64"), TensorSpec("series", (None,), "int64")),
        )

    @cached_property
    def task(self) -> SeriesAnomaly:
        """The task, with the thresholds."""
        return SeriesAnomaly(thresholds=self.thresholds)

    @cached_property
    def _files(self) -> list[tuple[Path, Times | None]]:
        root = self.dataset_root
        paths = [root] if root.is_file() else files_in(root, {".csv"}) if root.is_dir() else []
        if not paths:
            raise DatasetError(f"{root} is no CSV file, and no folder of CSV files")
        if self.windows is None:
            return [(path, None) for path in paths]
        return list(files_of_windows(self.windows, paths, root))

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        if self.columns:
            return self.columns
        path = self._files[0][0]
        found = tuple(name for name in read_column_names(path) if name not in (self.time_column, self.label_column))
        if not found:
            raise DatasetError(f"{path} has no columns beside {self.time_column} and {self.label_column}")
        return found

    @cached_property
    def _series(self) -> list[tuple[npt.NDArray[np.float32], Ints]]:
        """The numbers of each series, ``(points, columns)``, and the windows of its points."""
        return [(read_numbers(path, self._columns), self._windows(path, spans)) for path, spans in self._files]

    def _windows(self, path: Path, spans: Times | None) -> Ints:
        if spans is None:
            return of_labels(self._labels(path))
        return of_times(path, times_of(path, ScoreTable(path, self.time_column).texts(self.time_column)), spans)

    def _labels(self, path: Path) -> Ints:
        try:
            return np.asarray(read_numbers(path, (self.label_column,))[:, 0] != 0, np.int64)
        except DatasetError:  # words such as True and False
            return ScoreTable(path, self.label_column).kinds(self.label_column)

    @cached_property
    def _starts(self) -> Ints:
        return np.concatenate([[0], np.cumsum([len(numbers) for numbers, _ in self._series])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return the rows up to some points, and what these are."""
        indices = checked_indices(indices, len(self))
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        inputs = np.empty((len(indices), self.window, len(self._columns)), np.float32)
        windows = np.empty(len(indices), np.int64)
        back = np.arange(1 - self.window, 1)
        for place, (owner, point) in enumerate(zip(owners, indices - self._starts[owners], strict=True)):
            numbers, of_points = self._series[owner]
            inputs[place] = numbers[np.maximum(point + back, 0)]
            windows[place] = of_points[point]
        return {"points": inputs}, {"window": windows, "series": owners.astype(np.int64)}

    def split(self, name: str) -> Ints:
        """Return the indices of one split, in the order of time."""
        place = place_of_split(name)
        parts = []
        for first, end in zip(self._starts, self._starts[1:], strict=False):
            test = end - round((end - first) * self.test_fraction)
            ends = (first, test - round((test - first) * self.validation_fraction), test, end)
            parts.append(np.arange(ends[place], ends[place + 1], dtype=np.int64))
        return np.concatenate(parts)
