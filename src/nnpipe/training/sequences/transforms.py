"""Transforms that change several features of a sample in the same way.

Each is a function for :meth:`Sequence.map <nnpipe.training.sequences.sequence.Sequence.map>`: it
takes a sample and a random generator and returns a sample.  It draws once for each sample, so an
image and its mask are flipped together.  The numbers depend on the seed, the epoch and the sample's
id.  Arrays are ``(..., height, width)``, for example ``(channels, height, width)``; lengths are in
pixels.  Boxes and points in a picture can change with it.
:mod:`nnpipe.training.sequences.picture_transforms` has those that compute pixels anew, and
:mod:`nnpipe.training.sequences.picture_transforms` those that change colours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.picture_transforms import JointTransform, Sample, get_feature

Transform = Callable[[Sample, np.random.Generator], Sample]


@dataclass(frozen=True, kw_only=True)
class Compose:
    """Applies several transforms, one after the other.

    Parameters
    ----------
    transforms
        The transforms, in their order.
    """

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        check_call(Compose, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample after all transforms."""
        for transform in self.transforms:
            sample = transform(sample, random)
        return sample


@dataclass(frozen=True, kw_only=True)
class Sometimes:
    """Applies a transform to a random part of the samples.

    Parameters
    ----------
    transform
        The transform.
    probability
        The probability of applying it to a sample.
    """

    transform: Transform
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_call(Sometimes, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample, changed or unchanged."""
        return self.transform(sample, random) if random.random() < self.probability else sample


@dataclass(frozen=True, kw_only=True)
class Jointly:
    """Applies a function of an array and a generator to several features, with the same random
    numbers.

    Parameters
    ----------
    function
        ``function(array, random)``, which returns an array.
    features
        Names of the features to change.
    """

    function: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    features: tuple[str, ...]

    def __post_init__(self) -> None:
        check_call(Jointly, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample with each feature changed from the same state of the generator."""
        state = random.bit_generator.state
        for name in self.features:
            random.bit_generator.state = state
            sample[name] = self.function(get_feature(sample, name), random)
        return sample


@dataclass(frozen=True, kw_only=True)
class RandomFlip(JointTransform):
    """Flips arrays at random along some axes.

    Parameters
    ----------
    features, boxes, of_boxes, keypoints, least_visible
        As in :class:`~nnpipe.training.sequences.picture_transforms.JointTransform`: what to change
        together.
    axes
        -1 swaps left and right, -2 top and bottom.
    probability
        The probability of a flip, for each axis.
    """

    axes: tuple[int, ...] = (-1,)
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_call(RandomFlip, vars(self))

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[int, ...]:
        return tuple(axis for axis in self.axes if random.random() < self.probability)

    def _transform_array(self, array: np.ndarray, drawn: tuple[int, ...]) -> np.ndarray:
        return np.ascontiguousarray(np.flip(array, drawn)) if drawn else array

    def _compute_matrix(self, drawn: tuple[int, ...], height: int, width: int) -> np.ndarray:
        return np.array(
            [
                [-1.0, 0, width] if -1 in drawn else [1.0, 0, 0],
                [0, -1.0, height] if -2 in drawn else [0, 1.0, 0],
            ]
        )


@dataclass(frozen=True, kw_only=True)
class RandomQuarterTurn(JointTransform):
    """Rotates arrays at random by 0, 90, 180 or 270 degrees; images must be square, or their
    shapes change.
    """

    def _draw(self, random: np.random.Generator, height: int, width: int) -> int:
        return int(random.integers(4))

    def _transform_array(self, array: np.ndarray, drawn: int) -> np.ndarray:
        return np.ascontiguousarray(np.rot90(array, drawn, (-2, -1)))

    def _compute_matrix(self, drawn: int, height: int, width: int) -> np.ndarray:
        turns = (
            [[1, 0, 0], [0, 1, 0]],
            [[0, 1, 0], [-1, 0, width]],
            [[-1, 0, width], [0, -1, height]],
            [[0, -1, height], [1, 0, 0]],
        )
        return np.array(turns[drawn], np.float64)


@dataclass(frozen=True, kw_only=True)
class RandomCrop(JointTransform):
    """Cuts a window at a random place out of the image.

    Parameters
    ----------
    features, boxes, of_boxes, keypoints, least_visible
        As in :class:`~nnpipe.training.sequences.picture_transforms.JointTransform`: what to change
        together.
    size
        Height and width of the window in pixels; None for those of the image.
    padding
        Number of pixels that are added on each side first.
    fill
        The value of the added pixels.
    """

    size: tuple[int, int] | None = None
    padding: int = 0
    fill: float = 0

    def __post_init__(self) -> None:
        check_call(RandomCrop, vars(self))

    def _draw(
        self, random: np.random.Generator, height: int, width: int
    ) -> tuple[int, int, int, int]:
        rows, columns = self.size or (height, width)
        free = (height + 2 * self.padding - rows, width + 2 * self.padding - columns)
        if min(free) < 0:
            raise ConfigError(
                f"cannot cut {rows} x {columns} out of {height} x {width} with {self.padding} added"
            )
        return int(random.integers(free[0] + 1)), int(random.integers(free[1] + 1)), rows, columns

    def _transform_array(self, array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
        top, left, rows, columns = drawn
        if self.padding:
            sides = [(0, 0)] * (array.ndim - 2) + [(self.padding, self.padding)] * 2
            array = np.pad(array, sides, constant_values=self.fill)
        return np.ascontiguousarray(array[..., top : top + rows, left : left + columns])

    def _compute_matrix(
        self, drawn: tuple[int, int, int, int], height: int, width: int
    ) -> np.ndarray:
        return np.array([[1.0, 0, self.padding - drawn[1]], [0, 1.0, self.padding - drawn[0]]])


@dataclass(frozen=True, kw_only=True)
class RandomErase(JointTransform):
    """Erases a rectangle (DeVries and Taylor: Improved regularization of CNNs with cutout, 2017).

    Parameters
    ----------
    features
        Names of the features to change.
    size
        Height and width of the rectangle in pixels; it may extend beyond the image.
    fill
        The value inside the rectangle.
    """

    size: tuple[int, int]
    fill: float = 0

    def __post_init__(self) -> None:
        check_call(RandomErase, vars(self))

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[slice, slice]:
        row, column = int(random.integers(height)), int(random.integers(width))
        top, left = row - self.size[0] // 2, column - self.size[1] // 2
        return slice(max(0, top), max(0, top + self.size[0])), slice(
            max(0, left), max(0, left + self.size[1])
        )

    def _transform_array(self, array: np.ndarray, drawn: tuple[slice, slice]) -> np.ndarray:
        array = array.copy()
        rows, columns = drawn
        array[..., rows, columns] = self.fill
        return array


@dataclass(frozen=True, kw_only=True)
class AddNoise:
    """Adds Gaussian noise, different for each feature.

    Parameters
    ----------
    features
        Names of the features to change; integers are rounded, and stay within their type.
    deviation
        Standard deviation.
    """

    features: tuple[str, ...] = ("input",)
    deviation: float = 0.1

    def __post_init__(self) -> None:
        check_call(AddNoise, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample with noise added."""
        for name in self.features:
            array = get_feature(sample, name)
            if array.dtype.kind not in "iuf":
                raise ConfigError(f"noise needs numbers; {name!r} is {array.dtype}")
            noise = random.standard_normal(array.shape, np.float32) * np.float32(self.deviation)
            if array.dtype.kind in "iu":
                limits = np.iinfo(array.dtype)
                sample[name] = np.clip(np.rint(array + noise), limits.min, limits.max).astype(
                    array.dtype
                )
            else:
                sample[name] = array + noise.astype(array.dtype, copy=False)
        return sample


@dataclass(frozen=True, kw_only=True)
class AboveThreshold:
    """Adds a mask of the pixels above a value, as a target of segmentation.

    Parameters
    ----------
    source
        The feature of one channel, first or last: ``(1, height, width)`` or ``(height, width, 1)``.
    mask
        The name of the mask, int64 ``(height, width)`` with 0 and 1.
    threshold
        The value.
    """

    source: str = "input"
    mask: str = "mask"
    threshold: float = 0.5

    def __post_init__(self) -> None:
        check_call(AboveThreshold, vars(self))

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample with its mask."""
        array = get_feature(sample, self.source)
        channel = 0 if array.ndim == 3 and array.shape[0] == 1 else -1
        if array.ndim != 3 or array.shape[channel] != 1:
            raise ConfigError(f"{self.source!r} must have one channel; it is {array.shape}")
        return sample | {self.mask: (np.squeeze(array, channel) > self.threshold).astype(np.int64)}
