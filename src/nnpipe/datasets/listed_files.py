"""The base of data sets with a file for each sample."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from nnpipe.datasets._class_folders import Listing
from nnpipe.datasets._split import DrawnSplitsDataset, Indices, compute_file_groups


class FileListing(Protocol):
    """What all listings of files have."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """One file per sample."""

    @property
    def official(self) -> npt.NDArray[np.integer] | None:
        """The published split, ``(n,)``: 0 for training, 1 for validation, 2 for test; ``None``
        without one.
        """


L = TypeVar("L", bound=FileListing)


class ListedFilesDataset(DrawnSplitsDataset, Generic[L]):
    """Base of data sets with a file for each sample, which is read when it is asked for.

    A subclass writes :meth:`list_files`, and ``strata``.
    """

    abstract: ClassVar[bool] = True

    @abstractmethod
    def list_files(self) -> L:
        """Return the files, without using the network and without opening them.

        Raises
        ------
        DatasetError
            If a file or folder is missing, empty or damaged; the message names it.
        """

    @cached_property
    def files(self) -> L:
        """The listing, created at the first use."""
        return self.list_files()

    def prepare(self) -> None:
        """Download the files if asked for, then list them."""
        self.check_installed()
        if self.download_dataset:
            self.download()
        _ = self.files

    def __len__(self) -> int:
        return len(self.files.paths)

    @property
    def official(self) -> npt.NDArray[np.integer] | None:
        """The published split."""
        return self.files.official

    def groups(self) -> Indices:
        """Return numbers that are equal for files with equal content."""
        return compute_file_groups(self.files.paths)


class ClassifiedFilesDataset(ListedFilesDataset[Listing]):
    """Base of data sets with a file and a class for each sample."""

    abstract: ClassVar[bool] = True

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """The splits and the classes."""
        return (*self.files.notes, *super().reading_notes)

    @property
    def strata(self) -> Indices:
        """The classes."""
        return self.files.labels
