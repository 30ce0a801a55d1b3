"""The base of data sets whose splits are published, or drawn at random where they are not."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.datasets._split import Indices, place_of_split, split_samples


class DrawnSplitsDataset(Dataset):
    """Base of data sets whose splits are drawn, stratified and without leakage, as far as none are published."""

    abstract: ClassVar[bool] = True

    @property
    @abstractmethod
    def strata(self) -> npt.NDArray[np.integer]:
        """Integers ``(n,)``, such as classes; each keeps its share in every drawn split."""

    @property
    def official(self) -> npt.NDArray[np.integer] | None:
        """The published split, ``(n,)``: 0 for training, 1 for validation, 2 for test; ``None`` without one."""
        return None

    @abstractmethod
    def groups(self) -> Indices:
        """Return integers ``(n,)``; samples with equal ones are duplicates, and are never in two drawn splits."""

    def split(self, name: str) -> Indices:
        """Return the indices of one split; duplicates are never in two drawn splits."""
        place_of_split(name)
        return np.array(self._splits[name])

    @cached_property
    def _splits(self) -> dict[str, Indices]:
        return split_samples(
            self.strata,
            self.official,
            self.groups,
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=self.split_seed,
        )
