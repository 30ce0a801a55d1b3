"""Initialisers: initial values of weights, drawn with numpy so that all backends start from the
same values.

The formulas are those of Keras 3; the variance scaling is of He et al. 2015
(https://arxiv.org/abs/1502.01852), Glorot and Bengio 2010 and LeCun et al.
1998, the orthogonal one of Saxe et al. 2013 (https://arxiv.org/abs/1312.6120).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from nnpipe.layers.vocabulary.field_table import Described, Raw, read_object, row, write_object
from nnpipe.layers.vocabulary.value_kinds import (
    ChoiceKind,
    IntegerKind,
    IntegersKind,
    NamedKind,
    NumberKind,
    NumbersKind,
)

# of a standard normal distribution truncated at two standard deviations
_TRUNCATED_STDDEV = 0.87962566103423978
_SEED = IntegerKind(0, 2**63 - 1, optional=True)


class Initialiser(Described):
    """Base of all initialisers."""

    def draw(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Return the initial values of a weight, float32 of ``shape``.

        ``random`` is used unless the initialiser has a seed of its own.  The
        numbers for a seed differ from those that Keras would draw.
        """
        seed = getattr(self, "seed", None)
        values = self._draw(shape, random if seed is None else np.random.default_rng(seed))
        return np.array(np.broadcast_to(values, shape), dtype=np.float32)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        raise NotImplementedError


class Zeros(Initialiser):
    """All values are 0."""

    aliases: ClassVar[tuple[str, ...]] = ("Zero",)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        return 0.0


class Ones(Initialiser):
    """All values are 1."""

    aliases: ClassVar[tuple[str, ...]] = ("One",)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        return 1.0


class Constant(Initialiser):
    """A constant: one number, or an array that is broadcast over the last axes.

    Parameters
    ----------
    value
        The number, or nested tuples of numbers.
    """

    value: float | tuple[Any, ...] = row(NumbersKind(), default=0.0)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        return np.asarray(self.value, dtype=np.float32)


class Identity(Initialiser):
    """The identity matrix times ``gain``, for weights with two axes."""

    aliases: ClassVar[tuple[str, ...]] = ("IdentityInitializer",)
    gain: float = row(NumberKind(), default=1.0)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        rows, columns = shape
        return np.eye(rows, columns) * self.gain


