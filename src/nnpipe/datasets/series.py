"""Series of numbers from CSV files, of which the next values are to be told."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import list_names
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import Listing, find_files, list_class_files
from nnpipe.datasets._number_table import read_column_names, read_numbers
from nnpipe.datasets._split import get_split_index
from nnpipe.datasets.in_memory import check_indices
from nnpipe.datasets.listed_files import ClassifiedFilesDataset
from nnpipe.tasks.classification.task import Classification
from nnpipe.tasks.forecast.task import Forecast


class SeriesDataset(Dataset):
    """Your own series, to be forecast: a CSV file with a column for each quantity, or a folder of
    such files.

    A sample is a window of rows and the rows behind it.  Each series is split by time: its last
    part is the test split, the part before it the validation split.  A window belongs to the split
    that its last row to be forecast is in, so nothing to be forecast later is seen in training.
    """

    dataset_root: Path = argument(
        Path("series.csv"), help="CSV file, or folder of CSV files with the same columns"
    )
    columns: tuple[str, ...] = argument(
        (), help="columns that the model is given; by default those to be forecast, or all"
    )
    forecast_columns: tuple[str, ...] = argument(
        (), help="columns to be forecast; by default those that are given"
    )
    window: int = argument(24, help="rows that the model is given", minimum=1, maximum=1 << 20)
    horizon: int = argument(1, help="rows to be forecast", minimum=1, maximum=1 << 20)
    stride: int = argument(1, help="rows from one window to the next", minimum=1)
    season: int = argument(
        1,
        help="rows of a season: MASE compares with the value that many rows before",
        minimum=1,
        maximum=1 << 20,
    )

    def prepare(self) -> None:
        """Read all series."""
        _ = self._series

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns that are given, and those to be forecast."""
        if self.columns or self.forecast_columns:
            return self.columns or self.forecast_columns, self.forecast_columns or self.columns
        everything = read_column_names(self._files[0])
        return everything, everything

    @cached_property
    def _files(self) -> list[Path]:
        root = self.dataset_root
        found = [root] if root.is_file() else find_files(root, {".csv"}) if root.is_dir() else []
        if not found:
            raise DatasetError(f"{root} is no CSV file, and no folder of CSV files")
        return found

    @cached_property
    def _series(self) -> list[npt.NDArray[np.float32]]:
        given, wanted = self._names
        both = tuple(dict.fromkeys((*given, *wanted)))
        found = []
        for path in self._files:
            numbers = read_numbers(path, both)
            if len(numbers) < self.window + self.horizon:
                raise DatasetError(
                    f"{path} has {len(numbers):,} rows; a window of {self.window:,} and "
                    f"{self.horizon:,} behind it "
                    "need more"
                )
            found.append(numbers)
        return found

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        given, wanted = self._names
        both = tuple(dict.fromkeys((*given, *wanted)))
        return [both.index(name) for name in given], [both.index(name) for name in wanted]

    @property
    def spec(self) -> DatasetSpec:
        """Windows, the values behind them, the scale of MASE, and the stretch of the series."""
        given, wanted = self._names
        return DatasetSpec(
            Forecast.name,
            inputs=(TensorSpec("series", (None, self.window, len(given)), "float32"),),
            targets=(
                TensorSpec("value", (None, self.horizon, len(wanted)), "float32"),
                TensorSpec("scale", (None, len(wanted)), "float32"),
                TensorSpec("block", (None,), "int64"),
            ),
        )

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        """The number of the first window of each series, and the number of all windows;
        ``(series + 1,)``.
        """
        counts = [
            1 + (len(rows) - self.window - self.horizon) // self.stride for rows in self._series
        ]
        return np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some windows, and what is behind them."""
        indices = check_indices(indices, len(self))
        owners = np.searchsorted(self._starts, indices, side="right") - 1
        rows = (indices - self._starts[owners]) * self.stride
        given, wanted = self._places
        inputs = np.empty((len(indices), self.window, len(given)), np.float32)
        values = np.empty((len(indices), self.horizon, len(wanted)), np.float32)
        for place, (owner, row) in enumerate(zip(owners, rows, strict=True)):
            series = self._series[owner]
            inputs[place] = series[row : row + self.window, given]
            values[place] = series[row + self.window : row + self.window + self.horizon, wanted]
        length = self.window + self.horizon
        most = max(len(series) for series in self._series) // length + 1
        targets = {
            "value": values,
            "scale": self._scales[owners],
            "block": owners * most + rows // length,
        }
        return {"series": inputs}, targets

    @cached_property
    def _scales(self) -> npt.NDArray[np.float32]:
        """The mean absolute error of the naive forecast in the training part of each series,
        ``(series, columns)``.
        """
        found = np.zeros((len(self._series), len(self._names[1])), np.float32)
        for number, series in enumerate(self._series):
            known = series[: self._compute_borders(len(series))[0]]
            if len(known) <= self.season:
                raise DatasetError(
                    f"{self._files[number]}: {len(known):,} rows for training have no season of "
                    f"{self.season:,}"
                )
            for column, place in enumerate(self._places[1]):
                values = known[:, place]
                found[number, column] = np.abs(values[self.season :] - values[: -self.season]).mean(
                    dtype=np.float64
                )
        return found

    def _compute_borders(self, rows: int) -> tuple[int, int]:
        """Return the first row of the validation part and of the test part of a series."""
        test = rows - round(rows * self.test_fraction)
        return test - round(test * self.validation_fraction), test

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Return the indices of one split: the windows whose last row to be forecast is in this
        part of the series.
        """
        place = get_split_index(name)
        parts = []
        for number, series in enumerate(self._series):
            first, count = (
                int(self._starts[number]),
                int(self._starts[number + 1] - self._starts[number]),
            )
            # The last row to be forecast is row + window + horizon - 1.
            ends = [0]
            for border in (*self._compute_borders(len(series)), len(series)):
                before = -(-max(0, border - self.window - self.horizon + 1) // self.stride)
                ends.append(min(before, count))
            parts.append(np.arange(first + ends[place], first + ends[place + 1], dtype=np.int64))
        return np.concatenate(parts)


class SeriesFolderDataset(ClassifiedFilesDataset):
    """Recordings of sensors to be classified, such as gestures: a folder of CSV files per class.

    Folders are as in ``ROOT/CLASS/*.csv``, or ``ROOT/train/CLASS/*.csv`` and so on.  Each file is
    one sample; its first line has the names of the columns.  Recordings are cut to ``window`` rows,
    or the last row is repeated.
    """

    columns: tuple[str, ...] = argument(
        (), help="columns that the model is given; by default all of the first file"
    )
    window: int = argument(128, help="rows of a sample", minimum=1, maximum=1 << 20)
    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders "
        "then have these names or numbers",
    )

    def list_files(self) -> Listing:
        """Return the files in the folders."""
        return list_class_files(self.dataset_root, {".csv"}, "CSV files", self.class_list)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return self.columns or read_column_names(self.files.paths[0])

    def prepare(self) -> None:
        """List the files, and read the names of the columns."""
        super().prepare()
        _ = self._columns

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """The columns, the splits and the classes."""
        return (f"columns: {list_names(self._columns)}", *super().reading_notes)

    @property
    def spec(self) -> DatasetSpec:
        """Recordings ``(n, window, columns)``, float32, and the classes."""
        return DatasetSpec(
            Classification.name,
            inputs=(TensorSpec("series", (None, self.window, len(self._columns)), "float32"),),
            targets=(TensorSpec("label", (None,), "int64"),),
            class_names=self.files.class_names,
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some recordings and their labels."""
        indices = check_indices(indices, len(self))
        found = np.empty((len(indices), self.window, len(self._columns)), np.float32)
        for place, index in zip(found, indices, strict=True):
            rows = read_numbers(self.files.paths[index], self._columns)[: self.window]
            place[: len(rows)], place[len(rows) :] = rows, rows[-1]
        return {"series": found}, {"label": self.files.labels[indices]}
