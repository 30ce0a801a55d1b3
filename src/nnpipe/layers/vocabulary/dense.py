"""Dense layers and embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.activations import ACTIVATION, ActivationFunction
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, Initialiser, RandomUniform
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts, require_static
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER, Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import FlagKind, IntegerKind
from nnpipe.layers.vocabulary.weighted_layer import (
    Kernelled,
    describe_bias,
    get_activation,
    get_weight_settings,
)


class Dense(Kernelled):
    """A fully connected layer: matrix product along the last axis, bias, activation.

    Parameters
    ----------
    units
        Number of outputs along the last axis.
    activation
        Function applied to the outputs.
    """

    keras: ClassVar[str] = "Dense"
    units: int = row(IntegerKind())
    activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction()
    )

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        if len(shape) < 2:
            raise Misfit(f"takes at least one axis besides that of samples, not {shape}")
        require_static(shape[-1], "its input's last axis")
        return ((*shape[:-1], self.units),)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        into = require_static(shapes[0][-1], "its input's last axis")
        kernel = LayerVariable(
            "kernel",
            (into, self.units),
            *get_weight_settings(self, "kernel"),
            torch="weight",
            axes=(1, 0),
        )
        return (kernel, *describe_bias(self, self.units))

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        activation = get_activation(self)
        core = nn.Linear(require_static(shapes[0][-1], "its input"), self.units, bias=self.use_bias)
        return TorchParts(lambda module, x: activation(module.core(x)), core)


class Embedding(Layer):
    """A trained vector for each integer.

    Parameters
    ----------
    input_dim
        Number of different integers; inputs are below it.
    output_dim
        Length of each vector.
    embeddings_initializer
        Initial values of the vectors.
    embeddings_regularizer
        Penalty on the vectors that is added to the loss.
    embeddings_constraint
        Constraint on the vectors, applied after each training step.
    mask_zero
        Whether 0 marks padding that later layers skip; Keras only.
    """

    keras: ClassVar[str] = "Embedding"
    ignored: ClassVar[frozenset[str]] = frozenset({"input_length"})
    input_dim: int = row(IntegerKind())
    output_dim: int = row(IntegerKind())
    embeddings_initializer: Initialiser | Raw | str = row(INITIALISER, default=RandomUniform())
    embeddings_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    embeddings_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)
    mask_zero: bool = row(FlagKind(), default=False)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return ((*shapes[0], self.output_dim),)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        shape = (self.input_dim, self.output_dim)
        return (
            LayerVariable(
                "embeddings", shape, *get_weight_settings(self, "embeddings"), torch="weight"
            ),
        )

    def limits(self, backend: str) -> Iterable[str]:
        """Return the masks, which only Keras passes on with tensors."""
        return (
            ["masks (mask_zero) are not passed on in PyTorch"]
            if self.mask_zero and backend == "torch"
            else []
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        core = nn.Embedding(self.input_dim, self.output_dim)
        return TorchParts(lambda module, x: module.core(x.long()), core)
