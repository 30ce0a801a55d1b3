"""Paths of weights in Keras files."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.messages import to_snake_case
from nnpipe.formats.keras import get_member
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.vocabulary.convolutions import Conv1d, Conv2d, Conv2dTranspose, Conv3d
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable
from nnpipe.layers.vocabulary.recurrent import GRU, LSTM, Recurrent
from nnpipe.layers.vocabulary.wrappers import Bidirectional, TimeDistributed


@dataclass(frozen=True)
class WeightHolder:
    """A layer that may hold weights: its full name, its path in the file, and its weights (``None``
    if not known).

    ``top`` is the name of the outermost layer that contains it, or its own name.
    """

    name: str
    top: str
    place: str
    layer: Layer
    variables: tuple[LayerVariable, ...] | None


def iter_layer_paths(
    graph: NetworkGraph, name: str = "", place: str = "", top: str = ""
) -> Iterator[WeightHolder]:
    """Yield the layers of a graph with their paths in a ``.keras`` file: numbered by class, in
    order.
    """
    known = infer(graph).variables
    counts: Counter[str] = Counter()
    for entry in graph.entries:
        layer = entry.layer
        kind = to_snake_case(_get_class_name(layer))
        if isinstance(layer, Input) or _is_operation(layer):
            continue
        at = f"{place}layers/{kind}" + (f"_{counts[kind]}" if counts[kind] else "")
        counts[kind] += 1
        if isinstance(layer, Submodel):
            yield from iter_layer_paths(
                layer.graph, f"{name}{layer.name}/", f"{at}/", top or layer.name
            )
        else:
            yield WeightHolder(
                f"{name}{layer.name}", top or layer.name, at, layer, known.get(layer.name)
            )


def map_weight_paths(item: WeightHolder) -> dict[str, str]:
    """Return the path of each known weight, by the weight's name."""
    return {
        v.name: f"{item.place}/{v.place or f'vars/{i}'}" for i, v in enumerate(item.variables or ())
    }


def _get_class_name(layer: Layer) -> str:
    if isinstance(layer, Submodel):
        return "Sequential" if layer.graph.sequential else "Functional"
    if isinstance(layer, Unknown):
        return layer.class_name
    return type(layer).__name__ if layer.has_keras_hook() else layer.keras or type(layer).__name__


def _is_operation(layer: Layer) -> bool:
    """Return whether it is an operation on tensors, which Keras does not count as a layer."""
    return isinstance(layer, Unknown) and "keras.src.ops" in str(layer.raw.value.get("module"))


# Conversion of weights stored by older versions of Keras to today's layout.
#
# Theano flipped the kernels of its convolutions; TensorFlow does not. Keras 1 stored kernels with
# channels first in another order of axes, and one array for each gate of a recurrent layer.
# Recurrent layers for cuDNN had two biases, and the matrices of each gate were transposed.

_MIRRORED = (Conv1d, Conv2d, Conv3d, Conv2dTranspose)
_GATES: dict[type[Layer], tuple[int, ...]] = {LSTM: (0, 2, 1, 3), GRU: (0, 1, 2)}
"""Position of each of today's gates in Keras 1, which stored the output gate of an LSTM after
its cell.
"""


@dataclass(frozen=True)
class WriterVersion:
    """The writer of a file: the version of Keras (empty if the file does not state it) and its
    backend.
    """

    version: str
    backend: str

    @classmethod
    def from_file(cls, file: Any) -> WriterVersion:
        """Read it from the attributes of an open file, or of the group that holds its weights."""
        groups = [file, *([get_member(file, "model_weights")] if "model_weights" in file else [])]
        found = {"keras_version": "", "backend": ""}
        for group in groups:
            for name in found:
                if name in group.attrs and group.attrs.get_id(name).shape == ():
                    said = group.attrs[name]
                    found[name] = found[name] or (
                        said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
                    )
        return cls(found["keras_version"], found["backend"])

    @property
    def is_first(self) -> bool:
        """Whether Keras 1 wrote the file, which did not always record its version."""
        return re.match(r"0\.|1\.|$", self.version) is not None

    @property
    def mirrors(self) -> bool:
        """Whether kernels are flipped."""
        return self.backend == "theano"


@dataclass(frozen=True)
class ComputedArray:
    """An array that is computed from others when it is read."""

    shape: tuple[int, ...]
    dtype: Any
    make: Callable[[], np.ndarray]

    def __getitem__(self, key: tuple[()]) -> np.ndarray:
        return self.make()


