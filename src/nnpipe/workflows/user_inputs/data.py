"""Converting data from Python: arrays, batches of PyTorch or TensorFlow, or a data set of nnpipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent

Array = npt.NDArray[Any]

_INPUT = "input"


@dataclass(frozen=True, eq=False)
class Arrays:
    """Samples with their classes.

    Attributes
    ----------
    inputs
        Arrays ``(n, ...)`` by tensor name.
    labels
        Class numbers from 0, int64 ``(n,)``.
    """

    inputs: Mapping[str, Array]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def arrays_of(data: Any, progress: Progress = silent) -> Arrays:
    """Return data as arrays.

    Parameters
    ----------
    data
        ``(inputs, labels)`` with arrays or tensors, or an iterable of such pairs for batches or samples: a PyTorch
        ``DataLoader``, a ``tf.data.Dataset``, a list.  Inputs may be a dict of arrays by name.  Labels are
        class numbers,
        or one-hot rows.

    Raises
    ------
    ConfigError
        If the data have another form, or do not fit together.
    """
    if isinstance(data, Arrays):
        return data
    if isinstance(data, Dataset):
        raise ConfigError("a data set of nnpipe needs no arrays")
    if isinstance(data, tuple) and len(data) == 2:
        return _checked(_named(data[0]), _array(data[1]))
    if not isinstance(data, Iterable) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        data = map(data.__getitem__, range(len(data)))  # as for data sets of PyTorch
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise ConfigError(
            f"data should be (inputs, labels), what gives such pairs (a DataLoader, a tf.data.Dataset), or a Dataset "
            f"of nnpipe, not {type(data).__name__}"
        )
    inputs: dict[str, list[Array]] = {}
    labels: list[Array] = []
    for pair in progress(data, "reading the data", None):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ConfigError(f"data should give pairs of inputs and labels; it gave {_told(pair)}")
        named, label = _named(pair[0]), _array(pair[1])
        single = not label.ndim
        if labels and named.keys() != inputs.keys():
            raise ConfigError(f"data gave {', '.join(named)} after {', '.join(inputs)}")
        for name, array in named.items():
            inputs.setdefault(name, []).append(array[None] if single else array)
        labels.append(label[None] if single else label)
    if not labels:
        raise ConfigError("data gave no samples (an iterator gives them once only)")
    try:
        joined = {name: np.concatenate(parts) for name, parts in inputs.items()}
        return _checked(joined, np.concatenate(labels))
    except ValueError as error:
        raise ConfigError(f"samples of the data differ in shape: {error}") from None


def inputs_of(data: Any, progress: Progress = silent) -> Arrays:
    """Return samples as arrays if their classes do not matter: all have class 0.

    Parameters
    ----------
    data
        Data as for :func:`arrays_of`, or only inputs: an array or tensor, or a dict of them by name.

    Raises
    ------
    ConfigError
        If the data have another form, or inputs differ in their number of samples.
    """
    if isinstance(data, tuple) and len(data) == 2:
        data = data[0]
    elif not isinstance(data, Mapping) and not hasattr(data, "__array__"):
        return arrays_of(data, progress)
    inputs = _named(data)
    first = next(iter(inputs.values()))
    if not first.ndim or not len(first):
        raise ConfigError(f"data should hold samples along its first axis; its shape is {first.shape}")
    if any(array.shape[:1] != first.shape[:1] for array in inputs.values()):
        told = ", ".join(f"{name} of shape {array.shape}" for name, array in inputs.items())
        raise ConfigError(f"inputs differ in their number of samples: {told}")
    return Arrays(inputs, np.zeros(len(first), np.int64))


def _named(given: Any) -> dict[str, Array]:
    if isinstance(given, Mapping):
        if not given or not all(isinstance(name, str) and name.isidentifier() for name in given):
            raise ConfigError("inputs by name need names such as 'image'")
        return {name: _array(value) for name, value in given.items()}
    return {_INPUT: _array(given)}


def _array(given: Any) -> Array:
    """Return an array, or a tensor on any device, as a numpy array."""
    if hasattr(given, "detach"):  # a PyTorch tensor: it may require gradients, and be on a GPU
        given = given.detach().cpu()
        if str(given.dtype) == "torch.bfloat16":  # which numpy lacks
            given = given.float()
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"data should hold arrays; {_told(given)} is none: {str(error).splitlines()[0]}") from None
    if found.dtype.hasobject:
        raise ConfigError(f"data should hold arrays of numbers; {_told(given)} is none")
    return found


def _checked(inputs: dict[str, Array], labels: Array) -> Arrays:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all():
        labels = labels.argmax(axis=1)
    if labels.ndim != 1 or not len(labels):
        raise ConfigError(f"labels should be one class number a sample; their shape is {labels.shape}")
    if labels.dtype.kind == "f" and np.array_equal(labels, np.rint(labels)):
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise ConfigError(f"labels should be class numbers from 0; they are {labels.dtype}, the least {labels.min()}")
    for name, array in inputs.items():
        if not array.ndim or len(array) != len(labels):
            count = len(array) if array.ndim else "no"
            raise ConfigError(f"there are {len(labels)} labels and {count} samples of {name!r}")
    return Arrays(inputs, labels.astype(np.int64))


def _told(given: Any) -> str:
    shape = getattr(given, "shape", None)
    return type(given).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
