"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, Initialiser, Ones, Zeros
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts, require_static
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER, Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import FlagKind, IntegerKind, IntegersKind, NumberKind
from nnpipe.layers.vocabulary.weighted_layer import get_weight_settings


class _Norm(Layer):
    def _resolve_axes(self, shape: Shape) -> tuple[int, ...]:
        """Return the axes as ascending non-negative numbers, without the batch axis."""
        axis: Any = getattr(self, "axis")  # noqa: B009 - each subclass declares its own type
        axes = [
            a + len(shape) if a < 0 else a for a in (axis if isinstance(axis, tuple) else (axis,))
        ]
        if not all(0 < a < len(shape) for a in axes):
            raise Misfit(f"has the axis {axis}, which {shape} lacks")
        return tuple(sorted(axes))

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        self._resolve_axes(shapes[0])
        return (shapes[0],)

    def _get_extents(self, shape: Shape) -> tuple[int, ...]:
        return tuple(
            require_static(shape[axis], f"the extent of axis {axis}")
            for axis in self._resolve_axes(shape)
        )


class _Affine(_Norm):
    """Base of normalisations that may scale by gamma and add beta afterwards.

    Parameters
    ----------
    center
        Whether beta is added.
    scale
        Whether the result is multiplied by gamma.
    beta_initializer, gamma_initializer
        Initial values of beta or gamma.
    beta_regularizer, gamma_regularizer
        Penalty on beta or gamma that is added to the loss.
    beta_constraint, gamma_constraint
        Constraint on beta or gamma, applied after each training step.
    """

    center: bool = row(FlagKind(), default=True, kw_only=True)
    scale: bool = row(FlagKind(), default=True, kw_only=True)
    beta_initializer: Initialiser | Raw | str = row(INITIALISER, default=Zeros(), kw_only=True)
    gamma_initializer: Initialiser | Raw | str = row(INITIALISER, default=Ones(), kw_only=True)
    beta_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None, kw_only=True)
    gamma_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None, kw_only=True)
    beta_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None, kw_only=True)
    gamma_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None, kw_only=True)

    def _describe_affine(
        self, shape: Shape, gamma: str = "", beta: str = ""
    ) -> list[LayerVariable]:
        """Return gamma and beta, as far as they exist; the arguments are their names in PyTorch,
        if others.
        """
        extents = self._get_extents(shape)
        made = (
            [LayerVariable("gamma", extents, *get_weight_settings(self, "gamma"), torch=gamma)]
            if self.scale
            else []
        )
        return made + (
            [LayerVariable("beta", extents, *get_weight_settings(self, "beta"), torch=beta)]
            if self.center
            else []
        )

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return tuple(self._describe_affine(shapes[0]))


class BatchNorm(_Affine):
    """Normalises each channel by its mean and variance: those of the batch in training, moving
    averages later.

    Parameters
    ----------
    axis
        Axis of the channels.
    momentum
        Part of the moving averages that each training step keeps.
    epsilon
        Number added to the variance, to avoid division by zero.
    moving_mean_initializer, moving_variance_initializer
        Initial values of the moving mean or variance.
    """

    keras: ClassVar[str] = "BatchNormalization"
    rests_when_frozen: ClassVar[bool] = True
    aliases: ClassVar[tuple[str, ...]] = (
        "BatchNormalizationV1",
        "BatchNormalizationV2",
        "SyncBatchNormalization",
    )
    ignored: ClassVar[frozenset[str]] = frozenset({"synchronized", "fused", "renorm_momentum"})
    axis: int = row(IntegersKind(single=True), default=-1)
    momentum: float = row(NumberKind(0, 1), default=0.99)
    epsilon: float = row(NumberKind(0), default=1e-3)
    moving_mean_initializer: Initialiser | Raw | str = row(INITIALISER, default=Zeros())
    moving_variance_initializer: Initialiser | Raw | str = row(INITIALISER, default=Ones())

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if isinstance(self.axis, tuple):
            yield "axis", f"must be one axis, not {self.axis}"

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        shape = self._get_extents(shapes[0])
        made = self._describe_affine(shapes[0], "weight", "bias")
        for name, torch in (("moving_mean", "running_mean"), ("moving_variance", "running_var")):
            initialiser = getattr(self, f"{name}_initializer")
            made.append(LayerVariable(name, shape, initialiser, trainable=False, torch=torch))
        return tuple(made)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        import torch
        from torch import nn

        (shape,) = shapes
        (axis,), (count,) = self._resolve_axes(shape), self._get_extents(shape)
        kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}.get(
            len(shape)
        )
        if kind is None:
            raise Misfit(f"takes 2 to 5 axes in PyTorch, not {shape}")
        core = kind(count, self.epsilon, 1 - self.momentum)
        # PyTorch has both weights or none; a weight that Keras lacks stays at its neutral value.
        for name, there in (("weight", self.scale), ("bias", self.center)):
            if not there:
                value = getattr(core, name).detach()
                delattr(core, name)
                core.register_buffer(
                    name, torch.nn.init.ones_(value) if name == "weight" else value
                )
        return TorchParts(lambda module, x: module.core(x.movedim(axis, 1)).movedim(1, axis), core)


