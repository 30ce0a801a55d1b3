"""Changes to a sample that act on several of its features alike.

Each is a function for :meth:`Sequence.map
<nnpipe.training.sequences.sequence.Sequence.map>`: it takes a sample and a
random generator and gives a sample.  It draws once a sample, so an image and
its mask are flipped together, and in each epoch as the seed, the epoch and
the sample's id say.  Arrays are (..., height, width), as in (channels,
height, width); lengths are in pixels.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError

Sample = dict[str, Any]
"""Features by name, and ``"sample_id"``."""

Transform = Callable[[Sample, np.random.Generator], Sample]


@dataclass(frozen=True, kw_only=True)
class Compose:
    """One transform after the other.

    Parameters
    ----------
    transforms
        In their order.
    """

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        check_call(Compose, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Apply all."""
        for transform in self.transforms:
            sample = transform(sample, random)
        return sample


@dataclass(frozen=True, kw_only=True)
class Sometimes:
    """A transform that is applied to some samples.

    Parameters
    ----------
    transform
        Which.
    probability
        Share of the samples.
    """

    transform: Transform
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_call(Sometimes, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Apply it, or not."""
        return self.transform(sample, random) if random.random() < self.probability else sample


@dataclass(frozen=True, kw_only=True)
class Jointly:
    """A function of one array and a generator, applied to several features with the same random numbers.

    Parameters
    ----------
    function
        ``function(array, random)`` gives an array.
    features
        Names of those it is applied to.
    """

    function: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    features: tuple[str, ...]

    def __post_init__(self) -> None:
        check_call(Jointly, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Apply it to each feature, from the same state of the generator."""
        state = random.bit_generator.state
        for name in self.features:
            random.bit_generator.state = state
            sample[name] = self.function(_feature(sample, name), random)
        return sample


@dataclass(frozen=True, kw_only=True)
class _Joint(abc.ABC):
    """A transform that draws first, and then changes each feature by what was drawn.

    Parameters
    ----------
    features
        Names of those it changes.
    """

    features: tuple[str, ...] = ("input",)

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Draw, and change."""
        shapes = {_feature(sample, name).shape[-2:] for name in self.features}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ConfigError(f"{', '.join(self.features)} must have one height and width; found {sorted(shapes)}")
        drawn = self._draw(random, *next(iter(shapes)))
        for name in self.features:
            sample[name] = self._change(sample[name], drawn)
        return sample

    @abc.abstractmethod
    def _draw(self, random: np.random.Generator, height: int, width: int) -> Any: ...

    @abc.abstractmethod
    def _change(self, array: np.ndarray, drawn: Any) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class RandomFlip(_Joint):
    """Mirrored, or not, along each of some axes.

    Parameters
    ----------
    features
        Names of those it changes.
    axes
        -1 swaps left and right, -2 top and bottom.
    probability
        For each axis.
    """

    axes: tuple[int, ...] = (-1,)
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_call(RandomFlip, vars(self))

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[int, ...]:
        return tuple(axis for axis in self.axes if random.random() < self.probability)

    def _change(self, array: np.ndarray, drawn: tuple[int, ...]) -> np.ndarray:
        return np.ascontiguousarray(np.flip(array, drawn)) if drawn else array


@dataclass(frozen=True, kw_only=True)
class RandomQuarterTurn(_Joint):
    """Turned by 0, 90, 180 or 270 degrees; for square images, or shapes change."""

    def _draw(self, random: np.random.Generator, height: int, width: int) -> int:
        return int(random.integers(4))

    def _change(self, array: np.ndarray, drawn: int) -> np.ndarray:
        return np.ascontiguousarray(np.rot90(array, drawn, (-2, -1)))


@dataclass(frozen=True, kw_only=True)
class RandomCrop(_Joint):
    """A window of the image.

    Parameters
    ----------
    features
        Names of those it changes.
    size
        Height and width of the window; None for those of the image.
    padding
        Pixels that are added on each side first.
    fill
        Their value.
    """

    size: tuple[int, int] | None = None
    padding: int = 0
    fill: float = 0

    def __post_init__(self) -> None:
        check_call(RandomCrop, vars(self))

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
        rows, columns = self.size or (height, width)
        free = (height + 2 * self.padding - rows, width + 2 * self.padding - columns)
        if min(free) < 0:
            raise ConfigError(f"cannot cut {rows} x {columns} out of {height} x {width} with {self.padding} added")
        return int(random.integers(free[0] + 1)), int(random.integers(free[1] + 1)), rows, columns

    def _change(self, array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
        top, left, rows, columns = drawn
        if self.padding:
            sides = [(0, 0)] * (array.ndim - 2) + [(self.padding, self.padding)] * 2
            array = np.pad(array, sides, constant_values=self.fill)
        return np.ascontiguousarray(array[..., top : top + rows, left : left + columns])


@dataclass(frozen=True, kw_only=True)
class RandomErase(_Joint):
    """A rectangle blotted out (DeVries and Taylor: Improved regularization of CNNs with cutout, 2017).

    Parameters
    ----------
    features
        Names of those it changes.
    size
        Height and width of the rectangle; it may stick out of the image.
    fill
        What it is filled with.
    """

    size: tuple[int, int]
    fill: float = 0

    def __post_init__(self) -> None:
        check_call(RandomErase, vars(self))

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[slice, slice]:
        row, column = int(random.integers(height)), int(random.integers(width))
        top, left = row - self.size[0] // 2, column - self.size[1] // 2
        return slice(max(0, top), max(0, top + self.size[0])), slice(max(0, left), max(0, left + self.size[1]))

    def _change(self, array: np.ndarray, drawn: tuple[slice, slice]) -> np.ndarray:
        array = array.copy()
        rows, columns = drawn
        array[..., rows, columns] = self.fill
        return array


@dataclass(frozen=True, kw_only=True)
class AddNoise:
    """Gaussian noise; each feature gets its own.

    Parameters
    ----------
    features
        Names of those it changes; of real numbers.
    deviation
        Standard deviation.
    """

    features: tuple[str, ...] = ("input",)
    deviation: float = 0.1

    def __post_init__(self) -> None:
        check_call(AddNoise, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Add it."""
        for name in self.features:
            array = _feature(sample, name)
            if array.dtype.kind != "f":
                raise ConfigError(f"noise needs real numbers; {name!r} is {array.dtype}")
            noise = random.standard_normal(array.shape, np.float32) * np.float32(self.deviation)
            sample[name] = array + noise.astype(array.dtype, copy=False)
        return sample


def _feature(sample: Sample, name: str) -> np.ndarray:
    if name not in sample:
        raise ConfigError(f"the sample has no {name!r}; it has {', '.join(sample)}")
    return np.asarray(sample[name])
