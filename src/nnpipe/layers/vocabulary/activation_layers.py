"""Activation functions as layers."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.activations import ACTIVATION
from nnpipe.layers.vocabulary.activations import ActivationFunction as Function
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, Initialiser, Zeros
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts, require_static
from nnpipe.layers.vocabulary.normalisation import parameters
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER, Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import IntegersKind, NumberKind
from nnpipe.layers.vocabulary.weighted_layer import get_activation, get_weight_settings


class Activation(Layer):
    """An activation function by name, applied to each value.

    Parameters
    ----------
    activation
        Name of the function, such as ``"relu"``, or the function with its arguments.
    """

    keras: ClassVar[str] = "Activation"
    activation: Function | Raw | str | None = row(ACTIVATION)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        function = get_activation(self)
        return TorchParts(lambda module, x: function(x))


class ReLU(Layer):
    """Rectified linear unit: each value, limited to the range from 0 to an optional maximum.

    Parameters
    ----------
    max_value
        Greatest output; ``None`` for no limit.
    negative_slope
        Slope below the threshold.
    threshold
        Least input that is passed on unchanged.
    """

    keras: ClassVar[str] = "ReLU"
    max_value: float | None = row(NumberKind(0, optional=True), default=None)
    negative_slope: float = row(NumberKind(0), default=0.0)
    threshold: float = row(NumberKind(0), default=0.0)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        most, slope, threshold = self.max_value, self.negative_slope, self.threshold
        if not slope and not threshold and most is None:
            from torch import nn

            return TorchParts(lambda module, x: module.core(x), nn.ReLU())

        def call(module: Any, x: Any) -> Any:
            above = x.where(x >= threshold, x.new_zeros(())) if threshold else x.clamp_min(0)
            above = above if most is None else above.clamp_max(most)
            return above + slope * (x - threshold).clamp_max(0) if slope else above

        return TorchParts(call)


class LeakyReLU(Layer):
    """Rectified linear unit with a small slope below zero.

    Parameters
    ----------
    negative_slope
        Slope below zero.
    """

    keras: ClassVar[str] = "LeakyReLU"
    negative_slope: float = row(NumberKind(0), default=0.3, older=("alpha",))

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        return TorchParts(lambda module, x: module.core(x), nn.LeakyReLU(self.negative_slope))


class PReLU(Layer):
    """Rectified linear unit with a trained slope, alpha, below zero.

    Parameters
    ----------
    alpha_initializer
        Initial values of the slopes.
    alpha_regularizer
        Penalty on the slopes that is added to the loss.
    alpha_constraint
        Constraint on the slopes, applied after each training step.
    shared_axes
        Axes along which one slope is shared, counted from 1 (axis 0 is the batch).
    """

    keras: ClassVar[str] = "PReLU"
    alpha_initializer: Initialiser | Raw | str = row(INITIALISER, default=Zeros())
    alpha_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    alpha_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)
    shared_axes: tuple[int, ...] | None = row(IntegersKind(1, optional=True), default=None)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        shared = self.shared_axes or ()
        shape = tuple(
            1 if axis in shared else require_static(extent, f"the extent of axis {axis}")
            for axis, extent in enumerate(shapes[0][1:], 1)
        )
        return (LayerVariable("alpha", shape, *get_weight_settings(self, "alpha")),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(
            lambda module, x: x.clamp_min(0) + module.core["alpha"] * x.clamp_max(0),
            parameters(self.variables(*shapes)),
        )


class ELU(Layer):
    """Exponential linear unit: the identity above zero, ``alpha * (exp(x) - 1)`` below.

    Parameters
    ----------
    alpha
        Factor of the exponential.
    """

    keras: ClassVar[str] = "ELU"
    alpha: float = row(NumberKind(), default=1.0)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        return TorchParts(lambda module, x: module.core(x), nn.ELU(self.alpha))


class Softmax(Layer):
    """Softmax: exponentials divided by their sum along an axis.

    Parameters
    ----------
    axis
        Axis or axes along which the outputs sum to 1.
    """

    keras: ClassVar[str] = "Softmax"
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=-1)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if not all(-len(shapes[0]) <= axis < len(shapes[0]) for axis in axes):
            raise Misfit(f"has the axis {self.axis}, which {shapes[0]} lacks")
        return (shapes[0],)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        axis = self.axis
        if not isinstance(axis, tuple):
            return TorchParts(lambda module, x: x.softmax(axis))

        def call(module: Any, x: Any) -> Any:
            return (x - x.logsumexp(axis, keepdim=True)).exp()

        return TorchParts(call)
