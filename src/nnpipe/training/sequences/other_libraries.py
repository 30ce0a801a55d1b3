"""Batches of data sets of Hugging Face, and conversion between ``tf.data`` and sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batching import join_values, validate_batch
from nnpipe.training.sequences._content_digest import compute_digest, describe_callable
from nnpipe.training.sequences._unindexed import iter_unindexed_batches
from nnpipe.training.sequences.randomness import create_order_generator
from nnpipe.training.sequences.samplers import (
    RandomSampler,
    Sampler,
    SequentialSampler,
    count_repeats,
)
from nnpipe.training.sequences.sequence import Batch, Sequence, Stream, require_positive


class HuggingFaceSequence(Sequence):
    """The batches of a ``datasets.Dataset``, or of an ``IterableDataset`` of the same package.

    Columns become arrays if shapes and types agree, pictures ``(channels, height, width)``,
    everything else lists.  Of a data set with indices, ids are the indices, and any sampler can
    order them.  A streamed one keeps its own order, such as that of ``shuffle(seed=...,
    buffer_size=...)`` for each epoch.  To be continued it is read again from its beginning, since
    its own state does not hold a buffer of shuffled samples, and refused if it gives other batches.

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
        self,
        dataset: Any,
        *,
        batch: int = 32,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        seed: int = 0,
    ) -> None:
        check_call(HuggingFaceSequence, locals())
        super().__init__()
        self._dataset = dataset
        self._batch = require_positive("batch", batch)
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
        """Return the number of samples of each batch; raise ``TypeError`` for a streamed data
        set.
        """
        if not self._indexed:
            return super().sizes()
        full, rest = divmod(self._sampler.length(len(self._dataset)), self._batch)
        return [self._batch] * full + [rest] * (rest > 0)

    def settings(self) -> dict[str, Any]:
        """Return how samples are ordered and cut, and what says that the data set is the same."""
        found = {
            "batch": self._batch,
            "sampler": describe_callable(self._sampler),
            "seed": self._seed,
        }
        if not self._indexed:
            return found
        count = len(self._dataset)
        places = np.unique(np.linspace(0, count - 1, min(count, 8)).astype(np.int64)).tolist()
        some = (
            {name: _to_column(values) for name, values in self._dataset[places].items()}
            if places
            else {}
        )
        return found | {"samples": count, "content": compute_digest(some)}

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of samples before it, without indices a
        list.
        """
        if not self._indexed:
            set_epoch = getattr(self._dataset, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
            for batch, after in iter_unindexed_batches(
                self._iter_unindexed, position, "the streamed data set"
            ):
                size = len(next(iter(batch.values())))
                yield (
                    validate_batch(
                        batch, np.arange(after[1] - size, after[1]), "a batch of the data set"
                    ),
                    after,
                )
            return
        count = len(self._dataset)
        order = self._sampler.order(
            _Columns(self._dataset), count, create_order_generator(self._seed, epoch)
        )
        repeats = count_repeats(order) if self._sampler.repeats else None
        for begin in range(position or 0, len(order), self._batch):
            chosen = order[begin : begin + self._batch]
            batch = {
                name: _to_column(values) for name, values in self._dataset[chosen.tolist()].items()
            }
            batch["sample_id"] = chosen.copy()
            if repeats is not None:
                batch["sample_repeat"] = repeats[begin : begin + self._batch].copy()
            yield batch, min(begin + self._batch, len(order))

    def _iter_unindexed(self) -> Iterator[Batch]:
        for found in self._dataset.iter(batch_size=self._batch):
            yield {name: _to_column(values) for name, values in found.items()}


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


def _to_column(values: Any) -> Any:
    """Return the values of a column as an array where they fit into one."""
    if hasattr(values, "numpy"):  # the data set has the format of a framework
        return values.numpy()
    if isinstance(values, np.ndarray):
        return values
    return join_values([_convert_value(value) for value in values]) if len(values) else []


def _convert_value(value: Any) -> Any:
    if hasattr(value, "getbands"):  # a picture of Pillow
        pixels = np.asarray(value)
        return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    if hasattr(value, "numpy"):
        return value.numpy()
    if (
        isinstance(value, list)
        and value
        and not isinstance(value[0], (str, bytes, dict, type(None)))
    ):
        try:
            found = np.asarray(value)
        except ValueError:  # lists of different lengths
            return value
        return found if found.dtype.kind in "biuf" else value
    return value


class TensorFlowSequence(Sequence):
    """The batches of a ``tf.data.Dataset``.

    If elements are dictionaries with ``"sample_id"``, these are the ids.  Otherwise
    ids count the samples, which identifies them only if the data set has the same
    order each time.  A resumed run reads and discards earlier batches, and refuses to
    go on if the last of them is not the one that it was: shuffle with a seed and
    ``reshuffle_each_iteration=False``, or by ids.

    Parameters
    ----------
    dataset
        The data set of batches: dictionaries, tuples or single tensors.
    names
        Names of the parts, if elements are tuples.
    """

    def __init__(self, dataset: Any, *, names: tuple[str, ...] = ("input", "target")) -> None:
        check_call(TensorFlowSequence, locals())
        super().__init__()
        self._dataset = dataset
        self._names = names

    @property
    def exact(self) -> bool:
        """False: it is not known whether the data set is deterministic."""
        return False

    def __len__(self) -> int:
        """Return the number of batches in an epoch; raise ``TypeError`` if TensorFlow does not
        know it.
        """
        number = int(self._dataset.cardinality())
        if number < 0:
            raise TypeError("TensorFlow does not know how many batches this data set has")
        return number

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is their number, the number of samples, and a digest
        of the last one.
        """
        for batch, after in iter_unindexed_batches(
            self._iter_batches, position, "the data set of tf.data"
        ):
            size = len(next(iter(batch.values())))
            yield (
                validate_batch(
                    batch, np.arange(after[1] - size, after[1]), "an element of the data set"
                ),
                after,
            )

    def _iter_batches(self) -> Iterator[Batch]:
        for element in self._dataset.as_numpy_iterator():
            batch = {
                name: _convert_field(value) for name, value in self._split_element(element).items()
            }
            if "sample_id" in batch:
                batch["sample_id"] = np.asarray(batch["sample_id"]).astype(np.int64)
            yield batch

    def _split_element(self, element: Any) -> dict[str, Any]:
        if isinstance(element, Mapping):
            return dict(element)
        values = element if isinstance(element, tuple) else (element,)
        if len(values) > len(self._names):
            raise ConfigError(
                f"an element has {len(values)} parts, and names for {', '.join(self._names)}"
            )
        return dict(zip(self._names, values, strict=False))