class LayerNorm(_Affine):
    """Normalises each sample by its mean and variance over some axes.

    Parameters
    ----------
    axis
        Axis or axes over which mean and variance are taken.
    epsilon
        Number added to the variance, to avoid division by zero.
    """

    keras: ClassVar[str] = "LayerNormalization"
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=-1)
    epsilon: float = row(NumberKind(0), default=1e-3)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        (shape,) = shapes
        axes, epsilon = self._resolve_axes(shape), self.epsilon
        spread = _compute_broadcast_shape(shape, axes)

        def call(module: Any, x: Any) -> Any:
            mean = x.mean(axes, keepdim=True)
            y = (x - mean) * ((x - mean).square().mean(axes, keepdim=True) + epsilon).rsqrt()
            return _apply_affine(module.core, y, spread)

        return TorchParts(call, parameters(self.variables(shape)))


class GroupNorm(_Affine):
    """Normalises each sample by the mean and variance of groups of channels.

    Parameters
    ----------
    groups
        Number of groups; -1 for one group per channel.
    axis
        Axis of the channels.
    epsilon
        Number added to the variance, to avoid division by zero.
    """

    keras: ClassVar[str] = "GroupNormalization"
    groups: int = row(IntegerKind(-1), default=32)
    axis: int = row(IntegersKind(single=True), default=-1)
    epsilon: float = row(NumberKind(0), default=1e-3)

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if self.groups == 0:
            yield "groups", "must be at least 1, or -1 for as many as channels"
        if isinstance(self.axis, tuple):
            yield "axis", f"must be one axis, not {self.axis}"

    def _count(self, shape: Shape) -> int:
        (count,) = self._get_extents(shape)
        groups = count if self.groups == -1 else self.groups
        if count % groups:
            raise Misfit(f"has {groups} groups, which do not divide {count} channels")
        return groups

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        self._count(shapes[0])
        return (shapes[0],)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        import torch.nn.functional as F

        (shape,) = shapes
        (axis,), groups, epsilon = self._resolve_axes(shape), self._count(shape), self.epsilon
        spread = _compute_broadcast_shape(shape, (axis,))

        def call(module: Any, x: Any) -> Any:
            y = F.group_norm(x.movedim(axis, 1), groups, eps=epsilon).movedim(1, axis)
            return _apply_affine(module.core, y, spread)

        return TorchParts(call, parameters(self.variables(shape)))


class UnitNorm(_Norm):
    """Divides each sample by its Euclidean length along some axes.

    Parameters
    ----------
    axis
        Axis or axes along which the length is taken.
    """

    keras: ClassVar[str] = "UnitNormalization"
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=-1)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        axes = self._resolve_axes(shapes[0])
        return TorchParts(
            lambda module, x: x * x.square().sum(axes, keepdim=True).clamp_min(1e-12).rsqrt()
        )


class RMSNorm(_Norm):
    """Divides each sample by its root mean square along some axes, then multiplies by a trained
    scale.

    Parameters
    ----------
    axis
        Axis or axes along which the root mean square is taken.
    epsilon
        Number added to the mean square, to avoid division by zero.
    """

    keras: ClassVar[str] = "RMSNormalization"
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=-1)
    epsilon: float = row(NumberKind(0), default=1e-6)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return (LayerVariable("scale", self._get_extents(shapes[0]), Ones(), torch="gamma"),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        (shape,) = shapes
        axes, epsilon = self._resolve_axes(shape), self.epsilon
        spread = _compute_broadcast_shape(shape, axes)
        return TorchParts(
            lambda module, x: _apply_affine(
                module.core, x * (x.square().mean(axes, keepdim=True) + epsilon).rsqrt(), spread
            ),
            parameters(self.variables(shape)),
        )


def parameters(variables: Iterable[LayerVariable]) -> Any:
    """Return a ``torch.nn.ParameterDict`` with a parameter for each weight, in Keras's form."""
    import torch
    from torch import nn

    return nn.ParameterDict({v.torch_name: nn.Parameter(torch.zeros(v.shape)) for v in variables})


def _compute_broadcast_shape(shape: Shape, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        require_static(extent, "an axis") if axis in axes else 1
        for axis, extent in enumerate(shape)
    )


def _apply_affine(core: Any, y: Any, spread: tuple[int, ...]) -> Any:
    if "gamma" in core:
        y = y * core["gamma"].reshape(spread)
    if "beta" in core:
        y = y + core["beta"].reshape(spread)
    return y
