"""Bases of layers with weights, whose shared arguments are given by name only."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.layers.vocabulary.activations import ActivationFunction
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, GlorotUniform, Initialiser, Zeros
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER, Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import FlagKind


class Biased(Layer):
    """Base of layers that may add a bias to their results.

    Parameters
    ----------
    use_bias
        Whether a bias is added.
    bias_initializer
        Initial values of the bias.
    bias_regularizer
        Penalty on the bias that is added to the loss.
    activity_regularizer
        Penalty on the layer's outputs that is added to the loss.
    bias_constraint
        Constraint on the bias, applied after each training step.
    """

    abstract: ClassVar[bool] = True
    use_bias: bool = row(FlagKind(), default=True, kw_only=True)
    bias_initializer: Initialiser | Raw | str = row(INITIALISER, default=Zeros(), kw_only=True)
    bias_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None, kw_only=True)
    activity_regularizer: Regulariser | Raw | str | None = row(
        REGULARISER, default=None, kw_only=True
    )
    bias_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None, kw_only=True)


class Kernelled(Biased):
    """Base of layers with a kernel and, optionally, a bias.

    Parameters
    ----------
    kernel_initializer
        Initial values of the kernel.
    kernel_regularizer
        Penalty on the kernel that is added to the loss.
    kernel_constraint
        Constraint on the kernel, applied after each training step.
    """

    abstract: ClassVar[bool] = True
    kernel_initializer: Initialiser | Raw | str = row(
        INITIALISER, default=GlorotUniform(), kw_only=True
    )
    kernel_regularizer: Regulariser | Raw | str | None = row(
        REGULARISER, default=None, kw_only=True
    )
    kernel_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None, kw_only=True)


def get_weight_settings(layer: Any, name: str) -> tuple[Any, Any, Any]:
    """Return the initialiser, regulariser and constraint of a layer's weight by the weight's
    name.
    """
    return (
        getattr(layer, f"{name}_initializer"),
        getattr(layer, f"{name}_regularizer", None),
        getattr(layer, f"{name}_constraint", None),
    )


def describe_bias(layer: Any, units: int) -> tuple[LayerVariable, ...]:
    """Return a layer's bias, if it has one."""
    return (
        (LayerVariable("bias", (units,), *get_weight_settings(layer, "bias")),)
        if layer.use_bias
        else ()
    )


def get_activation(layer: Any, name: str = "activation") -> Any:
    """Return the function of a layer's activation for a ``torch.Tensor``."""
    activation = getattr(layer, name)
    assert isinstance(activation, ActivationFunction)  # anything else was refused before
    return activation.torch()
