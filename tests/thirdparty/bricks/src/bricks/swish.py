"""A layer, and the operator of ONNX files that it computes."""

from __future__ import annotations

from typing import ClassVar

from nnpipe.layers.imports.step import Operator, Step
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import KerasParts, Layer, Shape, TorchParts
from nnpipe.layers.vocabulary.value_kinds import NumberKind


class SteepSwish(Layer):
    """Each value times the sigmoid of its multiple.

    Parameters
    ----------
    beta
        What the value is multiplied with before the sigmoid.
    """

    beta: float = row(NumberKind(least=0), default=1.0)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x * (self.beta * x).sigmoid())

    def _build_keras(self, *shapes: Shape) -> KerasParts:
        from keras import ops

        return KerasParts(lambda layer, x: x * ops.sigmoid(self.beta * x))


class BricksSwish(Operator):
    """The operator that a company's own exporter writes, with the attribute steepness."""

    operator: ClassVar[str] = "bricks::BricksSwish"

    def layer(self, step: Step) -> Layer:
        """Return the layer that computes it."""
        return SteepSwish((), beta=float(step.attribute("steepness", 1.0)))
