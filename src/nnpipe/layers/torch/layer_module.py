"""One layer as a ``torch.nn.Module``."""

from __future__ import annotations

from functools import cache
from typing import Any

from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.regularisers import Regulariser


def computed(layer: Layer, shapes: tuple[Shape, ...]) -> Any:
    """Return the module of one layer for inputs of these shapes."""
    return layer_module()(layer, shapes)


def torch_layer(layer: Layer, *shapes: Shape) -> Any:
    """Return the ``torch.nn.Module`` of one layer for inputs of these shapes, with PyTorch's initial weights."""
    return computed(layer, shapes)


@cache
def layer_module() -> Any:
    """Return the class of the modules; it is defined when PyTorch is first imported."""
    from torch import nn

    class Computed(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """One layer of a graph."""

        def __init__(self, layer: Layer, shapes: tuple[Shape, ...]) -> None:
            super().__init__()
            parts = layer._torch(*shapes)
            self.layer, self.call, self.core = layer, parts.call, parts.core
            self.variables = layer.variables(*shapes)
            self.activity: Any = None
            self.frozen = not layer.trainable
            if self.frozen:
                self.requires_grad_(False)

        def train(self, mode: bool = True) -> Any:
            """Set the mode as PyTorch does, but keep frozen normalisations in inference mode, as Keras does."""
            return super().train(mode and not (self.frozen and self.layer.rests_when_frozen))

        def forward(self, *xs: Any) -> Any:
            """Return the layer's outputs."""
            found = self.call(self, *xs)
            regulariser = getattr(self.layer, "activity_regularizer", None)
            if isinstance(regulariser, Regulariser):
                outputs = found if isinstance(found, tuple) else (found,)
                self.activity = sum(regulariser.penalty(y) / max(y.shape[0], 1) for y in outputs)
            return found

        def extra_repr(self) -> str:
            """Return the layer's name and arguments."""
            return type(self.layer).__name__

    return Computed
