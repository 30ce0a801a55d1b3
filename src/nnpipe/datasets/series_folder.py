"""A directory of recordings of sensors, with one folder per class."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.naming import list_names
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._class_folders import Listing, class_folders
from nnpipe.datasets._number_table import read_column_names, read_numbers
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.datasets.listed_files import ClassifiedFilesDataset
from nnpipe.tasks.classification.task import Classification


class SeriesFolderDataset(ClassifiedFilesDataset):
    """Recordings of sensors to be classified, such as gestures: a folder of CSV files per class.

    Folders are as in ``ROOT/CLASS/*.csv``, or ``ROOT/train/CLASS/*.csv`` and so on.  Each file is one sample; its first
    line has the names of the columns.  Recordings are cut to ``window`` rows, or the last row is repeated.
    """

    columns: tuple[str, ...] = argument((), help="columns that the model is given; by default all of the first file")
    window: int = argument(128, help="rows of a sample", minimum=1, maximum=1 << 20)
    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders then have these "
        "names or numbers",
    )

    def listing(self) -> Listing:
        """Return the files in the folders."""
        return class_folders(self.dataset_root, {".csv"}, "CSV files", self.class_list)

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
        indices = checked_indices(indices, len(self))
        found = np.empty((len(indices), self.window, len(self._columns)), np.float32)
        for place, index in zip(found, indices, strict=True):
            rows = read_numbers(self.files.paths[index], self._columns)[: self.window]
            place[: len(rows)], place[len(rows) :] = rows, rows[-1]
        return {"series": found}, {"label": self.files.labels[indices]}
