"""Inputs whose samples are stored as quantised numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError, DatasetError


@dataclass(frozen=True)
class QuantisedInput:
    """Scale and zero point of an input; a number ``q`` stands for ``scale * (q - zero_point)``.

    Attributes
    ----------
    name
        The name of the input; empty for the only one.
    scale, zero_point
        As in ONNX and TensorFlow Lite.
    """

    name: str
    scale: float
    zero_point: int

    @classmethod
    def parse(cls, text: str) -> QuantisedInput:
        """Read ``NAME=SCALE:ZERO_POINT``; the name may be missing, and the zero point is 0 by default."""
        name, is_, rest = text.rpartition("=")
        scale, _, zero = rest.partition(":")
        try:
            found = cls(name, float(scale), int(zero or 0))
        except ValueError:
            found = cls(name, math.nan, 0)
        if (
            not (math.isfinite(found.scale) and found.scale > 0)
            or (is_ and not name)
            or abs(found.zero_point) >= 1 << 31
        ):
            raise ConfigError(f"--quantised takes NAME=SCALE:ZERO_POINT, such as image=0.5:83, not {text!r}")
        return found

    def check(self, array: npt.NDArray[Any]) -> None:
        """Raise :class:`DatasetError` unless the array holds integers."""
        if array.dtype.kind not in "iu":
            raise DatasetError(f"{self.name or 'the input'} holds {array.dtype}; quantised numbers are integers")

    def real(self, array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return real numbers, float32."""
        return ((array.astype(np.float64) - self.zero_point) * self.scale).astype(np.float32)