def convert_to_current_layout(layer: Layer, stored: Sequence[Any], age: WriterVersion) -> list[Any]:
    """Return a layer's arrays, in order, as today's Keras would store them; those that do not
    fit stay as they are.
    """
    if isinstance(layer, TimeDistributed):
        return convert_to_current_layout(layer.layer, stored, age)
    if isinstance(layer, Bidirectional):
        half = len(stored) // 2
        return [
            *convert_to_current_layout(layer.layer, stored[:half], age),
            *convert_to_current_layout(layer.layer, stored[half:], age),
        ]
    found = _from_cudnn(layer, list(stored))
    if age.is_first:
        found = _join_gates(layer, found)
        if found and isinstance(layer, _MIRRORED):
            found[0] = _convert_kernel(layer, found[0])
    if (
        age.mirrors
        and found
        and isinstance(layer, _MIRRORED)
        and len(found[0].shape) == layer.rank + 2
    ):
        found[0] = _flip_kernel(found[0])
    return found


def _from_cudnn(layer: Layer, stored: list[Any]) -> list[Any]:
    gates = len(_GATES.get(type(layer), ()))
    if not gates or len(stored) != 3 or not isinstance(layer, Recurrent):
        return stored
    kernel, recurrent, bias = stored
    if tuple(bias.shape) != (2 * gates * layer.units,):
        return stored

    def map_gates(matrix: Any, change: Callable[[np.ndarray], np.ndarray]) -> ComputedArray:
        def make() -> np.ndarray:
            return np.hstack([change(part) for part in np.hsplit(matrix[()], gates)])

        return ComputedArray(tuple(matrix.shape), matrix.dtype, make)

    halves = (2, gates * layer.units)
    one = isinstance(layer, LSTM)  # an LSTM adds up the two biases
    both = ComputedArray(
        halves[1:] if one else halves, bias.dtype, lambda: _read_biases(bias, halves, one)
    )
    return [
        map_gates(kernel, lambda k: k.T.reshape(k.shape, order="F")),
        map_gates(recurrent, lambda k: k.T),
        both,
    ]


def _read_biases(bias: Any, shape: tuple[int, int], add: bool) -> np.ndarray:
    found: np.ndarray = bias[()].reshape(shape)
    return found.sum(0) if add else found


def _join_gates(layer: Layer, stored: list[Any]) -> list[Any]:
    order = _GATES.get(type(layer))
    if order is None or len(stored) != 3 * len(order):
        return stored
    made = []
    for kind in range(3):  # kernel, recurrent kernel, bias
        parts = [stored[3 * gate + kind] for gate in order]
        shape = (*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))
        made.append(
            ComputedArray(shape, parts[0].dtype, functools.partial(_concat_last_axis, parts))
        )
    return made


def _concat_last_axis(parts: Sequence[Any]) -> np.ndarray:
    return np.concatenate([part[()] for part in parts], -1)


def _convert_kernel(layer: Any, kernel: Any) -> Any:
    """Return a kernel of Keras 1 with the axes in today's order."""
    shape, window = tuple(kernel.shape), tuple(layer.kernel_size)
    if isinstance(layer, Conv1d):
        if len(shape) != 4:
            return kernel
        # with channels first, under any ordering
        if shape[2:] == (*window, 1) and shape[0] == layer.filters:
            return _transpose_kernel(kernel, (2, 3, 1, 0), drop=1)
        return (
            _transpose_kernel(kernel, (0, 1, 2, 3), drop=1) if shape[:2] == (*window, 1) else kernel
        )
    if len(shape) != layer.rank + 2:
        return kernel
    if isinstance(layer, Conv2dTranspose):
        return _transpose_kernel(
            kernel, (0, 1, 3, 2) if layer.data_format == "channels_last" else (2, 3, 0, 1)
        )
    if layer.data_format == "channels_first":
        return _transpose_kernel(kernel, (*range(2, layer.rank + 2), 1, 0))
    return kernel


def _transpose_kernel(kernel: Any, axes: tuple[int, ...], drop: int | None = None) -> ComputedArray:
    shape = [kernel.shape[axis] for axis in axes]
    if drop is not None:
        del shape[drop]
    return ComputedArray(
        tuple(shape), kernel.dtype, lambda: kernel[()].transpose(axes).reshape(shape)
    )


def _flip_kernel(kernel: Any) -> ComputedArray:
    rank = len(kernel.shape) - 2
    return ComputedArray(
        tuple(kernel.shape),
        kernel.dtype,
        lambda: kernel[()][(slice(None, None, -1),) * rank].copy(),
    )
