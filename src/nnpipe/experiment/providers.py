"""Batches of a reader's data, in an order that a restart does not change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.module import Module, Stateful
from nnpipe.experiment.readers.reader import Column, DataReader
from nnpipe.experiment.state import State

Batch = dict[str, npt.NDArray[Any] | list[Any]]


class DataProvider(Module):
    """Provides batches, epoch after epoch, and continues within an epoch after a restart.

    The order of an epoch depends only on the seed and the epoch's number.  A batch
    holds the columns and ``sample_id``, int64 ``(n,)``, the samples' positions in the file.

    Parameters
    ----------
    reader
        Reads the data when the first batch is requested.
    batch_size
        Number of samples in a batch; the last batch of an epoch may have fewer.
    shuffle
        Whether each epoch has a different order.
    seed
        Seed of the orders.
    columns
        The columns to provide; by default all.
    part
        The share of the data to use, ``(begin, end)`` from 0 to 1, in an order that
        depends only on the seed: ``(0, 0.8)`` and ``(0.8, 1)`` have no common samples.
    """

    def __init__(
        self,
        reader: DataReader,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        columns: Sequence[str] | None = None,
        part: Sequence[float] = (0.0, 1.0),
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        if len(part) != 2 or not 0 <= part[0] < part[1] <= 1:
            raise ConfigError(
                f"part: expected two shares from 0 to 1, the first the smaller, not {part}"
            )
        self.reader = reader
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.columns = columns
        self.part = part
        self.state = State(epoch=0, batch=0)
        self._ordered: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    @cached_property
    def data(self) -> dict[str, Column]:
        """The columns.

        Raises
        ------
        ConfigError
            If a requested column does not exist.
        """
        found = self.reader.read()
        for name in self.columns or ():
            if name not in found:
                hint = suggest_name(name, found) or f"; there are: {', '.join(found)}"
                raise ConfigError(f"{self.reader.path} has no column {name!r}{hint}")
        return {name: found[name] for name in self.columns or found}

    @cached_property
    def samples(self) -> npt.NDArray[np.int64]:
        """The positions of the samples in this part, int64 ``(n,)``, ascending."""
        count = len(next(iter(self.data.values())))
        order = np.random.default_rng([self.seed, 0]).permutation(count)
        begin, end = (round(share * count) for share in self.part)
        return np.sort(order[begin:end]).astype(np.int64)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return -(-len(self.samples) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the remaining batches of the epoch; the next iteration is the next epoch."""
        while self.state.batch < len(self):
            yield self._read_batch()
        self.state.epoch += 1
        self.state.batch = 0

    def __call__(self, *arguments: Any) -> Batch:
        """Return the next batch; after the last batch of an epoch, the first of the next one."""
        if not len(self):
            raise ConfigError(f"{self.reader.path}: this part has no samples")
        if self.state.batch >= len(self):
            self.state.epoch += 1
            self.state.batch = 0
        return self._read_batch()

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Yield only the state; data have none."""
        yield "state", self.state

    def _compute_order(self, epoch: int) -> npt.NDArray[np.int64]:
        if not self.shuffle:
            return self.samples
        if self._ordered[0] != epoch:
            self._ordered = (
                epoch,
                np.random.default_rng([self.seed, 1, epoch]).permutation(self.samples),
            )
        return self._ordered[1]

    def _read_batch(self) -> Batch:
        order = self._compute_order(self.state.epoch)
        begin = self.state.batch * self.batch_size
        chosen = order[begin : begin + self.batch_size]
        self.state.batch += 1
        batch: Batch = {
            name: column[chosen]
            if isinstance(column, np.ndarray)
            else [column[place] for place in chosen]
            for name, column in self.data.items()
        }
        return batch | {"sample_id": chosen}
