"""A layer with weights, computed in PyTorch and in Keras by its own hooks."""

from __future__ import annotations

from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.initialisers import RandomUniform
from nnpipe.layers.vocabulary.layer import KerasParts, Layer, LayerVariable, Shape, TorchParts
from nnpipe.layers.vocabulary.normalisation import parameters
from nnpipe.layers.vocabulary.regularisers import L2
from nnpipe.layers.vocabulary.value_kinds import NumberKind


class Slopes(Layer):
    """Multiply by trained slopes, and add a number that is not trained."""

    most: float = row(NumberKind(), default=1.0)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        width = (shapes[0][-1] or 0,)
        slope = LayerVariable("slope", width, RandomUniform(0.5, self.most), L2(0.5))
        return (slope, LayerVariable("offset", width, RandomUniform(), trainable=False))

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        core = parameters(self.variables(*shapes))
        return TorchParts(lambda module, x: module.core["slope"] * x + module.core["offset"], core)

    def _build_keras(self, *shapes: Shape) -> KerasParts:
        return KerasParts(lambda layer, x: layer.core["slope"] * x + layer.core["offset"])