def to_tf_dataset(sequence: Sequence) -> Any:
    """Return a ``tf.data.Dataset`` of a sequence's batches: dictionaries of tensors.

    The first batch is made one extra time, to learn names, shapes and types.  Lists
    of strings become tensors of strings; other lists must fit into arrays.
    """
    import tensorflow as tf

    stream = sequence.stream(sequence.state_dict()["epoch"])
    try:
        first = {name: np.asarray(value) for name, value in next(stream)[0].items()}
    except StopIteration:
        raise ConfigError("the sequence has no batches") from None
    finally:
        stream.close()
    signature = {
        name: tf.TensorSpec(
            (None, *value.shape[1:]),
            tf.string if value.dtype.kind in "US" else tf.as_dtype(value.dtype),
            name,
        )
        for name, value in first.items()
    }

    def iter_batches() -> Iterator[dict[str, Any]]:
        for batch in sequence:
            yield {name: np.asarray(value) for name, value in batch.items()}

    found = tf.data.Dataset.from_generator(iter_batches, output_signature=signature)
    try:
        return found.apply(tf.data.experimental.assert_cardinality(len(sequence)))
    except TypeError:
        return found


def _convert_field(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return [item.decode() if isinstance(item, bytes) else item for item in value.tolist()]
    # TensorFlow keeps the memory and exposes it as read-only.
    return np.array(value)
