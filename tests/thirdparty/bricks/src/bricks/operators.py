"""An operator that a company's own exporter writes into ONNX files."""

from __future__ import annotations

from typing import ClassVar

from bricks.swish import SteepSwish
from nnpipe.layers.imports.operator import Operator
from nnpipe.layers.imports.step import Step
from nnpipe.layers.vocabulary.layer import Layer


class BricksSwish(Operator):
    """The operator BricksSwish, with the attribute steepness."""

    operator: ClassVar[str] = "bricks::BricksSwish"

    def layer(self, step: Step) -> Layer:
        """Return the layer that computes it."""
        return SteepSwish((), beta=float(step.attribute("steepness", 1.0)))
