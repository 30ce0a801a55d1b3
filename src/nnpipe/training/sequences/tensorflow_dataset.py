"""Converting between ``tf.data`` and sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batching import checked
from nnpipe.training.sequences._unindexed import unindexed_stream
from nnpipe.training.sequences.sequence import Batch, Sequence, Stream


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
        """Return the number of batches in an epoch; raise ``TypeError`` if TensorFlow does not know it."""
        number = int(self._dataset.cardinality())
        if number < 0:
            raise TypeError("TensorFlow does not know how many batches this data set has")
        return number

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is their number, the number of samples, and a digest of the last one."""
        for batch, after in unindexed_stream(self._batches, position, "the data set of tf.data"):
            size = len(next(iter(batch.values())))
            yield checked(batch, np.arange(after[1] - size, after[1]), "an element of the data set"), after

    def _batches(self) -> Iterator[Batch]:
        for element in self._dataset.as_numpy_iterator():
            batch = {name: _field(value) for name, value in self._parts(element).items()}
            if "sample_id" in batch:
                batch["sample_id"] = np.asarray(batch["sample_id"]).astype(np.int64)
            yield batch

    def _parts(self, element: Any) -> dict[str, Any]:
        if isinstance(element, Mapping):
            return dict(element)
        values = element if isinstance(element, tuple) else (element,)
        if len(values) > len(self._names):
            raise ConfigError(f"an element has {len(values)} parts, and names for {', '.join(self._names)}")
        return dict(zip(self._names, values, strict=False))


def dataset_from(sequence: Sequence) -> Any:
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
            (None, *value.shape[1:]), tf.string if value.dtype.kind in "US" else tf.as_dtype(value.dtype), name
        )
        for name, value in first.items()
    }

    def batches() -> Iterator[dict[str, Any]]:
        for batch in sequence:
            yield {name: np.asarray(value) for name, value in batch.items()}

    found = tf.data.Dataset.from_generator(batches, output_signature=signature)
    try:
        return found.apply(tf.data.experimental.assert_cardinality(len(sequence)))
    except TypeError:
        return found


def _field(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return [item.decode() if isinstance(item, bytes) else item for item in value.tolist()]
    # TensorFlow keeps the memory and exposes it as read-only.
    return np.array(value)
