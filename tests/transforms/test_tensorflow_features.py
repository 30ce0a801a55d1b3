"""Features equal those that TensorFlow computes, for all clips at hand and any parameters."""

from __future__ import annotations

import numpy as np
import pytest
from installed import ImportedWhenUsed
from shared_data import shared_data

from nnpipe.datasets.wav_files import read_clip
from nnpipe.transforms import MFCC, LogMel

tf = ImportedWhenUsed("tensorflow")
pytestmark = pytest.mark.slow


def log_mel(sounds: np.ndarray, t: LogMel) -> np.ndarray:
    spectrum = tf.abs(tf.signal.stft(sounds, t.frame_length, t.frame_step, t.fft_length))
    matrix = tf.signal.linear_to_mel_weight_matrix(
        t.num_mels, spectrum.shape[-1], t.sample_rate, t.lower_hz, t.upper_hz
    )
    return tf.math.log(spectrum @ matrix + 1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_random_parameters(seed):
    random = np.random.default_rng(seed)
    length = int(random.integers(40, 700))
    transform = MFCC(
        sample_rate=int(random.integers(8000, 48000)),
        frame_length=length,
        frame_step=int(random.integers(10, 600)),
        fft_length=None if seed % 2 else int(length + random.integers(0, 200)),
        num_mels=int(random.integers(13, 40)),
        lower_hz=float(random.uniform(0, 200)),
        upper_hz=float(random.uniform(2000, 4000)),
    )
    sounds = random.standard_normal((3, 3000)).astype(np.float32)
    wanted = log_mel(sounds, transform)
    plain = {
        name: value for name, value in transform.to_json().items() if name in LogMel().to_json()
    }
    np.testing.assert_allclose(LogMel(**plain).apply(sounds), wanted, atol=1e-3)
    cepstrum = tf.signal.mfccs_from_log_mel_spectrograms(wanted)[..., :13]
    np.testing.assert_allclose(transform.apply(sounds), cepstrum, atol=2e-3)


def test_all_clips_of_the_small_test_set():
    transform = MFCC(
        num_coefficients=10,
        sample_rate=16000,
        frame_length=480,
        frame_step=320,
        fft_length=512,
        num_mels=40,
        lower_hz=20,
        upper_hz=4000,
        normalise="maximum",
    )
    most = 0.0
    for path in sorted(shared_data("speech_commands").rglob("*.wav")):
        sound = read_clip(path, 16000, 16000)
        scaled = (sound * 32768 / max((sound * 32768).max(), 1e-9)).astype(np.float32)[None]
        wanted = tf.signal.mfccs_from_log_mel_spectrograms(log_mel(scaled, transform))[..., :10]
        most = max(most, float(np.abs(transform.apply(sound[None]) - wanted).max()))
    assert most < 2e-4
