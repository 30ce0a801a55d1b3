"""The operations that an edge of a cell may have, declared by their layers.

The names of the known ones are those of NAS-Bench-201 (Dong and Yang 2020) and DARTS (Liu et al. 2019); they consist of
the same layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.layers.description.from_description import from_description
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.problems import raise_if
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.normalisation import BatchNorm

NONE, SKIP = "none", "skip_connect"
CHANNELS = "channels"
"""Stands for the number of channels of the cell in the arguments of an operation's layers."""

MOMENTUM = 0.9  # of batch normalisation: trainings of a few hundred steps are too short for Keras's 0.99
NORM = {"class": "BatchNorm", "momentum": MOMENTUM}
_SIZE = 8  # pixels in each direction, with which operations are checked

Entry = Mapping[str, Any]


def _conv(size: int) -> list[Entry]:
    conv = {"class": "Conv2d", "filters": CHANNELS, "kernel_size": size, "padding": "same", "use_bias": False}
    return [{"class": "ReLU"}, conv, NORM]


def _depthwise(size: int, dilation: int = 1) -> list[Entry]:
    depth = {
        "class": "DepthwiseConv2d", "kernel_size": size, "padding": "same", "use_bias": False, "dilation_rate": dilation
    }  # fmt: skip
    return [{"class": "ReLU"}, depth, *_conv(1)[1:]]


def _pool(kind: str) -> list[Entry]:
    return [{"class": kind, "pool_size": 3, "strides": 1, "padding": "same"}]


KNOWN: Mapping[str, Sequence[Entry]] = {
    NONE: [],
    SKIP: [],
    "nor_conv_1x1": _conv(1),
    "nor_conv_3x3": _conv(3),
    "nor_conv_5x5": _conv(5),
    # DARTS applies a separable convolution twice.
    "sep_conv_3x3": [*_depthwise(3), *_depthwise(3)],
    "sep_conv_5x5": [*_depthwise(5), *_depthwise(5)],
    "dil_conv_3x3": _depthwise(3, 2),
    "dil_conv_5x5": _depthwise(5, 2),
    "avg_pool_3x3": _pool("AvgPool2d"),
    "max_pool_3x3": _pool("MaxPool2d"),
}


@dataclass(frozen=True)
class CellOperation:
    """What an edge of a cell may compute: a chain of layers that keeps the shape, without any the identity.

    Parameters
    ----------
    name
        Its name: the value of an edge in a configuration.
    entries
        Its layers as in :mod:`nnpipe.layers.description.from_description`; the argument ``channels`` stands for the
        cell's number of channels.

    Raises
    ------
    ConfigError
        If a layer is wrong, or the shape is not kept.
    """

    name: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        for count in (4, 6):  # one number of channels alone could fit by chance
            graph = self._graph(count)
            end = infer(graph).shapes[graph.outputs[0]]
            if end != (None, _SIZE, _SIZE, count):
                raise ConfigError(
                    f"operation {self.name}: an operation keeps height, width and channels, but this one makes "
                    f"{end[1:]} of {(_SIZE, _SIZE, count)}"
                )

    @classmethod
    def from_json(cls, entry: Any, where: str) -> CellOperation:
        """Return a known operation by its name, or one of the form ``{"name": ..., "layers": [...]}``.

        Raises
        ------
        ConfigError
            If there is no such operation, or its layers are wrong.
        """
        if isinstance(entry, str):
            if entry not in KNOWN:
                hint = nearest(entry, KNOWN) or f"; there are: {', '.join(KNOWN)}"
                raise ConfigError(
                    f"{where}: there is no operation {entry!r}{hint}, or give {{name: ..., layers: [...]}}"
                )
            return cls(entry, tuple(KNOWN[entry]))
        if not isinstance(entry, Mapping) or set(entry) != {"name", "layers"} or not isinstance(entry["name"], str):
            raise ConfigError(f"{where}: expected the name of an operation, or an object with name and layers")
        if not isinstance(entry["layers"], (list, tuple)) or not entry["layers"]:
            raise ConfigError(f"{where}.layers: expected a list of layers")
        if entry["name"] in KNOWN:
            raise ConfigError(f"{where}.name: {entry['name']} is the name of a known operation; take another one")
        return cls(entry["name"], tuple(entry["layers"]))

    def to_json(self) -> Any:
        """Return the name of a known operation, or name and layers."""
        if self.name in KNOWN:
            return self.name
        return {"name": self.name, "layers": [dict(each) for each in self.entries]}

    def layers(self, channels: int) -> tuple[Layer, ...]:
        """Return the layers for a number of channels, without inputs and with names such as ``conv2d``."""
        return _layers_of(self, channels)

    def cost(self, channels: int = 8) -> tuple[int, int]:
        """Return the number of weights and of layers, by which operations are called small and large."""
        found = infer(self._graph(channels))
        sizes = [v.shape for variables in found.variables.values() for v in variables if v.trainable]
        total = 0
        for shape in sizes:
            size = 1
            for extent in shape:
                size *= extent
            total += size
        return total, len(self.entries)

    def __hash__(self) -> int:
        return hash((self.name, repr(self.entries)))

    def _graph(self, channels: int) -> NetworkGraph:
        first = {"class": "Input", "shape": [_SIZE, _SIZE, channels], "name": "cell_input"}
        layers = [first, *(_filled(entry, channels) for entry in self.entries)]
        if any(isinstance(each, Mapping) and {"inputs", "calls"} & set(each) for each in self.entries):
            raise ConfigError(f"operation {self.name}: its layers are a chain, so they have no inputs or calls")
        found = from_description({"name": f"operation {self.name}", "layers": layers})
        raise_if(found.problems, f"operation {self.name}")
        assert found.graph is not None  # otherwise there are problems
        return found.graph


def _filled(entry: Entry, channels: int) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return {key: channels if value == CHANNELS else value for key, value in entry.items()}


@lru_cache(1024)
def _layers_of(operation: CellOperation, channels: int) -> tuple[Layer, ...]:
    graph = operation._graph(channels)
    return tuple(entry.layer.alone() for entry in graph.entries if not isinstance(entry.layer, Input))


def without_affine(layer: Layer) -> Layer:
    """Return a batch normalisation without scale and centre, any other layer unchanged.

    In a mixture of operations, a scale of their own would make the shares of the mixture meaningless (Liu et al.
    2019).
    """
    return layer.alone(center=False, scale=False) if isinstance(layer, BatchNorm) else layer
