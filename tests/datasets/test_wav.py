"""Sounds: wav files of all kinds, folders of classes, and Speech Commands."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import needs
from property_examples import examples
from shared_data import shared_data

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.datasets._split import TEST
from nnpipe.datasets.speech_commands import SpeechCommandsDataset, compute_speaker_split
from nnpipe.datasets.wav_files import WavFolderDataset, read_clip, read_wav
from nnpipe.modelwrappers.files.tflite import TFLiteModel
from nnpipe.testing.dataset import DatasetContract
from nnpipe.testing.session import assert_one_line

ENCODINGS = {8: "<u1", 16: "<i2", 24: None, 32: "<i4"}


def wav_bytes(
    samples: np.ndarray,
    rate: int = 16000,
    bits: int = 16,
    kind: int = 1,
    length: int | None = None,
    before: bytes = b"",
) -> bytes:
    """Return a wav file of samples from -1 to 1, ``(frames,)`` or ``(frames, channels)``."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    if kind == 3:
        content = samples.astype(f"<f{bits // 8}").tobytes()
    else:
        whole = np.rint(samples * (2.0 ** (bits - 1) - 1)).astype(np.int64) + (
            128 if bits == 8 else 0
        )
        wide = whole.astype("<i8").reshape(-1, 1).view(np.uint8)
        content = wide[:, : bits // 8].tobytes()
    layout = struct.pack(
        "<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits
    )
    said = len(content) if length is None else length
    body = (
        b"WAVE"
        + before
        + b"fmt "
        + struct.pack("<I", 16)
        + layout
        + b"data"
        + struct.pack("<I", said)
        + content
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def put(path: Path, seed: int = 0, frames: int = 400, rate: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wav_bytes(np.random.default_rng(seed).uniform(-0.9, 0.9, frames), rate))
    return path


# -- files
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "kind"), [(8, 1), (16, 1), (24, 1), (32, 1), (32, 3), (64, 3)])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_of_every_kind_are_read(tmp_path, bits, kind, channels):
    wanted = np.random.default_rng(bits).uniform(-0.99, 0.99, (50, channels))
    note = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # a part of odd length is followed by a byte
    (tmp_path / "a.wav").write_bytes(wav_bytes(wanted, 8000, bits, kind, before=note))
    header, found = read_wav(tmp_path / "a.wav")
    assert (header.sample_rate, header.channels, header.frames) == (8000, channels, 50)
    step = 2.0 ** -(min(bits, 24) - 1)
    np.testing.assert_allclose(found, wanted, atol=2 * step)
    np.testing.assert_array_equal(read_wav(tmp_path / "a.wav", 10, 5)[1], found[10:15])
    assert read_wav(tmp_path / "a.wav", 60)[1].shape == (0, channels)


