"""Transforms that compute pixels anew: resizing, cutting out with resizing, and affine maps.

They are functions for :meth:`Sequence.map <nnpipe.training.sequences.sequence.Sequence.map>`, as those of
:mod:`nnpipe.training.sequences.transforms`.  Pictures are interpolated; features in ``masks`` take the nearest pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, radians, sin, sqrt, tan
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.image_conversion import resized
from nnpipe.training.sequences._joint import JointTransform


@dataclass(frozen=True, kw_only=True)
class _Interpolating(JointTransform):
    masks: tuple[str, ...] = ()

    @property
    def _pictures(self) -> tuple[str, ...]:
        return (*self.features, *self.masks)

    def _changed(self, name: str, array: np.ndarray, drawn: Any) -> np.ndarray:
        return self._nearest(array, drawn) if name in self.masks else self._change(array, drawn)

    def _nearest(self, array: np.ndarray, drawn: Any) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Resize(_Interpolating):
    """Makes pictures of one size.  A smaller picture has the means of the larger one's pixels.

    Parameters
    ----------
    features, boxes, of_boxes, keypoints, least_visible
        As in :class:`~nnpipe.training.sequences._joint.JointTransform`: what to change together.
    masks
        Names of features whose pixels are chosen, not mixed.
    size
        Height and width in pixels.
    """

    size: tuple[int, int]

    def __post_init__(self) -> None:
        check_call(Resize, vars(self))
        _check_size(self.size)

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
        return 0, 0, height, width

    def _change(self, array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
        part = _cut(array, drawn)
        found = resized(part.reshape(-1, *part.shape[-2:], 1), *self.size)
        return _like(found.reshape(*part.shape[:-2], *self.size), array.dtype)

    def _nearest(self, array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
        part = _cut(array, drawn)
        rows, columns = (
            ((np.arange(new) + 0.5) * old / new).astype(np.int64)
            for new, old in zip(self.size, part.shape[-2:], strict=True)
        )
        return np.ascontiguousarray(part[..., rows[:, None], columns])

    def _matrix(self, drawn: tuple[int, int, int, int], height: int, width: int) -> np.ndarray:
        top, left, rows, columns = drawn
        down, across = self.size[0] / rows, self.size[1] / columns
        return np.array([[across, 0, -left * across], [0, down, -top * down]])


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop(Resize):
    """Cuts a window of random size, shape and place out of the picture, and makes it of one size.

    Szegedy et al., "Going Deeper with Convolutions", 2015.

    Parameters
    ----------
    features, masks, boxes, of_boxes, keypoints, least_visible
        As in :class:`Resize`.
    size
        Height and width of the result in pixels.
    scale
        The least and the greatest share of the picture's area.
    ratio
        The least and the greatest width by height of the window.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (0.75, 4 / 3)

    def __post_init__(self) -> None:
        check_call(RandomResizedCrop, vars(self))
        _check_size(self.size)
        if not 0 < self.scale[0] <= self.scale[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise ConfigError(
                f"RandomResizedCrop: scale {self.scale} or ratio {self.ratio} is no range of what there is"
            )

    def _draw(self, random: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
        area = height * width * random.uniform(*self.scale)
        shape = float(np.exp(random.uniform(*np.log(self.ratio))))
        rows = min(height, max(1, round(sqrt(area / shape))))
        columns = min(width, max(1, round(sqrt(area * shape))))
        return int(random.integers(height - rows + 1)), int(random.integers(width - columns + 1)), rows, columns


@dataclass(frozen=True, kw_only=True)
class RandomAffine(_Interpolating):
    """Rotates, moves, scales and shears pictures around their centre, by one interpolation.

    Parameters
    ----------
    features, boxes, of_boxes, keypoints, least_visible
        As in :class:`~nnpipe.training.sequences._joint.JointTransform`: what to change together.  A box becomes the
        smallest one around its moved corners.
    masks
        Names of features whose pixels are chosen, not mixed.
    degrees
        The greatest angle, to both sides.
    translate
        The greatest way down and across, as parts of height and width.
    scale
        The least and the greatest factor of lengths.
    shear
        The greatest angle in degrees by which columns lean.
    fill, mask_fill
        The values of pixels from outside, of pictures and of masks.
    """

    degrees: float = 0.0
    translate: tuple[float, float] = (0.0, 0.0)
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0
    fill: float = 0.0
    mask_fill: float = 0.0

    def __post_init__(self) -> None:
        check_call(RandomAffine, vars(self))
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ConfigError(f"RandomAffine: scale is {self.scale}; give the least and the greatest factor above 0")

    def _draw(self, random: np.random.Generator, height: int, width: int) -> np.ndarray:
        angle, lean = (radians(random.uniform(-most, most)) for most in (self.degrees, self.shear))
        factor = random.uniform(*self.scale)
        down, across = (random.uniform(-most, most) for most in self.translate)
        turned = np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]]) * factor
        linear = turned @ np.array([[1.0, tan(lean)], [0.0, 1.0]])
        centre = np.array([width / 2, height / 2])
        offset = centre + np.array([across * width, down * height]) - linear @ centre
        return np.concatenate([linear, offset[:, None]], 1)

    def _matrix(self, drawn: np.ndarray, height: int, width: int) -> np.ndarray:
        return drawn

    def _change(self, array: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        return moved(array, drawn, self.fill)

    def _nearest(self, array: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        return moved(array, drawn, self.mask_fill, nearest=True)


def moved(array: np.ndarray, matrix: np.ndarray, fill: float, nearest: bool = False) -> np.ndarray:
    """Return pictures ``(..., height, width)`` whose points went where ``matrix`` ``(2, 3)`` says, in the same size."""
    height, width = array.shape[-2:]
    back = np.linalg.inv(matrix[:, :2])
    y, x = np.mgrid[0:height, 0:width] + 0.5
    x, y = x - matrix[0, 2], y - matrix[1, 2]
    # Pixels are at the middles of unit squares; a margin of one pixel holds what is outside.
    across = np.clip(back[0, 0] * x + back[0, 1] * y + 0.5, 0, width + 1)
    down = np.clip(back[1, 0] * x + back[1, 1] * y + 0.5, 0, height + 1)
    whole = np.pad(array, [(0, 0)] * (array.ndim - 2) + [(1, 1)] * 2, constant_values=fill)
    if nearest:
        return whole[..., np.rint(down).astype(np.int64), np.rint(across).astype(np.int64)]
    top, left = (np.minimum(v.astype(np.int64), most) for v, most in ((down, height), (across, width)))
    low, right = (down - top).astype(np.float32), (across - left).astype(np.float32)
    real = whole.astype(np.float32, copy=False)
    upper = real[..., top, left] * (1 - right) + real[..., top, left + 1] * right
    lower = real[..., top + 1, left] * (1 - right) + real[..., top + 1, left + 1] * right
    return _like(upper * (1 - low) + lower * low, array.dtype)


def _like(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype)


def _cut(array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
    top, left, rows, columns = drawn
    return array[..., top : top + rows, left : left + columns]


def _check_size(size: tuple[int, int]) -> None:
    if min(size) < 1:
        raise ConfigError(f"size is {size}; give a height and a width of at least one pixel")
