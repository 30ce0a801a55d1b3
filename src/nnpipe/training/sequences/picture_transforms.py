"""Transforms of pictures together with what lies in them: colours, and pixels that are computed
anew.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from math import cos, radians, sin, sqrt, tan
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.image_conversion import resize_images

Sample = dict[str, Any]
"""Features by name, and ``"sample_id"``."""


@dataclass(frozen=True, kw_only=True)
class JointTransform(abc.ABC):
    """A transform that draws random numbers once, and then changes each feature by them.

    Parameters
    ----------
    features
        Names of the pictures to change, ``(..., height, width)``; all have one height and width.
    boxes
        Names of boxes ``(n, 4)``: left, top, right and bottom edge, in pixels.  They end at the
        picture's edges.
    of_boxes
        Names of features with a row for each box, such as its class.  They lose the rows of boxes
        that are lost.
    keypoints
        Names of points ``(n, 2)``: x and y in pixels; or ``(n, 3)``, whose third number, the
        visibility, becomes 0 outside of the picture.
    least_visible
        The share of its area that must be left of a box; others are lost.
    """

    features: tuple[str, ...] = ("input",)
    boxes: tuple[str, ...] = ()
    of_boxes: tuple[str, ...] = ()
    keypoints: tuple[str, ...] = ()
    least_visible: float = 0.1

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the changed sample."""
        shapes = {get_feature(sample, name).shape[-2:] for name in self._pictures}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ConfigError(
                f"{', '.join(self._pictures)} must have one height and width; found "
                f"{sorted(shapes)}"
            )
        height, width = next(iter(shapes))
        drawn = self._draw(random, height, width)
        for name in self._pictures:
            sample[name] = self._transform_feature(name, np.asarray(sample[name]), drawn)
        if self.boxes or self.keypoints:
            size = np.asarray(sample[self._pictures[0]]).shape[-2:]
            self._move(sample, drawn, (height, width), size)
        return sample

    @property
    def _pictures(self) -> tuple[str, ...]:
        return self.features

    def _transform_feature(self, name: str, array: np.ndarray, drawn: Any) -> np.ndarray:
        return self._transform_array(array, drawn)

    @abc.abstractmethod
    def _draw(self, random: np.random.Generator, height: int, width: int) -> Any: ...

    @abc.abstractmethod
    def _transform_array(self, array: np.ndarray, drawn: Any) -> np.ndarray: ...

    def _compute_matrix(self, drawn: Any, height: int, width: int) -> np.ndarray:
        """Return where points go, ``(2, 3)``, which is applied to x, y and 1; by default they
        stay.
        """
        return np.eye(2, 3)

    def _move(
        self, sample: Sample, drawn: Any, before: tuple[int, int], after: tuple[int, ...]
    ) -> None:
        matrix = self._compute_matrix(drawn, *before)
        height, width = after
        kept: np.ndarray | None = None
        for name in self.boxes:
            given = _get_rows(sample, name, (4,))
            corners = given.astype(np.float64)[:, [[0, 1], [2, 1], [0, 3], [2, 3]]]
            moved = corners @ matrix[:, :2].T + matrix[:, 2]
            low, high = moved.min(1, initial=np.inf), moved.max(1, initial=-np.inf)
            area = np.prod(high - low, 1)
            low, high = np.clip(low, 0, (width, height)), np.clip(high, 0, (width, height))
            left = np.prod(high - low, 1)
            own = left > np.maximum(self.least_visible * area, 0)
            kept = own if kept is None else kept & own
            found = np.concatenate([low, high], 1)
            sample[name] = found.astype(given.dtype if given.dtype.kind == "f" else np.float32)
        if kept is not None and not kept.all():
            for name in (*self.boxes, *self.of_boxes):
                rows = np.asarray(get_feature(sample, name))
                if len(rows) != len(kept):
                    raise ConfigError(f"{name!r} has {len(rows)} rows for {len(kept)} boxes")
                sample[name] = rows[kept]
        for name in self.keypoints:
            given = _get_rows(sample, name, (2, 3))
            points = given.astype(np.float64)
            points[:, :2] = points[:, :2] @ matrix[:, :2].T + matrix[:, 2]
            if points.shape[1] == 3:
                x, y = points[:, 0], points[:, 1]
                points[:, 2] *= (x >= 0) & (x < width) & (y >= 0) & (y < height)
            sample[name] = points.astype(given.dtype if given.dtype.kind == "f" else np.float32)


