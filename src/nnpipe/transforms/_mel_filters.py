"""Mel filters, as TensorFlow and as Librosa define them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

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


def mel_matrix(
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
        Samples per second, samples per frame, number of bands, and the ends of the lowest and highest band in Hz.
    scale
        The mel scale on which the centres of the bands are equally far apart.
    triangles
        The scale on which the sides of a band's triangle are straight: ``"mel"`` as in
        ``tf.signal.linear_to_mel_weight_matrix``, where frequency 0 belongs to no band, or ``"hz"`` as in
        ``librosa.filters.mel`` and ``torchaudio``.
    normalised
        Whether each band is divided by half its width in Hz (Slaney), so that all have the same area.
    """
    count = fft_length // 2 + 1
    # With an odd length, no frequency is half the sample rate; TensorFlow takes the last one for it.
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
