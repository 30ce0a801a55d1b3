"""Batches of data sets of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.training.sequences._batching import checked, joined
from nnpipe.training.sequences._content_digest import digest_of, named
from nnpipe.training.sequences._unindexed import unindexed_stream
from nnpipe.training.sequences.randomness import order_generator
from nnpipe.training.sequences.samplers import RandomSampler, Sampler, SequentialSampler, repeats_of
from nnpipe.training.sequences.sequence import Batch, Sequence, Stream, positive


class HuggingFaceSequence(Sequence):
    """The batches of a ``datasets.Dataset``, or of an ``IterableDataset`` of the same package.

    Columns become arrays if shapes and types agree, pictures ``(channels, height, width)``, everything else lists.  Of
    a data set with indices, ids are the indices, and any sampler can order them.  A streamed one keeps its own order,
    such as that of ``shuffle(seed=..., buffer_size=...)`` for each epoch.  To be continued it is read again from its
    beginning, since its own state does not hold a buffer of shuffled samples, and refused if it gives other batches.

    Parameters
    ----------
    dataset
        The data set; its format and transforms are applied.
    batch
        Number of samples in a batch.
    shuffle
        Whether each epoch of a data set with indices has a random order.
    sampler
        Chooses and orders the samples, instead of ``shuffle``; it sees the columns of numbers.
    seed
        Seed of the order.
    """

    def __init__(
        self, dataset: Any, *, batch: int = 32, shuffle: bool = False, sampler: Sampler | None = None, seed: int = 0
    ) -> None:
        check_call(HuggingFaceSequence, locals())
        super().__init__()
        self._dataset = dataset
        self._batch = positive("batch", batch)
        self._sampler = sampler or (RandomSampler() if shuffle else SequentialSampler())
        self._seed = seed

    @property
    def _indexed(self) -> bool:
        return hasattr(self._dataset, "__getitem__") and hasattr(self._dataset, "__len__")

    @property
    def exact(self) -> bool:
        """Whether the data set has indices."""
        return self._indexed

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch; raise ``TypeError`` for a streamed data set."""
        if not self._indexed:
            return super().sizes()
        full, rest = divmod(self._sampler.length(len(self._dataset)), self._batch)
        return [self._batch] * full + [rest] * (rest > 0)

    def settings(self) -> dict[str, Any]:
        """Return how samples are ordered and cut, and what says that the data set is the same."""
        found = {"batch": self._batch, "sampler": named(self._sampler), "seed": self._seed}
        if not self._indexed:
            return found
        count = len(self._dataset)
        places = np.unique(np.linspace(0, count - 1, min(count, 8)).astype(np.int64)).tolist()
        some = {name: _column(values) for name, values in self._dataset[places].items()} if places else {}
        return found | {"samples": count, "content": digest_of(some)}

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of samples before it, without indices a list."""
        if not self._indexed:
            set_epoch = getattr(self._dataset, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
            for batch, after in unindexed_stream(self._unindexed, position, "the streamed data set"):
                size = len(next(iter(batch.values())))
                yield checked(batch, np.arange(after[1] - size, after[1]), "a batch of the data set"), after
            return
        count = len(self._dataset)
        order = self._sampler.order(_Columns(self._dataset), count, order_generator(self._seed, epoch))
        repeats = repeats_of(order) if self._sampler.repeats else None
        for begin in range(position or 0, len(order), self._batch):
            chosen = order[begin : begin + self._batch]
            batch = {name: _column(values) for name, values in self._dataset[chosen.tolist()].items()}
            batch["sample_id"] = chosen.copy()
            if repeats is not None:
                batch["sample_repeat"] = repeats[begin : begin + self._batch].copy()
            yield batch, min(begin + self._batch, len(order))

    def _unindexed(self) -> Iterator[Batch]:
        for found in self._dataset.iter(batch_size=self._batch):
            yield {name: _column(values) for name, values in found.items()}


class _Columns(Mapping[str, Any]):
    """The columns of a data set by name, each read when a sampler asks for it."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, name: str) -> Any:
        if name not in self._dataset.column_names:
            raise KeyError(name)
        return np.asarray(self._dataset[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._dataset.column_names)

    def __len__(self) -> int:
        return len(self._dataset.column_names)


def _column(values: Any) -> Any:
    """Return the values of a column as an array where they fit into one."""
    if hasattr(values, "numpy"):  # the data set has the format of a framework
        return values.numpy()
    if isinstance(values, np.ndarray):
        return values
    return joined([_value(value) for value in values]) if len(values) else []


def _value(value: Any) -> Any:
    if hasattr(value, "getbands"):  # a picture of Pillow
        pixels = np.asarray(value)
        return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    if hasattr(value, "numpy"):
        return value.numpy()
    if isinstance(value, list) and value and not isinstance(value[0], (str, bytes, dict, type(None))):
        try:
            found = np.asarray(value)
        except ValueError:  # lists of different lengths
            return value
        return found if found.dtype.kind in "biuf" else value
    return value
