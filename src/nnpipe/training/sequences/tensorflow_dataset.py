"""From ``tf.data`` to sequences, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batching import checked
from nnpipe.training.sequences.sequence import Sequence, Stream


class TensorFlowSequence(Sequence):
    """The batches of a ``tf.data.Dataset``.

    Where elements are dictionaries with a ``"sample_id"``, those are the ids.
    Else ids count the samples as they come, which tells samples apart only in a
    data set that gives the same order each time.  A resumed run reads and throws
    away what came before; it is exact if the data set is.

    Parameters
    ----------
    dataset
        Of batches: dictionaries, tuples or single tensors.
    names
        Of the parts, where elements are tuples.
    """

    def __init__(self, dataset: Any, *, names: tuple[str, ...] = ("input", "target")) -> None:
        check_call(TensorFlowSequence, locals())
        super().__init__()
        self._dataset = dataset
        self._names = names

    @property
    def exact(self) -> bool:
        """It cannot be known."""
        return False

    def __len__(self) -> int:
        """Return the batches of an epoch, as far as TensorFlow knows."""
        number = int(self._dataset.cardinality())
        if number < 0:
            raise TypeError("TensorFlow does not know how many batches this data set has")
        return number

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is their number and that of the samples."""
        start, count = position if position is not None else (0, 0)
        for number, element in enumerate(self._dataset.skip(start).as_numpy_iterator(), start + 1):
            batch = {name: _field(value) for name, value in self._parts(element).items()}
            size = len(next(iter(batch.values())))
            if "sample_id" in batch:
                batch["sample_id"] = np.asarray(batch["sample_id"]).astype(np.int64)
            yield checked(batch, np.arange(count, count + size), "an element of the data set"), [number, count + size]
            count += size

    def _parts(self, element: Any) -> dict[str, Any]:
        if isinstance(element, Mapping):
            return dict(element)
        values = element if isinstance(element, tuple) else (element,)
        if len(values) > len(self._names):
            raise ConfigError(f"an element has {len(values)} parts, and names for {', '.join(self._names)}")
        return dict(zip(self._names, values, strict=False))


def dataset_from(sequence: Sequence) -> Any:
    """Yield a ``tf.data.Dataset`` of a sequence's batches: dictionaries of tensors.

    The first batch is made once more than needed, to see what there is.  Lists
    of texts become tensors of strings; other lists must fit into arrays.
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
    # TensorFlow keeps the memory and gives it out read-only.
    return np.array(value)
