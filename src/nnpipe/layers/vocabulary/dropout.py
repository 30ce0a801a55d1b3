"""Layers that act in training only: dropout and noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, declare_data_format
from nnpipe.layers.vocabulary.value_kinds import IntegerKind, IntegersKind, NumberKind
from nnpipe.layers.vocabulary.windows import check_rank

_SEED = IntegerKind(0, 2**63 - 1, optional=True)
# SELU's fixed point, Klambauer et al. 2017 (https://arxiv.org/abs/1706.02515)
_ALPHA = 1.6732632423543772848170429916717 * 1.0507009873554804934193349852946


def _check_rate(value: float) -> Iterable[tuple[str, str]]:
    if value == 1:
        yield "rate", "must be less than 1"


class Dropout(Layer):
    """Sets values to zero at random in training, and scales the others up.

    Parameters
    ----------
    rate
        Probability that a value is set to zero.
    noise_shape
        Shape of the random mask, broadcast to the input; ``None`` for the input's shape.
    seed
        Seed of the random numbers, used by Keras alone; ``None`` draws one.
    """

    keras: ClassVar[str] = "Dropout"
    resting: ClassVar[bool] = True
    rate: float = row(NumberKind(0, 1), older=("p",))
    noise_shape: tuple[int | None, ...] | None = row(
        IntegersKind(1, optional=True, free=True), default=None
    )
    seed: int | None = row(_SEED, default=None)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if self.noise_shape is not None and len(self.noise_shape) != len(shapes[0]):
            raise Misfit(f"has noise of shape {self.noise_shape} for {shapes[0]}")
        return (shapes[0],)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        if self.noise_shape is None:
            return TorchParts(lambda module, x: module.core(x), nn.Dropout(self.rate))
        return TorchParts(_make_dropout(self.rate, self.noise_shape))


class AlphaDropout(Layer):
    """Dropout that keeps mean and variance, for networks with ``selu``.

    Parameters
    ----------
    rate
        Probability that a value is dropped.
    noise_shape
        Shape of the random mask, broadcast to the input; ``None`` for the input's shape.
    seed
        Seed of the random numbers, used by Keras alone; ``None`` draws one.
    """

    keras: ClassVar[str] = "AlphaDropout"
    resting: ClassVar[bool] = True
    rate: float = row(NumberKind(0, 1))
    noise_shape: tuple[int | None, ...] | None = row(
        IntegersKind(1, optional=True, free=True), default=None
    )
    seed: int | None = row(_SEED, default=None)

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return _check_rate(self.rate)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        rate, shape = self.rate, self.noise_shape
        a = ((1 - rate) * (1 + rate * _ALPHA**2)) ** -0.5

        def call(module: Any, x: Any) -> Any:
            if not module.training or rate == 0:
                return x
            kept = _draw_noise(x, shape, "rand") >= rate
            return a * x.where(kept, x.new_tensor(-_ALPHA)) + a * _ALPHA * rate

        return TorchParts(call)


class GaussianDropout(Layer):
    """Multiplies by Gaussian noise of mean 1 in training.

    Parameters
    ----------
    rate
        Dropout rate with the same variance: the noise has the deviation ``sqrt(rate / (1 -
        rate))``.
    seed
        Seed of the random numbers, used by Keras alone; ``None`` draws one.
    """

    keras: ClassVar[str] = "GaussianDropout"
    resting: ClassVar[bool] = True
    rate: float = row(NumberKind(0, 1), older=("p",))
    seed: int | None = row(_SEED, default=None)

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return _check_rate(self.rate)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        deviation = (self.rate / (1 - self.rate)) ** 0.5
        return TorchParts(
            lambda module, x: (
                x * (1 + deviation * _draw_noise(x, None, "randn")) if module.training else x
            )
        )


class GaussianNoise(Layer):
    """Adds Gaussian noise of mean 0 in training.

    Parameters
    ----------
    stddev
        Standard deviation of the noise.
    seed
        Seed of the random numbers, used by Keras alone; ``None`` draws one.
    """

    keras: ClassVar[str] = "GaussianNoise"
    resting: ClassVar[bool] = True
    stddev: float = row(NumberKind(0), older=("sigma",))
    seed: int | None = row(_SEED, default=None)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        deviation = self.stddev
        return TorchParts(
            lambda module, x: (
                x + deviation * _draw_noise(x, None, "randn") if module.training else x
            )
        )


class _SpatialDropout(Layer):
    """Base of dropout of whole channels.

    Parameters
    ----------
    rate
        Probability that a channel is set to zero.
    seed
        Seed of the random numbers, used by Keras alone; ``None`` draws one.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    """

    resting: ClassVar[bool] = True
    # Keras writes this argument of the base class; its value is always the shape of whole channels.
    ignored: ClassVar[frozenset[str]] = frozenset({"noise_shape"})
    unwritten: ClassVar[frozenset[str]] = frozenset({"trainable"})
    rate: float = row(NumberKind(0, 1), older=("p",))
    seed: int | None = row(_SEED, default=None)
    data_format: str = declare_data_format()

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        check_rank(shapes[0], self.rank)
        return (shapes[0],)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        ones = (1,) * self.rank
        return TorchParts(
            _make_dropout(
                self.rate,
                (None, *ones, None) if self.data_format == "channels_last" else (None, None, *ones),
            )
        )


class SpatialDropout1d(_SpatialDropout):
    """Sets whole channels to zero in training, over one axis; channels are last."""

    keras: ClassVar[str] = "SpatialDropout1D"
    unwritten: ClassVar[frozenset[str]] = frozenset({"data_format", "trainable"})
    rank: ClassVar[int] = 1

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if self.data_format != "channels_last":
            yield "data_format", "must be channels_last: Keras has no other here"


class SpatialDropout2d(_SpatialDropout):
    """Sets whole channels to zero in training, over two axes."""

    keras: ClassVar[str] = "SpatialDropout2D"
    rank: ClassVar[int] = 2


class SpatialDropout3d(_SpatialDropout):
    """Sets whole channels to zero in training, over three axes."""

    keras: ClassVar[str] = "SpatialDropout3D"
    rank: ClassVar[int] = 3


def _draw_noise(x: Any, shape: tuple[int | None, ...] | None, kind: str) -> Any:
    import torch

    extents = (
        x.shape
        if shape is None
        else [s if s is not None else n for s, n in zip(shape, x.shape, strict=True)]
    )
    return getattr(torch, kind)(extents, dtype=x.dtype, device=x.device)


def _make_dropout(rate: float, shape: tuple[int | None, ...]) -> Any:
    def call(module: Any, x: Any) -> Any:
        if not module.training or rate == 0:
            return x
        return x * (_draw_noise(x, shape, "rand") >= rate) / max(1 - rate, 1e-12)

    return call
