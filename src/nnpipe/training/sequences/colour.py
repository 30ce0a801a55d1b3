"""Transforms that change the colours of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._joint import Sample, feature_of

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_CHROMA = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])  # YIQ, of NTSC


@dataclass(frozen=True, kw_only=True)
class ColourJitter:
    """Changes brightness, contrast, saturation and hue at random, in this order.

    Pictures are ``(channels, height, width)``, from 0 to 1, or integers from 0 to the greatest of their type.  Those of
    one channel have neither saturation nor hue.  All features are changed alike.

    Parameters
    ----------
    features
        Names of the features to change.
    brightness, contrast, saturation
        The factor is drawn from 1 less this to 1 and this; contrast is the distance to the mean brightness,
        saturation that to grey.
    hue
        The greatest angle, as a part of the whole circle, by which colours turn around grey (in YIQ).
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
                raise ConfigError(f"ColourJitter: {name} is {getattr(self, name)}, which is no range")

    def __call__(self, sample: Sample, random: np.random.Generator) -> Sample:
        """Return the sample with other colours."""
        most = (self.brightness, self.contrast, self.saturation)
        brightness, contrast, saturation = (random.uniform(max(0.0, 1 - part), 1 + part) for part in most)
        angle = 2 * np.pi * random.uniform(-self.hue, self.hue)
        for name in self.features:
            array = feature_of(sample, name)
            if array.ndim != 3 or array.shape[0] not in (1, 3):
                raise ConfigError(f"{name!r} is {array.shape}; colours need (1 or 3, height, width)")
            sample[name] = _changed(array, brightness, contrast, saturation, angle)
        return sample


def _changed(array: np.ndarray, brightness: float, contrast: float, saturation: float, angle: float) -> np.ndarray:
    top = float(np.iinfo(array.dtype).max) if array.dtype.kind in "iu" else 1.0
    values = np.clip(array.astype(np.float32) * np.float32(brightness), 0, top)
    mean = np.float32(_grey(values).mean())
    values = np.clip(mean + (values - mean) * np.float32(contrast), 0, top)
    if len(values) == 3:
        grey = _grey(values)
        values = np.clip(grey + (values - grey) * np.float32(saturation), 0, top)
        if angle:
            turn = np.eye(3)
            turn[1:, 1:] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            matrix = (np.linalg.inv(_CHROMA) @ turn @ _CHROMA).astype(np.float32)
            values = np.clip(np.einsum("ij,jhw->ihw", matrix, values), 0, top)
    found: np.ndarray = np.rint(values) if array.dtype.kind in "iu" else values
    return found.astype(array.dtype)


def _grey(values: np.ndarray) -> Any:
    return values if len(values) == 1 else np.tensordot(_LUMA, values, 1)
