"""Spectrograms and cepstral coefficients equal those of TensorFlow and Librosa."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples
from shared_data import shared_data

from nnpipe.core.errors import ConfigError
from nnpipe.testing.input_transform import InputTransformContract
from nnpipe.transforms import MFCC, LogMel

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"
KEYWORDS = {"lower_hz": 20.0, "upper_hz": 4000.0, "normalise": "maximum"}
LIBROSA = {"convention": "librosa", "sample_rate": 8000}


def test_features_of_keywords_are_tensorflow_s():
    root = shared_data("vectors/kws_mfcc_tf.npz")
    with np.load(root) as said:
        sounds = np.stack([_samples(root.parents[1] / str(name)) for name in said["files"]])
        np.testing.assert_allclose(LogMel(**KEYWORDS).apply(sounds), said["log_mel"], atol=2e-4)
        found = MFCC(num_coefficients=10, **KEYWORDS).apply(sounds)
        np.testing.assert_allclose(found, said["mfcc"], atol=2e-4)


def _samples(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        found = np.frombuffer(file.readframes(16000), np.int16).astype(np.float32)
    return np.pad(found, (0, 16000 - len(found)))


@pytest.mark.parametrize(
    ("case", "transform"),
    [
        (0, MFCC(**LIBROSA, fft_length=256, frame_step=128, num_mels=24, num_coefficients=13)),
        (
            1,
            MFCC(
                **LIBROSA,
                fft_length=256,
                frame_length=200,
                frame_step=80,
                num_mels=24,
                num_coefficients=8,
                lifter=22,
                lower_hz=50,
                upper_hz=3500,
            ),
        ),
        (
            2,
            MFCC(
                **LIBROSA,
                fft_length=512,
                frame_length=400,
                frame_step=160,
                num_mels=30,
                num_coefficients=20,
                mel_scale="htk",
                mel_norm="none",
                padding="none",
            ),
        ),
        (
            3,
            LogMel(
                **LIBROSA, frame_length=512, frame_step=200, num_mels=16, padding="reflect", power=1
            ),
        ),
    ],
)
def test_features_are_librosa_s(case, transform):
    """The file was computed by Librosa 0.11.0; the arguments are the same by other names."""
    with np.load(VECTORS / "librosa_features.npz") as said:
        found = transform.apply(said["sound"][None])
        np.testing.assert_allclose(found[0], said[f"case{case}"], atol=2e-4)


def librosa_mel(rate: int, length: int, bands: int) -> np.ndarray:
    """Return Librosa's matrix of mel filters, (bands, length // 2 + 1), by its documented
    formulas.
    """
    bend = 15 + 27 * np.log(np.array([1000.0, rate / 2]) / 1000) / np.log(6.4)
    mels = np.linspace(0, bend[1], bands + 2)
    edges = np.where(mels < 15, 200 * mels / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))
    frequencies = np.fft.rfftfreq(length, 1 / rate)
    slopes = (edges[:, None] - frequencies) / np.diff(edges, append=0)[:, None]
    lower = -slopes[:-2]
    upper = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(lower, upper)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def librosa_power(
    sound: np.ndarray, rate: int = 22050, n_fft: int = 2048, hop: int = 512, bands: int = 128
):
    padded = np.pad(sound.astype(np.float64), n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    return librosa_mel(rate, n_fft, bands) @ (np.abs(np.fft.rfft(frames * window)) ** 2).T


def power_to_db(power: np.ndarray, reference: float) -> np.ndarray:
    found = 10 * np.log10(np.maximum(1e-10, power)) - 10 * np.log10(max(1e-10, reference))
    return np.maximum(found, found.max() - 80)


SOUND = (np.random.default_rng(4).standard_normal(9000) * np.linspace(0, 1, 9000)).astype(
    np.float32
)


@pytest.mark.parametrize(
    ("arguments", "formula"),
    [
        ({}, {}),
        ({"fft_length": 500}, {"n_fft": 500}),
        ({"frame_length": 441}, {"n_fft": 441}),
        (
            {"sample_rate": 8000, "frame_step": 200, "num_mels": 24},
            {"rate": 8000, "hop": 200, "bands": 24},
        ),
    ],
)
def test_defaults_and_lengths_are_librosa_s(arguments, formula):
    power = librosa_power(SOUND, **formula)
    for how, reference in (("one", 1.0), ("maximum", power.max())):
        found = LogMel(convention="librosa", reference=how, **arguments).apply(SOUND[None])[0]
        np.testing.assert_allclose(found, power_to_db(power, reference), atol=2e-4)
    orders = np.arange(20)[:, None]
    bands = len(power)
    cosines = np.cos(np.pi / bands * (np.arange(bands) + 0.5) * orders) * np.sqrt(2 / bands)
    cosines[0] /= np.sqrt(2)
    found = MFCC(convention="librosa", **arguments).apply(SOUND[None])[0]
    np.testing.assert_allclose(found, cosines @ power_to_db(power, 1.0), atol=2e-3)


SETTINGS = st.fixed_dictionaries(
    {
        "frame_length": st.integers(16, 200),
        "frame_step": st.integers(1, 300),
        "num_mels": st.integers(1, 30),
        "convention": st.sampled_from(["tensorflow", "librosa"]),
        "normalise": st.sampled_from(["none", "maximum", "peak"]),
        "window": st.sampled_from(["hann", "hamming", "rectangular"]),
    }
)


@given(SETTINGS, st.integers(256, 1500), st.integers(0, 99))
@settings(max_examples=examples(60))
def test_the_shape_is_the_one_announced_and_silence_is_finite(arguments, length, seed):
    transform = LogMel(**arguments)
    sounds = np.random.default_rng(seed).standard_normal((2, length)).astype(np.float32)
    sounds[1] = 0
    found = transform.apply(sounds)
    assert found.shape == (2, *transform.shape((length,)))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(transform.apply(sounds[:, :, None]), found)
    np.testing.assert_array_equal(transform.apply(sounds[1:])[0], found[1])


@given(st.floats(1e-3, 1e3), st.integers(0, 99))
@settings(max_examples=examples(40))
def test_loudness_does_not_matter_where_clips_are_normalised(factor, seed):
    sound = np.random.default_rng(seed).standard_normal((1, 900))
    for how in ("maximum", "peak"):
        transform = MFCC(normalise=how)
        np.testing.assert_allclose(
            transform.apply(factor * sound), transform.apply(sound), atol=1e-3
        )


@given(st.integers(0, 40), st.integers(0, 99))
@settings(max_examples=examples(40))
def test_frames_are_computed_alone(first, seed):
    transform = LogMel(frame_length=64, frame_step=32)
    sound = np.random.default_rng(seed).standard_normal((1, 64 + 32 * 50)).astype(np.float32)
    whole = transform.apply(sound)
    part = transform.apply(sound[:, 32 * first : 32 * first + 64])
    np.testing.assert_allclose(part[:, 0], whole[:, first], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fft_length": 256}, "fft_length 256 is below frame_length 480"),
        ({"lower_hz": 4000}, "lower_hz must be below upper_hz"),
        ({"sample_rate": 4000}, "at most half of sample_rate, 2000 Hz"),
        ({"log_offset": 0}, "silence has no logarithm"),
        ({"num_coefficients": 41}, "40 mel bands have no 41 coefficients"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        MFCC(**arguments)


def test_sounds_that_are_too_short_or_have_channels_are_refused():
    with pytest.raises(ConfigError, match="of 479 samples is shorter than a frame of 480"):
        LogMel().shape((479,))
    with pytest.raises(ConfigError, match=r"one channel, .* not \(16000, 2\)"):
        LogMel().shape((16000, 2))
    assert LogMel().shape((None,)) == (None, 40)


class TestMFCC(InputTransformContract):
    @pytest.fixture
    def transform(self):
        return MFCC(num_coefficients=10, convention="librosa", upper_hz=4000)

    @pytest.fixture
    def samples(self):
        return np.random.default_rng(0).standard_normal((3, 2000)).astype(np.float32)


class TestLogMel(InputTransformContract):
    @pytest.fixture
    def transform(self):
        return LogMel(frame_length=400, padding="reflect", normalise="peak")

    @pytest.fixture
    def samples(self):
        return np.random.default_rng(0).integers(-(2**15), 2**15, (3, 2000, 1), np.int16)
