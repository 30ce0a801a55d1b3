"""Logarithmic mel spectrograms of sound."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError
from nnpipe.core.input_transform import InputTransform
from nnpipe.core.layout import Shape
from nnpipe.core.tensors import show_shape

Floats = npt.NDArray[np.float64]
MelScale = Literal["htk", "slaney"]

# Slaney's scale (Auditory Toolbox, 1998) is linear up to 1000 Hz and logarithmic above.
_HZ_PER_MEL, _BREAK_HZ, _LOG_STEP = 200.0 / 3, 1000.0, np.log(6.4) / 27
_BREAK_MEL = _BREAK_HZ / _HZ_PER_MEL


def hz_to_mel(hz: Floats, scale: MelScale) -> Floats:
    """Return frequencies on the mel scale, of any shape."""
    if scale == "htk":
        return np.asarray(1127.0 * np.log1p(hz / 700.0))
    above = _BREAK_MEL + np.log(np.maximum(hz, _BREAK_HZ) / _BREAK_HZ) / _LOG_STEP
    return np.where(hz < _BREAK_HZ, hz / _HZ_PER_MEL, above)


def mel_to_hz(mel: Floats, scale: MelScale) -> Floats:
    """Return the frequencies in Hz of numbers on the mel scale, of any shape."""
    if scale == "htk":
        return np.asarray(700.0 * np.expm1(mel / 1127.0))
    above = _BREAK_HZ * np.exp(_LOG_STEP * (np.maximum(mel, _BREAK_MEL) - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * _HZ_PER_MEL, above)


def compute_mel_matrix(
    *,
    sample_rate: int,
    fft_length: int,
    num_mels: int,
    lower_hz: float,
    upper_hz: float,
    scale: MelScale,
    triangles: Literal["mel", "hz"],
    normalised: bool,
) -> Floats:
    """Return the weights of frequencies in mel bands, ``(fft_length // 2 + 1, num_mels)``.

    Parameters
    ----------
    sample_rate, fft_length, num_mels, lower_hz, upper_hz
        Samples per second, samples per frame, number of bands, and the ends of the lowest and
        highest band in Hz.
    scale
        The mel scale on which the centres of the bands are equally far apart.
    triangles
        The scale on which the sides of a band's triangle are straight: ``"mel"`` as in
        ``tf.signal.linear_to_mel_weight_matrix``, where frequency 0 belongs to no band, or ``"hz"``
        as in ``librosa.filters.mel`` and ``torchaudio``.
    normalised
        Whether each band is divided by half its width in Hz (Slaney), so that all have the same
        area.
    """
    count = fft_length // 2 + 1
    # With an odd length, no frequency is half the sample rate; TensorFlow takes the last one for
    # it.
    highest = sample_rate / 2 if triangles == "mel" else (count - 1) * sample_rate / fft_length
    frequencies = np.linspace(0.0, highest, count)
    ends = hz_to_mel(np.array([lower_hz, upper_hz]), scale)
    edges = np.linspace(ends[0], ends[1], num_mels + 2)
    edges_hz = mel_to_hz(edges, scale)
    places = frequencies
    if triangles == "mel":
        places = hz_to_mel(frequencies, scale)
    else:
        edges = edges_hz
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (places[:, None] - left) / (centre - left)
    falling = (right - places[:, None]) / (right - centre)
    weights: Floats = np.maximum(0.0, np.minimum(rising, falling))
    if triangles == "mel":
        weights[0] = 0.0
    if normalised:
        weights *= 2.0 / (edges_hz[2:] - edges_hz[:-2])
    return weights


_MOST_NUMBERS = 1 << 21  # of a spectrum that is computed at once: 32 MiB
_LEAST_MAXIMUM = 1e-9
_AS = "; by default as in the convention"


class LogMel(InputTransform):
    """The logarithm of a mel spectrogram: the loudness of a sound over time in bands of frequency.

    The conventions of the two libraries differ in more than their defaults; the first column holds
    what the arguments can change one by one.

    ==================== ================================== ==================================================
    argument             ``tensorflow`` (``tf.signal``)     ``librosa`` (``librosa.feature``)
    ==================== ================================== ==================================================
    ``sample_rate``      16000                              22050
    ``frame_length``     480                                as ``fft_length``
    ``fft_length``       least power of two that is not     as ``frame_length``, 2048 without either
                         below ``frame_length``
    ``frame_step``       320                                512
    ``num_mels``         40                                 128
    ``power``            1                                  2
    ``padding``          none                               zeros, half a transform on each side
    ``lower_hz``,        125, 3800                          0, half the sample rate
    ``upper_hz``
    ``mel_scale``        htk                                slaney
    ``mel_norm``         none                               slaney
    ``logarithm``        natural                            decibel
    ``log_offset``       1e-6                               0
    ``log_floor``        0                                  1e-10
    ``dynamic_range``    not limited                        80 dB
    ``axes``             time first                         bands first
    (triangles)          straight on the mel scale          straight in Hz
    (frames)             of ``frame_length``, zeros behind  of ``fft_length``, the window in the middle
    (odd lengths)        symmetric window, bins to the end  periodic window
    ==================== ================================== ==================================================

    Librosa's ``power_to_db(ref=np.max)`` is ``reference`` maximum; its ``n_fft``, ``win_length``
    and ``hop_length`` are ``fft_length``, ``frame_length`` and ``frame_step``.  The sample rate
    must be that of the data set.

    torchaudio's ``MelSpectrogram`` is Librosa's with ``mel_scale`` htk, ``mel_norm`` none and
    ``padding`` reflect.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)[None].astype(np.float32)
    >>> spectrogram = LogMel().apply(tone)
    >>> spectrogram.shape, spectrogram.dtype.name
    ((1, 49, 40), 'float32')
    >>> int(spectrogram[0].mean(axis=0).argmax())
    17
    """

    convention: Literal["tensorflow", "librosa"] = argument(
        "tensorflow", help="library whose definitions and defaults are followed"
    )
    sample_rate: int | None = argument(
        None, help=f"samples per second{_AS}", minimum=1, maximum=1 << 20
    )
    frame_length: int | None = argument(
        None, help=f"samples of a frame that the window spans{_AS}", minimum=2, maximum=1 << 14
    )
    frame_step: int | None = argument(
        None, help=f"samples between the starts of frames{_AS}", minimum=1, maximum=1 << 20
    )
    fft_length: int | None = argument(
        None, help=f"samples of the Fourier transform{_AS}", minimum=2, maximum=1 << 14
    )
    window: Literal["hann", "hamming", "rectangular"] = argument(
        "hann", help="periodic window of a frame"
    )
    normalise: Literal["none", "maximum", "peak"] = argument(
        "none",
        help="divide a clip by its greatest sample (maximum, as MLPerf Tiny does) or by its "
        "greatest absolute value (peak)",
    )
    padding: Literal["none", "zeros", "reflect"] | None = argument(
        None, help=f"what is put before and behind a clip so that frames are centred{_AS}"
    )
    power: float | None = argument(
        None, help=f"exponent of the magnitudes: 1 or 2{_AS}", minimum=0.01, maximum=16
    )
    num_mels: int | None = argument(None, help=f"number of mel bands{_AS}", minimum=1, maximum=512)
    lower_hz: float | None = argument(
        None, help=f"lower end of the lowest band in Hz{_AS}", minimum=0
    )
    upper_hz: float | None = argument(
        None, help=f"upper end of the highest band in Hz{_AS}", minimum=0
    )
    mel_scale: Literal["htk", "slaney"] | None = argument(
        None, help=f"definition of the mel scale{_AS}"
    )
    mel_norm: Literal["none", "slaney"] | None = argument(
        None, help=f"slaney gives all bands the same area{_AS}"
    )
    logarithm: Literal["natural", "decibel"] | None = argument(
        None, help=f"natural logarithm, or 20 / power times the decimal one{_AS}"
    )
    reference: Literal["one", "maximum"] = argument(
        "one", help="the value whose logarithm becomes 0: 1, or the clip's greatest"
    )
    log_offset: float | None = argument(
        None, help=f"number added before the logarithm{_AS}", minimum=0
    )
    log_floor: float | None = argument(
        None, help=f"least number whose logarithm is taken{_AS}", minimum=0
    )
    dynamic_range: float | None = argument(
        None, help=f"clip values to this far below the clip's greatest; 0 does not{_AS}", minimum=0
    )
    axes: Literal["time_first", "bands_first"] | None = argument(
        None, help=f"order of the two axes{_AS}"
    )

    def validate(self) -> None:
        """Check lengths and frequencies against each other."""
        if self._fft_length < self._frame:
            raise ConfigError(f"fft_length {self._fft_length} is below frame_length {self._frame}")
        lower, upper = self._ends
        if not lower < upper <= self._rate / 2:
            raise ConfigError(
                f"mel bands from {lower:g} to {upper:g} Hz: lower_hz must be below upper_hz, and "
                f"that at most half of sample_rate, {self._rate / 2:g} Hz"
            )
        offset, floor = (
            self._get_parameter("log_offset", 1e-6, 0.0),
            self._get_parameter("log_floor", 0.0, 1e-10),
        )
        if offset <= 0 and floor <= 0:
            raise ConfigError("silence has no logarithm: log_offset or log_floor must be above 0")

    # -- the convention ---------------------------------------------------------------------------

    def _get_parameter(self, name: str, tensorflow: Any, librosa: Any) -> Any:
        """Return an argument, or what the convention says if it is not given."""
        given = getattr(self, name)
        if given is not None:
            return given
        return tensorflow if self.convention == "tensorflow" else librosa

    def raw_sample_rate(self) -> int:
        """Return the samples per second."""
        return self._rate

    @property
    def _rate(self) -> int:
        return int(self._get_parameter("sample_rate", 16000, 22050))

    @property
    def _frame(self) -> int:
        return int(self._get_parameter("frame_length", 480, self.fft_length or 2048))

    @property
    def _step(self) -> int:
        return int(self._get_parameter("frame_step", 320, 512))

    @property
    def _bands(self) -> int:
        return int(self._get_parameter("num_mels", 40, 128))

    @property
    def _fft_length(self) -> int:
        return int(
            self._get_parameter("fft_length", 1 << (self._frame - 1).bit_length(), self._frame)
        )

    @property
    def _ends(self) -> tuple[float, float]:
        return (
            self._get_parameter("lower_hz", 125.0, 0.0),
            self._get_parameter("upper_hz", 3800.0, self._rate / 2),
        )

    @property
    def _span(self) -> int:
        """The samples that a frame takes from the sound."""
        return self._frame if self.convention == "tensorflow" else self._fft_length

    @property
    def _margin(self) -> int:
        """The samples put before and behind a sound."""
        return (
            0
            if self._get_parameter("padding", "none", "zeros") == "none"
            else self._fft_length // 2
        )

    @property
    def _columns(self) -> int:
        """The values per frame."""
        return self._bands

    @property
    def _time_first(self) -> bool:
        return bool(self._get_parameter("axes", "time_first", "bands_first") == "time_first")

    @cached_property
    def _filters(self) -> Floats:
        lower, upper = self._ends
        return compute_mel_matrix(
            sample_rate=self._rate,
            fft_length=self._fft_length,
            num_mels=self._bands,
            lower_hz=lower,
            upper_hz=upper,
            scale=self._get_parameter("mel_scale", "htk", "slaney"),
            triangles="mel" if self.convention == "tensorflow" else "hz",
            normalised=self._get_parameter("mel_norm", "none", "slaney") == "slaney",
        )

    @cached_property
    def _window(self) -> Floats:
        """The window over the samples of a frame, ``(span,)``."""
        # A periodic window of TensorFlow's with an odd length is a symmetric one.
        odd = self.convention == "tensorflow" and self._frame % 2
        angle = 2 * np.pi * np.arange(self._frame) / (self._frame - odd)
        inner = {
            "hann": 0.5 - 0.5 * np.cos(angle),
            "hamming": 0.54 - 0.46 * np.cos(angle),
            "rectangular": np.ones(self._frame),
        }[self.window]
        before = (self._span - self._frame) // 2
        return np.pad(inner, (before, self._span - self._frame - before))

    # -- shapes -----------------------------------------------------------------------------------

    def shape(self, sample: Shape) -> Shape:
        """Return frames and bands of a sound of this shape: ``(samples,)`` or ``(samples, 1)``."""
        if not (len(sample) == 1 or (len(sample) == 2 and sample[1] == 1)):
            raise ConfigError(
                f"{type(self).__name__} takes sounds of one channel, (samples,) or (samples, 1), "
                f"not {show_shape(sample)}"
            )
        frames = None
        if sample[0] is not None:
            frames = 1 + (sample[0] + 2 * self._margin - self._span) // self._step
            if frames < 1:
                raise ConfigError(
                    f"{type(self).__name__}: a sound of {sample[0]:,} samples is shorter than a "
                    f"frame of {self._span:,}"
                )
        return (frames, self._columns) if self._time_first else (self._columns, frames)

    def format_description(self) -> str:
        """Return the bands, frames and the convention."""
        lower, upper = self._ends
        return (
            f"{self._what} from {lower:g} to {upper:g} Hz, frames of {self._frame} every "
            f"{self._step} at {self._rate} Hz, {self.convention}'s convention"
        )

    @property
    def _what(self) -> str:
        return f"logarithm of {self._bands} mel bands"

    # -- numbers ----------------------------------------------------------------------------------

    def _apply(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.stack(
            [self._transform_sound(sound) for sound in samples.reshape(len(samples), -1)]
        )
        return np.ascontiguousarray(
            found if self._time_first else found.transpose(0, 2, 1), np.float32
        )

    def _transform_sound(self, sound: npt.NDArray[Any]) -> Floats:
        """Return the values of one sound, ``(frames, columns)``."""
        return self._compute_logarithm(
            self._compute_mel_bands(self._normalize(sound.astype(np.float64)))
        )

    def _normalize(self, sound: Floats) -> Floats:
        if self.normalise == "none":
            return sound
        most = float(sound.max() if self.normalise == "maximum" else np.abs(sound).max())
        return sound / max(most, _LEAST_MAXIMUM)

    def _compute_mel_bands(self, sound: Floats) -> Floats:
        margin = self._margin
        if margin:
            if self._get_parameter("padding", "none", "zeros") == "reflect" and margin >= len(
                sound
            ):
                raise ConfigError(
                    f"{type(self).__name__}: padding reflect needs more than {margin:,} samples, "
                    f"not {len(sound):,}"
                )
            mode: Literal["constant", "reflect"] = (
                "reflect" if self.padding == "reflect" else "constant"
            )
            sound = np.pad(sound, margin, mode)
        frames = np.lib.stride_tricks.sliding_window_view(sound, self._span)[:: self._step]
        power = self._get_parameter("power", 1.0, 2.0)
        at_once = max(1, _MOST_NUMBERS // self._fft_length)
        found = np.empty((len(frames), self._bands))
        for start in range(0, len(frames), at_once):
            part = frames[start : start + at_once] * self._window
            magnitudes = np.abs(np.fft.rfft(part, self._fft_length, axis=1))
            found[start : start + at_once] = (
                magnitudes if power == 1 else magnitudes**power
            ) @ self._filters
        return found

    def _compute_logarithm(self, bands: Floats) -> Floats:
        bands = np.maximum(
            bands + self._get_parameter("log_offset", 1e-6, 0.0),
            self._get_parameter("log_floor", 0.0, 1e-10),
        )
        if self._get_parameter("logarithm", "natural", "decibel") == "natural":
            found = np.log(bands)
        else:
            found = (20.0 / self._get_parameter("power", 1.0, 2.0)) * np.log10(bands)
        if self.reference == "maximum":
            found -= found.max()
        reach = self._get_parameter("dynamic_range", 0.0, 80.0)
        return np.maximum(found, found.max() - reach) if reach else found


class MFCC(LogMel):
    """Mel-frequency cepstral coefficients: the shape of a sound's spectrum over time in a few
    numbers.

    They are the first numbers of the discrete cosine transform (DCT-II) of a :class:`LogMel`.  With
    the convention ``tensorflow`` they equal ``tf.signal.mfccs_from_log_mel_spectrograms``, which
    multiplies all by sqrt(2 / bands); with ``librosa`` they equal ``librosa.feature.mfcc``, whose
    transform is orthonormal.

    Examples
    --------
    The features of MLPerf Tiny's keyword spotting:

    >>> features = MFCC(num_coefficients=10, lower_hz=20, upper_hz=4000, normalise="maximum")
    >>> features.apply(np.zeros((1, 16000), np.float32)).shape
    (1, 49, 10)
    """

    num_coefficients: int | None = argument(
        None,
        help="number of coefficients; by default 13, or 20 in Librosa's convention",
        minimum=1,
        maximum=512,
    )
    dct: Literal["scaled", "orthonormal"] | None = argument(
        None,
        help="scaled multiplies all coefficients by sqrt(2 / bands), orthonormal the first by "
        "sqrt(1 / bands); by default as in the convention",
    )
    lifter: float = argument(
        0.0,
        help="weight coefficient n by 1 + lifter / 2 * sin(pi * (n + 1) / lifter); 0 does not",
        minimum=0,
    )

    def validate(self) -> None:
        """Check that there are as many bands as coefficients."""
        super().validate()
        if self._columns > self._bands:
            raise ConfigError(f"{self._bands} mel bands have no {self._columns} coefficients")

    @property
    def _columns(self) -> int:
        return int(self._get_parameter("num_coefficients", 13, 20))

    @property
    def _what(self) -> str:
        return f"MFCC, {self._columns} coefficients of {self._bands} mel bands"

    @cached_property
    def _cosines(self) -> Floats:
        """The transform, ``(num_mels, num_coefficients)``."""
        bands, orders = np.arange(self._bands)[:, None], np.arange(self._columns)
        cosines = np.cos(np.pi / self._bands * (bands + 0.5) * orders) * np.sqrt(2.0 / self._bands)
        if self._get_parameter("dct", "scaled", "orthonormal") == "orthonormal":
            cosines[:, 0] /= np.sqrt(2.0)
        if self.lifter:
            cosines *= 1 + self.lifter / 2 * np.sin(np.pi * (orders + 1) / self.lifter)
        return np.asarray(cosines)

    def _transform_sound(self, sound: npt.NDArray[Any]) -> Floats:
        return super()._transform_sound(sound) @ self._cosines