def get_feature(sample: Sample, name: str) -> np.ndarray:
    """Return a feature of a sample as an array; raise :class:`ConfigError` if there is none of
    this name.
    """
    if name not in sample:
        raise ConfigError(f"the sample has no {name!r}; it has {', '.join(sample)}")
    return np.asarray(sample[name])


def _get_rows(sample: Sample, name: str, columns: tuple[int, ...]) -> np.ndarray:
    given = get_feature(sample, name)
    given = given.reshape(0, columns[0]) if given.size == 0 else given
    if given.ndim != 2 or given.shape[1] not in columns:
        raise ConfigError(
            f"{name!r} must be (n, {' or '.join(map(str, columns))}), not {given.shape}"
        )
    return given


_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
# YIQ, of NTSC
_CHROMA = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


@dataclass(frozen=True, kw_only=True)
class ColourJitter:
    """Changes brightness, contrast, saturation and hue at random, in this order.

    Pictures are ``(channels, height, width)``, from 0 to 1, or integers from 0 to the greatest of
    their type.  Those of one channel have neither saturation nor hue.  All features are changed
    alike.

    Parameters
    ----------
    features
        Names of the features to change.
    brightness, contrast, saturation
        The factor is drawn from 1 less this to 1 and this; contrast is the distance to the mean
        brightness, saturation that to grey.
    hue
        The greatest angle, as a part of the whole circle, by which colours turn around grey (in
        YIQ).
    """

    features: tuple[str, ...] = ("input",)
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        check_call(ColourJitter, vars(self))
        for name in ("brightness", "contrast", "saturation", "hue"):
            if not 0 <= getattr(self, name) <= (0.5 if name == "hue" else np.inf):
                raise ConfigError(
                    f"ColourJitter: {name} is {getattr(self, name)}, which is no range"
                )

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample with other colours."""
        most = (self.brightness, self.contrast, self.saturation)
        brightness, contrast, saturation = (
            random.uniform(max(0.0, 1 - part), 1 + part) for part in most
        )
        angle = 2 * np.pi * random.uniform(-self.hue, self.hue)
        for name in self.features:
            array = get_feature(sample, name)
            if array.ndim != 3 or array.shape[0] not in (1, 3):
                raise ConfigError(
                    f"{name!r} is {array.shape}; colours need (1 or 3, height, width)"
                )
            sample[name] = _jitter_colours(array, brightness, contrast, saturation, angle)
        return sample


def _jitter_colours(
    array: np.ndarray, brightness: float, contrast: float, saturation: float, angle: float
) -> np.ndarray:
    top = float(np.iinfo(array.dtype).max) if array.dtype.kind in "iu" else 1.0
    values = np.clip(array.astype(np.float32) * np.float32(brightness), 0, top)
    mean = np.float32(_to_grey(values).mean())
    values = np.clip(mean + (values - mean) * np.float32(contrast), 0, top)
    if len(values) == 3:
        grey = _to_grey(values)
        values = np.clip(grey + (values - grey) * np.float32(saturation), 0, top)
        if angle:
            turn = np.eye(3)
            turn[1:, 1:] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            matrix = (np.linalg.inv(_CHROMA) @ turn @ _CHROMA).astype(np.float32)
            values = np.clip(np.einsum("ij,jhw->ihw", matrix, values), 0, top)
    found: np.ndarray = np.rint(values) if array.dtype.kind in "iu" else values
    return found.astype(array.dtype)


def _to_grey(values: np.ndarray) -> Any:
    return values if len(values) == 1 else np.tensordot(_LUMA, values, 1)


# Transforms that compute pixels anew: resizing, cutting out with resizing, and affine maps.
#
# They are functions for :meth:`Sequence.map <nnpipe.training.sequences.sequence.Sequence.map>`, as
# those of :mod:`nnpipe.training.sequences.transforms`.  Pictures are interpolated; features in
# ``masks`` take the nearest pixel.


@dataclass(frozen=True, kw_only=True)
class _Interpolating(JointTransform):
    masks: tuple[str, ...] = ()

    @property
    def _pictures(self) -> tuple[str, ...]:
        return (*self.features, *self.masks)

    def _transform_feature(self, name: str, array: np.ndarray, drawn: Any) -> np.ndarray:
        return (
            self._transform_mask(array, drawn)
            if name in self.masks
            else self._transform_array(array, drawn)
        )

    def _transform_mask(self, array: np.ndarray, drawn: Any) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Resize(_Interpolating):
    """Makes pictures of one size.  A smaller picture has the means of the larger one's pixels.

    Parameters
    ----------
    features, boxes, of_boxes, keypoints, least_visible
        As in :class:`~nnpipe.training.sequences.picture_transforms.JointTransform`: what to change
        together.
    masks
        Names of features whose pixels are chosen, not mixed.
    size
        Height and width in pixels.
    """

    size: tuple[int, int]

    def __post_init__(self) -> None:
        check_call(Resize, vars(self))
        _check_size(self.size)

    def _draw(
        self, random: np.random.Generator, height: int, width: int
    ) -> tuple[int, int, int, int]:
        return 0, 0, height, width

    def _transform_array(self, array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
        part = _crop(array, drawn)
        found = resize_images(part.reshape(-1, *part.shape[-2:], 1), *self.size)
        return _convert_dtype(found.reshape(*part.shape[:-2], *self.size), array.dtype)

    def _transform_mask(self, array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
        part = _crop(array, drawn)
        rows, columns = (
            ((np.arange(new) + 0.5) * old / new).astype(np.int64)
            for new, old in zip(self.size, part.shape[-2:], strict=True)
        )
        return np.ascontiguousarray(part[..., rows[:, None], columns])

    def _compute_matrix(
        self, drawn: tuple[int, int, int, int], height: int, width: int
    ) -> np.ndarray:
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
                f"RandomResizedCrop: scale {self.scale} or ratio {self.ratio} is no range of what "
                f"there is"
            )

    def _draw(
        self, random: np.random.Generator, height: int, width: int
    ) -> tuple[int, int, int, int]:
        area = height * width * random.uniform(*self.scale)
        shape = float(np.exp(random.uniform(*np.log(self.ratio))))
        rows = min(height, max(1, round(sqrt(area / shape))))
        columns = min(width, max(1, round(sqrt(area * shape))))
        return (
            int(random.integers(height - rows + 1)),
            int(random.integers(width - columns + 1)),
            rows,
            columns,
        )


@dataclass(frozen=True, kw_only=True)
class RandomAffine(_Interpolating):
    """Rotates, moves, scales and shears pictures around their centre, by one interpolation.

    Parameters
    ----------
    features, boxes, of_boxes, keypoints, least_visible
        As in :class:`~nnpipe.training.sequences.picture_transforms.JointTransform`: what to change
        together.  A box becomes the smallest one around its moved corners.
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
            raise ConfigError(
                f"RandomAffine: scale is {self.scale}; give the least and the greatest factor "
                f"above 0"
            )

    def _draw(self, random: np.random.Generator, height: int, width: int) -> np.ndarray:
        angle, lean = (radians(random.uniform(-most, most)) for most in (self.degrees, self.shear))
        factor = random.uniform(*self.scale)
        down, across = (random.uniform(-most, most) for most in self.translate)
        turned = np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]]) * factor
        linear = turned @ np.array([[1.0, tan(lean)], [0.0, 1.0]])
        centre = np.array([width / 2, height / 2])
        offset = centre + np.array([across * width, down * height]) - linear @ centre
        return np.concatenate([linear, offset[:, None]], 1)

    def _compute_matrix(self, drawn: np.ndarray, height: int, width: int) -> np.ndarray:
        return drawn

    def _transform_array(self, array: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        return warp_affine(array, drawn, self.fill)

    def _transform_mask(self, array: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        return warp_affine(array, drawn, self.mask_fill, nearest=True)


def warp_affine(
    array: np.ndarray, matrix: np.ndarray, fill: float, nearest: bool = False
) -> np.ndarray:
    """Return pictures ``(..., height, width)`` whose points went where ``matrix`` ``(2, 3)``
    says, in the same size.
    """
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
    top, left = (
        np.minimum(v.astype(np.int64), most) for v, most in ((down, height), (across, width))
    )
    low, right = (down - top).astype(np.float32), (across - left).astype(np.float32)
    real = whole.astype(np.float32, copy=False)
    upper = real[..., top, left] * (1 - right) + real[..., top, left + 1] * right
    lower = real[..., top + 1, left] * (1 - right) + real[..., top + 1, left + 1] * right
    return _convert_dtype(upper * (1 - low) + lower * low, array.dtype)


def _convert_dtype(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype)


def _crop(array: np.ndarray, drawn: tuple[int, int, int, int]) -> np.ndarray:
    top, left, rows, columns = drawn
    return array[..., top : top + rows, left : left + columns]


def _check_size(size: tuple[int, int]) -> None:
    if min(size) < 1:
        raise ConfigError(f"size is {size}; give a height and a width of at least one pixel")
