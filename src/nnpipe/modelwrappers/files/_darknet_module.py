"""Darknet's networks as PyTorch modules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.formats.darknet import DarknetNetwork, read_weights
from nnpipe.formats.darknet_layers import Convolution, MaxPool, Route, Shortcut, Upsample, YOLOHead

_SLOPE = 0.1  # of "leaky" below zero


def module_of(network: DarknetNetwork) -> Any:
    """Return the module of a network with random weights; it returns the numbers of all heads, channels first."""
    return _darknet_class()(network)


def module_with(network: DarknetNetwork, path: Path) -> Any:
    """Return the module of a network with the weights of a file.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or belongs to another network.
    """
    import torch

    found: Mapping[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = read_weights(path, network)
    module = module_of(network)
    with torch.no_grad():
        for number, (kernel, bias) in found.items():
            convolution = module.convolutions[str(number)]
            convolution.weight.copy_(torch.from_numpy(kernel))
            convolution.bias.copy_(torch.from_numpy(bias))
    return module


@cache
def _darknet_class() -> Any:
    import torch
    import torch.nn.functional as F
    from torch import nn

    functions = {
        "linear": lambda x: x,
        "leaky": lambda x: F.leaky_relu(x, _SLOPE),
        "relu": F.relu,
        "logistic": torch.sigmoid,
        "mish": F.mish,
        "swish": F.silu,
    }

    class Darknet(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """A network of Darknet."""

        def __init__(self, network: DarknetNetwork) -> None:
            super().__init__()
            self.network = network
            self.convolutions = nn.ModuleDict()
            self.last_use = {taken: number for number, layer in enumerate(network.layers) for taken in layer.inputs}
            shapes = {-1: network.picture, **{n: layer.shape for n, layer in enumerate(network.layers)}}
            for number, layer in enumerate(network.layers):
                if isinstance(kind := layer.kind, Convolution):
                    self.convolutions[str(number)] = nn.Conv2d(
                        shapes[layer.inputs[0]][0], kind.filters, kind.size, kind.stride, kind.padding,
                        kind.dilation, kind.groups,
                    )  # fmt: skip

        def forward(self, picture: Any) -> tuple[Any, ...]:
            """Return the numbers of each head, ``(n, channels, rows, columns)``."""
            values, heads = {-1: picture}, []
            for number, layer in enumerate(self.network.layers):
                given = [values[taken] for taken in layer.inputs]
                if isinstance(layer.kind, YOLOHead):
                    heads.append(given[0])
                else:
                    values[number] = self.computed(number, layer.kind, given)
                for taken in layer.inputs:
                    if self.last_use[taken] == number:
                        values.pop(taken, None)
            return tuple(heads)

        def computed(self, number: int, kind: Any, given: list[Any]) -> Any:
            """Return the output of a layer."""
            match kind:
                case Convolution():
                    return functions[kind.activation](self.convolutions[str(number)](given[0]))
                case MaxPool():
                    return pooled(kind, given[0])
                case Shortcut():
                    return functions[kind.activation](sum(given[1:], given[0]))
                case Route():
                    parts = [x if kind.parts == 1 else x.chunk(kind.parts, 1)[kind.part] for x in given]
                    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
                case Upsample():
                    return F.interpolate(given[0], scale_factor=float(kind.stride), mode="nearest")

    def pooled(kind: MaxPool, x: Any) -> Any:
        if (kind.before, kind.before) == kind.after and kind.before <= kind.size // 2:
            return F.max_pool2d(x, kind.size, kind.stride, kind.before)
        # Repeating the edge does not change a maximum of which it is part; numbers without end, with which PyTorch
        # pads, would spoil the ranges that quantisers observe.
        for axis, after in zip((2, 3), kind.after, strict=True):
            first, last = x.narrow(axis, 0, 1), x.narrow(axis, x.shape[axis] - 1, 1)
            x = torch.cat([*[first] * kind.before, x, *[last] * after], axis)
        return F.max_pool2d(x, kind.size, kind.stride)

    return Darknet