def damaged(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "bad.wav"
    path.write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        read_wav(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_damaged_files_are_refused_in_one_line(tmp_path):
    samples = np.zeros(20)
    assert "no wav file" in damaged(tmp_path, b"")
    assert "no wav file" in damaged(tmp_path, b"RIFX" + wav_bytes(samples)[4:])
    assert "'data' has 4,294,967,295 bytes, and 40 are there" in damaged(
        tmp_path, wav_bytes(samples, length=(1 << 32) - 1)
    )
    assert "ends within a frame" in damaged(tmp_path, wav_bytes(samples, length=39))
    assert "kind 6 with 8 bits" in damaged(tmp_path, wav_bytes(samples, bits=8, kind=6))
    assert "kind 1 with 12 bits" in damaged(
        tmp_path, wav_bytes(samples).replace(struct.pack("<HH", 2, 16), struct.pack("<HH", 2, 12))
    )
    assert "claims 1 channels, 0 samples" in damaged(tmp_path, wav_bytes(samples, rate=0))
    assert "'data' is missing" in damaged(tmp_path, wav_bytes(samples)[:36])
    assert "no numbers" in damaged(tmp_path, wav_bytes(np.full(3, np.nan), bits=32, kind=3))
    assert "no numbers" in damaged(tmp_path, wav_bytes(np.full(3, 1e300), bits=64, kind=3))


def test_no_more_is_read_than_there_is_memory_for(tmp_path):
    """A sparse file, of which 640 MB would be asked for."""
    path = tmp_path / "sparse.wav"
    header = wav_bytes(np.zeros((1, 200)), 1_600_000, length=2_000_000_000)[:44]
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(44 + 2_000_000_000)
    with pytest.raises(DatasetError, match="takes more than 512 MiB; give fewer --seconds"):
        read_clip(path, 16000, 16000)


@given(st.integers(0, 83), st.binary(min_size=1, max_size=6))
@settings(max_examples=examples(150))
def test_no_bytes_lead_to_anything_but_samples_or_one_line(tmp_path_factory, place, change):
    content = bytearray(wav_bytes(np.linspace(-1, 1, 20)))
    content[place : place + len(change)] = change
    path = tmp_path_factory.getbasetemp() / "changed.wav"
    path.write_bytes(content)
    try:
        header, samples = read_wav(path)
    except DatasetError as error:
        assert_one_line(error)
    else:
        assert samples.shape == (header.frames, header.channels)


@given(
    st.sampled_from([(1000, 1000), (2000, 1000), (1000, 1500), (441, 160)]),
    st.integers(0, 500),
    st.integers(1, 300),
)
@settings(max_examples=examples(40))
def test_a_part_equals_that_of_the_whole(tmp_path_factory, rates, start, length):
    needs("scipy")
    path = put(tmp_path_factory.getbasetemp() / f"{rates[0]}.wav", rate=rates[0], frames=900)
    whole = read_clip(path, rates[1], 3000)
    np.testing.assert_allclose(
        read_clip(path, rates[1], length, start), whole[start : start + length], atol=1e-6
    )


def test_a_tone_is_the_same_tone_at_another_rate(tmp_path):
    needs("scipy")
    for rate in (44100, 8000):
        time = np.arange(rate) / rate
        path = tmp_path / f"{rate}.wav"
        path.write_bytes(
            wav_bytes(np.stack([np.sin(2 * np.pi * 440 * time), np.zeros(rate)], 1), rate)
        )
        found = read_clip(path, 16000, 16000)
        wanted = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
        np.testing.assert_allclose(found[200:-200], wanted[200:-200], atol=2e-3)


# -- folders
# ----------------------------------------------------------------------------------------


class TestWavFolder(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        for number, name in enumerate(("cat", "dog", "owl")):
            for i in range(8):
                put(tmp_path / "root" / name / f"{i}.wav", 100 * number + i, frames=300 + 40 * i)
        return WavFolderDataset(dataset_root=tmp_path / "root", sample_rate=1000, seconds=0.4)


def test_clips_are_cut_and_padded_at_the_end(tmp_path):
    for frames in (300, 500):
        put(tmp_path / "a" / f"{frames}.wav", frames=frames)
        put(tmp_path / "b" / f"{frames}.wav", frames=frames)
    dataset = WavFolderDataset(
        dataset_root=tmp_path, sample_rate=1000, seconds=0.4, class_list=None
    )
    dataset.prepare()
    sounds = dataset.read(np.arange(4))[0]["sound"]
    assert sounds.shape == (4, 400)
    assert not sounds[0, 300:].any()
    np.testing.assert_array_equal(sounds[1], read_wav(tmp_path / "a" / "500.wav")[1][:400, 0])
    with pytest.raises(ConfigError, match="clips are from 1 to"):
        dataclasses.replace(dataset, seconds=3600, sample_rate=1_000_000)


def test_files_are_not_opened_until_they_are_read(tmp_path):
    put(tmp_path / "a" / "x.wav")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "y.wav").write_bytes(b"nothing")
    dataset = WavFolderDataset(dataset_root=tmp_path)
    dataset.prepare()
    assert len(dataset) == 2
    with pytest.raises(DatasetError, match=r"y\.wav is no wav file"):
        dataset.read(np.array([1]))


# -- Speech Commands
# --------------------------------------------------------------------------------


def put_words(root: Path) -> Path:
    for number, word in enumerate(("yes", "no", "cat", "dog")):
        for i in range(40):
            put(root / word / f"{number * 40 + i:08x}_nohash_{i % 3}.wav", 40 * number + i)
    put(root / "_background_noise_" / "hum.wav", 7, frames=3000)
    return root


def commands(root: Path, **arguments: object) -> SpeechCommandsDataset:
    return SpeechCommandsDataset(
        **{"dataset_root": root, "words": ("yes", "no"), "sample_rate": 1000, "seconds": 0.4}
        | arguments
    )


class TestSpeechCommands(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        root = put_words(tmp_path / "root")
        return SpeechCommandsDataset(
            dataset_root=root, words=("yes", "no"), sample_rate=1000, seconds=0.4
        )


def test_silence_and_other_words_are_a_tenth_of_each_split(tmp_path):
    dataset = commands(put_words(tmp_path), silence_fraction=0.1, unknown_fraction=0.2)
    dataset.prepare()
    assert dataset.spec.class_names == ("yes", "no", "_silence_", "_unknown_")
    for name in ("train", "validation", "test"):
        counts = np.bincount(dataset.read(dataset.split(name))[1]["label"], minlength=4)
        words = counts[:2].sum()
        assert counts[2] == np.ceil(0.1 * words)
        assert 0 < counts[3] <= np.ceil(0.2 * words)
    first = commands(tmp_path, extra_classes="first")
    assert first.spec.class_names == ("_silence_", "_unknown_", "yes", "no")
    assert commands(tmp_path, words=("all",), silence_fraction=0).spec.class_names == (
        "cat",
        "dog",
        "no",
        "yes",
    )


def test_the_lists_define_the_split(tmp_path):
    put_words(tmp_path)
    chosen = {"validation": "yes/00000000_nohash_0.wav", "testing": "no/00000028_nohash_0.wav"}
    for name, line in chosen.items():
        (tmp_path / f"{name}_list.txt").write_text(line + "\n", "utf-8")
    dataset = commands(tmp_path, silence_fraction=0, unknown_fraction=0)
    for split, name in (("validation", "validation"), ("test", "testing")):
        paths = [dataset.files.paths[i] for i in dataset.split(split)]
        assert [path.relative_to(tmp_path).as_posix() for path in paths] == [chosen[name]]
    assert len(dataset.split("train")) == 78


def test_speakers_are_split_as_published():
    """The published test set holds test clips alone."""
    words = list(shared_data("speech_commands").glob("[a-z]*/*.wav"))
    assert len(words) == 150
    assert {compute_speaker_split(path.name, 0.1, 0.1) for path in words} == {TEST}


def test_only_training_samples_are_changed(tmp_path):
    dataset = commands(put_words(tmp_path), noise_volume=1.0, noise_fraction=1.0)
    dataset.prepare()
    words = np.flatnonzero(dataset.files.labels < 2)
    for split, changed in (("test", False), ("train", True)):
        for index in np.intersect1d(dataset.split(split), words)[:5]:
            plain = read_clip(dataset.files.paths[index], 1000, 400)
            found = dataset.read(np.array([index]))[0]["sound"][0]
            assert np.array_equal(plain, found) is not changed
            assert np.abs(found).max() <= 1


def test_the_published_test_set_is_all_test(tmp_path):
    for word in ("yes", "no", "_silence_", "_unknown_"):
        put(tmp_path / word / "1.wav.wav")
    dataset = commands(tmp_path)
    dataset.prepare()
    np.testing.assert_array_equal(dataset.split("test"), np.arange(4))
    np.testing.assert_array_equal(dataset.read(np.arange(4))[1]["label"], np.arange(4))


def test_a_missing_word_is_named(tmp_path):
    put_words(tmp_path)
    with pytest.raises(DatasetError, match=r"yess holds no wav files; .* cat, dog, no, yes"):
        commands(tmp_path, words=("yess",)).prepare()


def test_keywords_are_told_as_published():
    """MLPerf Tiny's int8 model is right on 166 of these 180 clips with TensorFlow's own
    features.
    """
    needs("ai_edge_litert")
    wrapper = TFLiteModel(
        model_path=shared_data("models/mlperf_tiny_kws/kws_ref_model.tflite"),
        transform="MFCC",
        transform_options=(
            "num_coefficients=10",
            "lower_hz=20",
            "upper_hz=4000",
            "normalise=maximum",
        ),
    )
    dataset = SpeechCommandsDataset(dataset_root=shared_data("speech_commands"))
    dataset.prepare()
    wrapper = wrapper.for_dataset(dataset.spec)
    parts = []
    with wrapper.open(wrapper.model_path) as live, live.session() as session:
        for samples, truth in dataset.batches(dataset.split("test"), 1):
            predictions = wrapper.postprocess(session.infer(wrapper.preprocess(samples)))
            parts.append(dataset.evaluate(predictions, truth).arrays["rank"])
    assert abs(np.count_nonzero(np.concatenate(parts) == 0) - 166) <= 1


def test_the_transform_travels_with_the_model(tmp_path):
    needs("ai_edge_litert")
    wrapper = TFLiteModel(
        model_path=shared_data("models/mlperf_tiny_kws/kws_ref_model.tflite"),
        transform="MFCC",
        transform_options=(
            "num_coefficients=10",
            "lower_hz=20",
            "upper_hz=4000",
            "normalise=maximum",
        ),
    )
    with wrapper.open(wrapper.model_path) as live:
        live.save(tmp_path / "copy.tflite")
    copy = TFLiteModel(model_path=tmp_path / "copy.tflite")
    sounds = {"sound": np.random.default_rng(0).uniform(-1, 1, (2, 16000)).astype(np.float32)}
    (wanted,), (found,) = wrapper.preprocess(sounds).values(), copy.preprocess(sounds).values()
    np.testing.assert_array_equal(found, wanted)
    assert copy.preparation().source == "description"
    assert "MFCC, 10 coefficients" in copy.meaning.inputs[0].format_description()
    other = TFLiteModel(
        model_path=tmp_path / "copy.tflite", transform="LogMel", transform_options=("num_mels=10",)
    )
    assert other.preparation().overridden.keys() >= {"transform"}
