"""The base of transforms that change pictures together with what lies in them."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError

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
        Names of boxes ``(n, 4)``: left, top, right and bottom edge, in pixels.  They end at the picture's edges.
    of_boxes
        Names of features with a row for each box, such as its class.  They lose the rows of boxes that are lost.
    keypoints
        Names of points ``(n, 2)``: x and y in pixels; or ``(n, 3)``, whose third number, the visibility, becomes 0
        outside of the picture.
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
        shapes = {feature_of(sample, name).shape[-2:] for name in self._pictures}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ConfigError(f"{', '.join(self._pictures)} must have one height and width; found {sorted(shapes)}")
        height, width = next(iter(shapes))
        drawn = self._draw(random, height, width)
        for name in self._pictures:
            sample[name] = self._changed(name, np.asarray(sample[name]), drawn)
        if self.boxes or self.keypoints:
            size = np.asarray(sample[self._pictures[0]]).shape[-2:]
            self._move(sample, drawn, (height, width), size)
        return sample

    @property
    def _pictures(self) -> tuple[str, ...]:
        return self.features

    def _changed(self, name: str, array: np.ndarray, drawn: Any) -> np.ndarray:
        return self._change(array, drawn)

    @abc.abstractmethod
    def _draw(self, random: np.random.Generator, height: int, width: int) -> Any: ...

    @abc.abstractmethod
    def _change(self, array: np.ndarray, drawn: Any) -> np.ndarray: ...

    def _matrix(self, drawn: Any, height: int, width: int) -> np.ndarray:
        """Return where points go, ``(2, 3)``, which is applied to x, y and 1; by default they stay."""
        return np.eye(2, 3)

    def _move(self, sample: Sample, drawn: Any, before: tuple[int, int], after: tuple[int, ...]) -> None:
        matrix = self._matrix(drawn, *before)
        height, width = after
        kept: np.ndarray | None = None
        for name in self.boxes:
            given = _rows(sample, name, (4,))
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
                rows = np.asarray(feature_of(sample, name))
                if len(rows) != len(kept):
                    raise ConfigError(f"{name!r} has {len(rows)} rows for {len(kept)} boxes")
                sample[name] = rows[kept]
        for name in self.keypoints:
            given = _rows(sample, name, (2, 3))
            points = given.astype(np.float64)
            points[:, :2] = points[:, :2] @ matrix[:, :2].T + matrix[:, 2]
            if points.shape[1] == 3:
                x, y = points[:, 0], points[:, 1]
                points[:, 2] *= (x >= 0) & (x < width) & (y >= 0) & (y < height)
            sample[name] = points.astype(given.dtype if given.dtype.kind == "f" else np.float32)


def feature_of(sample: Sample, name: str) -> np.ndarray:
    """Return a feature of a sample as an array; raise :class:`ConfigError` if there is none of this name."""
    if name not in sample:
        raise ConfigError(f"the sample has no {name!r}; it has {', '.join(sample)}")
    return np.asarray(sample[name])


def _rows(sample: Sample, name: str, columns: tuple[int, ...]) -> np.ndarray:
    given = feature_of(sample, name)
    given = given.reshape(0, columns[0]) if given.size == 0 else given
    if given.ndim != 2 or given.shape[1] not in columns:
        raise ConfigError(f"{name!r} must be (n, {' or '.join(map(str, columns))}), not {given.shape}")
    return given
