"""Converting data from Python: arrays, batches of PyTorch or TensorFlow, or a data set of
nnpipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import list_names
from nnpipe.core.progress import Progress, silent
from nnpipe.tasks.classification.labels import class_labels

Array = npt.NDArray[Any]

_INPUT = "input"
_LABELS = ("labels", "label", "target", "targets")
"""Names under which loaders give the truth, those of Hugging Face first."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Samples with their truth.

    Attributes
    ----------
    inputs
        Arrays ``(n, ...)`` by tensor name; by place, from ``"0"`` on, if they came without names.
    labels
        Class numbers from 0, int64 ``(n,)``; or numbers to predict, float32 ``(n, ...)``.
    class_names
        The classes, if labels were texts.
    """

    inputs: Mapping[str, Array]
    labels: Array
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def are_classes(self) -> bool:
        """Whether labels are classes, and not numbers to predict."""
        return bool(self.labels.dtype.kind != "f")


def convert_to_arrays(data: Any, progress: Progress = silent) -> Arrays:
    """Return data as arrays.

    Parameters
    ----------
    data
        ``(inputs, labels)`` with arrays or tensors, or an iterable of such pairs for batches or
        samples: a PyTorch ``DataLoader``, a ``tf.data.Dataset``, a list.  Inputs may be a dict of
        arrays by name, or a tuple of several in the model's order.  Instead of pairs, dicts may
        hold the labels under ``labels``, ``label``, ``target`` or ``targets``, as those of Hugging
        Face do.  Labels are class numbers, texts or one-hot rows, or numbers to predict.

    Raises
    ------
    ConfigError
        If the data have another form, or do not fit together.
    """
    if isinstance(data, Arrays):
        return data
    if isinstance(data, Dataset):
        raise ConfigError("a data set of nnpipe needs no arrays")
    if (isinstance(data, tuple) and len(data) == 2) or isinstance(data, Mapping):
        return _check_labels(*_split_pair(data))
    if not isinstance(data, Iterable) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        data = map(data.__getitem__, range(len(data)))  # as for data sets of PyTorch
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise ConfigError(
            f"data should be (inputs, labels), what gives such pairs (a DataLoader, a "
            f"tf.data.Dataset), or a Dataset of nnpipe, not {type(data).__name__}"
        )
    inputs: dict[str, list[Array]] = {}
    labels: list[Array] = []
    for given in progress(data, "reading the data", None):
        named, label = _split_pair(given)
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
        return _check_labels(joined, np.concatenate(labels))
    except ValueError as error:
        raise ConfigError(f"samples of the data differ in shape: {error}") from None


def _split_pair(given: Any) -> tuple[dict[str, Array], Array]:
    """Return the inputs by their names, and the labels, of a pair or a dict."""
    if isinstance(given, Mapping):
        held = [name for name in _LABELS if name in given]
        if len(held) != 1 or len(given) < 2:
            raise ConfigError(
                f"data by name should be inputs, and labels under one of {', '.join(_LABELS)}; it "
                f"has {list_names(list(map(str, given)))}"
            )
        label = _to_array(given[held[0]])
        return _match_names(
            {name: each for name, each in given.items() if name != held[0]}, label
        ), label
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        hint = (
            "; several inputs are a tuple or a dict: ((a, b), labels)"
            if isinstance(given, (tuple, list))
            else ""
        )
        raise ConfigError(
            f"data should give pairs of inputs and labels; it gave {_describe_value(given)}{hint}"
        )
    label = _to_array(given[1])
    return _match_names(given[0], label), label


def convert_inputs(data: Any, progress: Progress = silent) -> Arrays:
    """Return samples as arrays if their classes do not matter: all have class 0.

    Parameters
    ----------
    data
        Data as for :func:`convert_to_arrays`, or only inputs: an array or tensor, or a dict of them
        by name.

    Raises
    ------
    ConfigError
        If the data have another form, or inputs differ in their number of samples.
    """
    if isinstance(data, tuple) and len(data) == 2:
        data = data[0]
    elif isinstance(data, Mapping) and any(name in data for name in _LABELS):
        data = _split_pair(data)[0]
    elif not isinstance(data, Mapping) and not hasattr(data, "__array__"):
        return convert_to_arrays(data, progress)
    inputs = _match_names(data, None)
    first = next(iter(inputs.values()))
    if not first.ndim or not len(first):
        raise ConfigError(
            f"data should hold samples along its first axis; its shape is {first.shape}"
        )
    if any(array.shape[:1] != first.shape[:1] for array in inputs.values()):
        told = ", ".join(f"{name} of shape {array.shape}" for name, array in inputs.items())
        raise ConfigError(f"inputs differ in their number of samples: {told}")
    return Arrays(inputs, np.zeros(len(first), np.int64))


def _match_names(given: Any, label: Array | None) -> dict[str, Array]:
    """Return inputs by their names; several without names by their places."""
    if isinstance(given, Mapping):
        if not given or not all(isinstance(name, str) and name.isidentifier() for name in given):
            raise ConfigError("inputs by name need names such as 'image'")
        return {name: _to_array(value) for name, value in given.items()}
    if (
        isinstance(given, (tuple, list))
        and len(given) > 1
        and all(getattr(each, "ndim", 0) for each in given)
    ):
        # A list may also hold the samples of one input; a loader of PyTorch makes one of a tuple.
        count = None if label is None or not label.ndim else len(label)
        batches = {*map(len, given)} == {count} and (
            len(given) != count or hasattr(given[0], "detach")
        )
        if isinstance(given, tuple) or batches:
            return {str(place): _to_array(each) for place, each in enumerate(given)}
    return {_INPUT: _to_array(given)}


def _to_array(given: Any) -> Array:
    """Return an array, or a tensor on any device, as a numpy array."""
    if hasattr(given, "detach"):  # a PyTorch tensor: it may require gradients, and be on a GPU
        given = given.detach().cpu()
        if str(given.dtype) == "torch.bfloat16":  # which numpy lacks
            given = given.float()
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"data should hold arrays; {_describe_value(given)} is none: "
            f"{str(error).splitlines()[0]}"
        ) from None
    if found.dtype.hasobject:
        raise ConfigError(f"data should hold arrays of numbers; {_describe_value(given)} is none")
    return found


def _check_labels(inputs: dict[str, Array], labels: Array) -> Arrays:
    names: tuple[str, ...] = ()
    if (
        labels.ndim
        and len(labels)
        and labels.dtype.kind == "f"
        and not np.array_equal(labels, np.rint(labels))
    ):
        if not np.isfinite(labels).all():
            bad = int(np.flatnonzero(~np.isfinite(labels.reshape(len(labels), -1)).all(axis=1))[0])
            raise ConfigError(
                f"labels that are numbers to predict should be finite; that of sample {bad} is not"
            )
        labels = labels.astype(np.float32)
    else:
        try:
            labels, names = class_labels(labels)
        except ValueError as error:
            raise ConfigError(f"labels {error}") from None
    for name, array in inputs.items():
        if not array.ndim or len(array) != len(labels):
            count = len(array) if array.ndim else "no"
            raise ConfigError(f"there are {len(labels)} labels and {count} samples of {name!r}")
    return Arrays(inputs, labels, names)


def _describe_value(given: Any) -> str:
    shape = getattr(given, "shape", None)
    return type(given).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
