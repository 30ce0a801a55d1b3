"""Mel-frequency cepstral coefficients of sound."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError
from nnpipe.transforms.log_mel import Floats, LogMel


class MFCC(LogMel):
    """Mel-frequency cepstral coefficients: the shape of a sound's spectrum over time in a few numbers.

    They are the first numbers of the discrete cosine transform (DCT-II) of a :class:`LogMel`.  With the convention
    ``tensorflow`` they equal ``tf.signal.mfccs_from_log_mel_spectrograms``, which multiplies all by sqrt(2 / bands);
    with ``librosa`` they equal ``librosa.feature.mfcc``, whose transform is orthonormal.

    Examples
    --------
    The features of MLPerf Tiny's keyword spotting:

    >>> features = MFCC(num_coefficients=10, lower_hz=20, upper_hz=4000, normalise="maximum")
    >>> features.apply(np.zeros((1, 16000), np.float32)).shape
    (1, 49, 10)
    """

    num_coefficients: int | None = argument(
        None, help="number of coefficients; by default 13, or 20 in Librosa's convention", minimum=1, maximum=512
    )
    dct: Literal["scaled", "orthonormal"] | None = argument(
        None,
        help="scaled multiplies all coefficients by sqrt(2 / bands), orthonormal the first by sqrt(1 / bands); by "
        "default as in the convention",
    )
    lifter: float = argument(
        0.0, help="weight coefficient n by 1 + lifter / 2 * sin(pi * (n + 1) / lifter); 0 does not", minimum=0
    )

    def validate(self) -> None:
        """Check that there are as many bands as coefficients."""
        super().validate()
        if self._columns > self._bands:
            raise ConfigError(f"{self._bands} mel bands have no {self._columns} coefficients")

    @property
    def _columns(self) -> int:
        return int(self._by("num_coefficients", 13, 20))

    @property
    def _what(self) -> str:
        return f"MFCC, {self._columns} coefficients of {self._bands} mel bands"

    @cached_property
    def _cosines(self) -> Floats:
        """The transform, ``(num_mels, num_coefficients)``."""
        bands, orders = np.arange(self._bands)[:, None], np.arange(self._columns)
        cosines = np.cos(np.pi / self._bands * (bands + 0.5) * orders) * np.sqrt(2.0 / self._bands)
        if self._by("dct", "scaled", "orthonormal") == "orthonormal":
            cosines[:, 0] /= np.sqrt(2.0)
        if self.lifter:
            cosines *= 1 + self.lifter / 2 * np.sin(np.pi * (orders + 1) / self.lifter)
        return np.asarray(cosines)

    def _of_sound(self, sound: npt.NDArray[Any]) -> Floats:
        return super()._of_sound(sound) @ self._cosines