class Orthogonal(Initialiser):
    """A random orthogonal matrix times ``gain``; all axes but the last form its rows."""

    aliases: ClassVar[tuple[str, ...]] = ("OrthogonalInitializer",)
    gain: float = row(NumberKind(), default=1.0)
    seed: int | None = row(_SEED, default=None)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q, r = np.linalg.qr(random.normal(size=(max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diag(r))
        return self.gain * (q.T if rows < columns else q).reshape(shape)


class RandomNormal(Initialiser):
    """Normally distributed with the given mean and standard deviation."""

    aliases: ClassVar[tuple[str, ...]] = ("normal",)
    mean: float = row(NumberKind(), default=0.0)
    stddev: float = row(NumberKind(0), default=0.05)
    seed: int | None = row(_SEED, default=None)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        return random.normal(self.mean, self.stddev, shape)


class TruncatedNormal(Initialiser):
    """Normally distributed; values beyond two standard deviations are drawn again."""

    mean: float = row(NumberKind(), default=0.0)
    stddev: float = row(NumberKind(0), default=0.05)
    seed: int | None = row(_SEED, default=None)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        return self.mean + self.stddev * _draw_truncated_normal(shape, random)


class RandomUniform(Initialiser):
    """Uniformly distributed between ``minval`` and ``maxval``."""

    aliases: ClassVar[tuple[str, ...]] = ("uniform",)
    minval: float = row(NumberKind(), default=-0.05)
    maxval: float = row(NumberKind(), default=0.05)
    seed: int | None = row(_SEED, default=None)

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        return random.uniform(self.minval, self.maxval, shape)


class _Scaled(Initialiser):
    """Base of distributions of variance ``scale / n``; n is the number of a unit's inputs,
    outputs, or their mean.
    """

    def spread(self, shape: tuple[int, ...]) -> tuple[str, float]:
        """Return the distribution for a weight of ``shape`` and its width: the limit if uniform,
        else the deviation.
        """
        scale, mode, distribution = self._law
        into, out = _compute_fans(
            shape, getattr(self, "input_axes", None), getattr(self, "output_axes", None)
        )
        scale /= max(1.0, {"fan_in": into, "fan_out": out}.get(mode, (into + out) / 2))
        if distribution == "uniform":
            return distribution, math.sqrt(3 * scale)
        return distribution, math.sqrt(scale) / (
            1 if distribution == "untruncated_normal" else _TRUNCATED_STDDEV
        )

    @property
    def _law(self) -> tuple[float, str, str]:
        raise NotImplementedError

    def _draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Any:
        distribution, width = self.spread(shape)
        if distribution == "uniform":
            return random.uniform(-width, width, shape)
        return (
            random.normal(0, width, shape)
            if distribution == "untruncated_normal"
            else width * _draw_truncated_normal(shape, random)
        )


class VarianceScaling(_Scaled):
    """A distribution of variance ``scale / n``.

    Parameters
    ----------
    scale
        Numerator of the variance.
    mode
        Value of n: the number of a unit's inputs (``"fan_in"``), of its outputs (``"fan_out"``), or
        their mean.
    distribution
        ``"uniform"``, ``"truncated_normal"`` or ``"untruncated_normal"``; ``"normal"`` is
        truncated.
    seed
        Seed of the random numbers; ``None`` uses the network's.
    input_axes, output_axes
        Axes of the weight that count as inputs and outputs; ``None`` for Keras's convention.
    """

    scale: float = row(NumberKind(0), default=1.0)
    mode: str = row(ChoiceKind(("fan_in", "fan_out", "fan_avg")), default="fan_in")
    # Earlier versions wrote "normal", which Keras reads as the truncated distribution; so does the
    # table below.
    distribution: str = row(
        ChoiceKind(("uniform", "truncated_normal", "untruncated_normal", "normal")),
        default="truncated_normal",
    )
    seed: int | None = row(_SEED, default=None)
    input_axes: tuple[int, ...] | None = row(IntegersKind(optional=True), default=None)
    output_axes: tuple[int, ...] | None = row(IntegersKind(optional=True), default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distribution == "normal":
            object.__setattr__(self, "distribution", "truncated_normal")

    @property
    def _law(self) -> tuple[float, str, str]:
        return self.scale, self.mode, self.distribution


class _Preset(_Scaled):
    """Base of named variance scalings."""

    preset: ClassVar[tuple[float, str, str]]
    seed: int | None = row(_SEED, default=None)
    input_axes: tuple[int, ...] | None = row(IntegersKind(optional=True), default=None)
    output_axes: tuple[int, ...] | None = row(IntegersKind(optional=True), default=None)

    @property
    def _law(self) -> tuple[float, str, str]:
        return self.preset


class GlorotUniform(_Preset):
    """Uniform with the variance of Glorot and Bengio, 2 / (inputs + outputs); Keras's default
    for kernels.
    """

    preset: ClassVar[tuple[float, str, str]] = (1.0, "fan_avg", "uniform")


class GlorotNormal(_Preset):
    """Truncated normal with the variance of Glorot and Bengio, 2 / (inputs + outputs)."""

    preset: ClassVar[tuple[float, str, str]] = (1.0, "fan_avg", "truncated_normal")


class HeUniform(_Preset):
    """Uniform with the variance of He et al., 2 / inputs."""

    preset: ClassVar[tuple[float, str, str]] = (2.0, "fan_in", "uniform")


class HeNormal(_Preset):
    """Truncated normal with the variance of He et al., 2 / inputs."""

    preset: ClassVar[tuple[float, str, str]] = (2.0, "fan_in", "truncated_normal")


class LecunUniform(_Preset):
    """Uniform with the variance of LeCun et al., 1 / inputs."""

    preset: ClassVar[tuple[float, str, str]] = (1.0, "fan_in", "uniform")


class LecunNormal(_Preset):
    """Truncated normal with the variance of LeCun et al., 1 / inputs."""

    preset: ClassVar[tuple[float, str, str]] = (1.0, "fan_in", "truncated_normal")


INITIALISER = NamedKind(
    lambda raw, path, found: read_object(Initialiser, raw, path, found),
    lambda value: write_object("keras.initializers", value),
    lambda: (Initialiser, Raw),
    "an initialiser",
)
"""The kind of arguments that are initialisers."""


def _draw_truncated_normal(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    values = random.normal(size=shape)
    while (far := np.abs(values) > 2).any():
        values[far] = random.normal(size=int(far.sum()))
    return values


def _compute_fans(
    shape: tuple[int, ...], into: tuple[int, ...] | None, out: tuple[int, ...] | None
) -> tuple[float, float]:
    if into is not None and out is not None:
        return math.prod(shape[axis] for axis in into), math.prod(shape[axis] for axis in out)
    if len(shape) < 2:
        return (shape or (1,))[0], (shape or (1,))[0]
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]
