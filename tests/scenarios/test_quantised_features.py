"""Features that are quantised already are doubted when they are quantised once more, and right
when that is said.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from nnpipe.__main__ import main
from nnpipe.measuring.quality_warnings import check_quality
from nnpipe.measuring.run import Run

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

SCALE, ZERO = 0.5847029, 83
MODULE = """
import numpy as np
from pathlib import Path
from nnpipe.datasets.in_memory import InMemoryDataset, Samples

class KeywordFeatures(InMemoryDataset):
    '''Spoken words as int8 features, as the boards that run the model get them.'''

    def load(self):
        held = np.load(Path(__file__).with_name("features.npz"))
        count, names = len(held["label"]), tuple(map(str, held["names"]))
        inputs, targets = {"features": held["features"]}, {"label": held["label"]}
        return Samples(inputs, targets, names, official=np.full(count, 2))
"""


def features(path: Path, mel: np.ndarray) -> np.ndarray:
    """Mel cepstrum of a clip of a second: 49 frames of 10 numbers."""
    with wave.open(str(path)) as clip:
        samples = np.frombuffer(clip.readframes(clip.getnframes()), "<i2").astype(np.float64)
    samples = np.pad(samples, (0, 16000 - len(samples)))[:16000]
    samples /= max(float(samples.max()), 1e-9)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(480) / 480)
    frames = np.stack([samples[320 * n : 320 * n + 480] * window for n in range(49)])
    logs = np.log(np.abs(np.fft.rfft(frames, 512)) @ mel + 1e-6)
    turns = np.cos(np.pi / 40 * np.outer(np.arange(40) + 0.5, np.arange(10)))
    return np.asarray(logs @ turns * np.sqrt(2 / 40))


@pytest.fixture
def dataset(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set as a user writes it: 180 spoken words, in int8."""
    published = np.load(shared_data / "vectors" / "kws_mfcc_tf.npz")
    names = [str(name) for name in published["labels"]]
    clips = [
        (path, n)
        for n, name in enumerate(names)
        for path in sorted((shared_data / "speech_commands" / name).glob("*.wav"))
    ]
    found = np.stack(
        [features(path, published["mel_matrix"].astype(np.float64)) for path, _ in clips]
    )
    stored = np.clip(np.rint(found / SCALE + ZERO), -128, 127).astype(np.int8)[..., None]
    np.savez(
        tmp_path / "features.npz",
        features=stored,
        label=np.array([n for _, n in clips]),
        names=names,
    )
    (tmp_path / "keyword_features.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return "keyword_features.KeywordFeatures"


def argv(dataset: str, shared_data: Path, out: Path, *options: str) -> list[str]:
    model = shared_data / "models" / "mlperf_tiny_kws" / "kws_ref_model.tflite"
    said = ["inference_performance", "TFLiteModel", dataset, str(out), "--model-path", str(model)]
    return [*said, "--measure-seconds", "0.01", *options]


def measured(out: Path) -> tuple[int, list[str]]:
    """Return how many predictions are right, and what is doubted of them."""
    run = Run.read(out)
    assert run.evaluation is not None
    right = int(np.sum(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]))
    return right, [doubt.kind for doubt in check_quality(run)]


@pytest.mark.slow
def test_int8_features_are_not_quantised_twice_without_a_word(
    dataset: str, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice, once = tmp_path / "twice.json", tmp_path / "once.json"
    assert main(argv(dataset, shared_data, twice)) == 2
    told = capsys.readouterr().err
    assert (
        "takes quantised int8, and the data set gives int8: say with --quantised-input already"
        in told
    )
    assert told.count("\n") == 1
    assert main(argv(dataset, shared_data, twice, "--quantised-input", "auto")) == 0
    right, doubted = measured(twice)
    assert right < 90
    assert "quantised twice" in doubted
    shown = capsys.readouterr()
    assert "--quantised-input already says so" in shown.out + shown.err
    assert main(argv(dataset, shared_data, once, "--quantised-input", "already")) == 0
    assert measured(once) == (166, [])
