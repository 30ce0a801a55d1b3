"""Data sets of anomalies: series, sounds and pictures."""

from __future__ import annotations

import json
import tarfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from shared_data import shared_data
from synthetic_contract import SyntheticContract

from nnpipe.core.dataset import SPLITS, Dataset
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.registry import find
from nnpipe.datasets.anomaly_folder import AnomalyFolderDataset, AnomalySoundsDataset
from nnpipe.datasets.series_anomalies import SeriesAnomaliesDataset, parse_times
from nnpipe.datasets.synthetic_pictures import SyntheticDefectsDataset
from nnpipe.datasets.wav_files import read_wav
from nnpipe.testing.dataset import DatasetContract
from nnpipe.transforms import LogMel

# -- series
# -----------------------------------------------------------------------------------------


def put_points(path: Path, count: int = 30, seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    rows = [
        f"2020-01-01 00:{i:02}:00,{value},{int(20 <= i < 24)}" for i, value in enumerate(values)
    ]
    path.write_text("timestamp,value,label\n" + "\n".join(rows) + "\n", "utf-8")
    return values


class TestSeriesAnomalies(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        for number in range(2):
            put_points(tmp_path / "root" / f"{number}.csv", seed=number)
        return SeriesAnomaliesDataset(dataset_root=tmp_path / "root", window=4, test_fraction=0.5)

    def perfect(self, dataset, truth):
        return {"score": (truth["window"] >= 0).astype(np.float64)}


def test_a_sample_is_the_rows_up_to_a_point(tmp_path):
    values = put_points(tmp_path / "a.csv")
    dataset = SeriesAnomaliesDataset(dataset_root=tmp_path / "a.csv", window=3)
    inputs, truth = dataset.read(np.array([0, 1, 29]))
    np.testing.assert_array_equal(
        inputs["points"][..., 0], values[[[0, 0, 0], [0, 0, 1], [27, 28, 29]]]
    )
    assert np.flatnonzero(dataset.read(np.arange(30))[1]["window"] == 0).tolist() == [
        20,
        21,
        22,
        23,
    ]
    assert truth["series"].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(dataset.split("test"), np.arange(30))
    later = SeriesAnomaliesDataset(
        dataset_root=tmp_path / "a.csv", test_fraction=0.5, validation_fraction=0.2
    )
    assert [len(later.split(name)) for name in SPLITS] == [12, 3, 15]
    assert find("AnomalyDetectionDataset", Dataset) is SeriesAnomaliesDataset


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "step"),
    [
        ("2014-04-01 00:00:00", "2014-04-01T00:05:00Z"),
        ("2014-04-01T02:00:00+02:00", "2014-04-01 00:05"),
        ("01.04.2014 00:00", "1.4.2014 00:05:00"),
        ("2014/4/1 00:00", "2014/04/01 00:05:00.000"),
        ("1396310400", "1396310700"),
        ("1396310400000", "1396310700000"),
    ],
)
def test_times_are_read_in_many_forms(first, step):
    found = parse_times(Path("a.csv"), [first, step])
    assert found.tolist() == [datetime(2014, 4, 1), datetime(2014, 4, 1, 0, 5)]


@pytest.mark.parametrize("text", ["04/01/2014 00:00", "yesterday", "31.02.2014", ""])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(DatasetError, match="is no time such as"):
        parse_times(Path("a.csv"), [text, "2014-04-01"])


def test_labels_may_be_words(tmp_path):
    rows = "".join(f"t{n},{n},{n > 7}\n" for n in range(10))
    (tmp_path / "a.csv").write_text("timestamp,value,label\n" + rows)
    data = SeriesAnomaliesDataset(dataset_root=tmp_path, window=2)
    assert data.read(np.arange(10))[1]["window"].tolist() == [-1] * 8 + [0] * 2


@pytest.mark.slow
def test_nab_s_own_series_are_read(tmp_path):
    nab = shared_data("nab")
    with tarfile.open(nab / "data_rest.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("realTweets")).parent
    windows = {
        name: spans
        for name, spans in json.loads(
            (nab / "labels/combined_windows.json").read_text("utf-8")
        ).items()
        if name.startswith("realTweets/")
    }
    (tmp_path / "windows.json").write_text(json.dumps(windows), "utf-8")
    dataset = SeriesAnomaliesDataset(
        dataset_root=folder, windows=tmp_path / "windows.json", window=2
    )
    dataset.prepare()
    assert dataset.spec.inputs[0].shape == (None, 2, 1)
    inputs, truth = dataset.read(dataset.split("test"))
    assert len(np.unique(truth["series"])) == len(windows)
    assert len(np.unique(100 * truth["series"] + truth["window"])) == sum(
        map(len, windows.values())
    ) + len(windows)
    change = np.abs(np.diff(inputs["points"][..., 0], axis=1))[:, 0]
    assert dataset.task.primary.compute(dataset.evaluate({"score": change}, truth)) > 0


# -- sounds
# -----------------------------------------------------------------------------------------


def put_sounds(root: Path, folders: tuple[str, ...] = ("train", "test")) -> Path:
    import wave

    for number, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(6):
            name = f"{'anomaly' if i % 3 == 2 and folder != 'train' else 'normal'}_id_01_{i}.wav"
            with wave.open(str(root / folder / name), "wb") as file:
                file.setparams((1, 2, 1000, 0, "NONE", ""))
                noise = np.random.default_rng(10 * number + i).uniform(-1, 1, 500)
                file.writeframes((noise * 32767).astype("<i2").tobytes())
    return root


def sounds(root: Path, **arguments: float) -> AnomalySoundsDataset:
    return AnomalySoundsDataset(
        **{
            "dataset_root": root,
            "sample_rate": 1000,
            "seconds": 0.5,
            "section": 96,
            "hop": 32,
            "margin": 32,
        }
        | arguments
    )


class TestAnomalySounds(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        root = put_sounds(tmp_path / "root")
        return AnomalySoundsDataset(
            dataset_root=root,
            sample_rate=1000,
            seconds=0.5,
            section=96,
            hop=32,
            margin=32,
            validation_fraction=0.2,
        )

    def perfect(self, dataset, truth):
        return {"score": truth["anomalous"].astype(np.float32)}


def test_sections_give_the_frames_of_the_whole_sound(tmp_path):
    """Sections with a margin are what Librosa's centred frames look at."""
    dataset = sounds(put_sounds(tmp_path))
    shared = {
        "convention": "librosa",
        "sample_rate": 1000,
        "num_mels": 8,
        "axes": "time_first",
        "dynamic_range": 0,
    }
    frames = LogMel(**shared, frame_length=64, frame_step=32)
    parts = LogMel(**shared, frame_length=64, frame_step=32, padding="none")
    first = dataset.files.paths[0]
    whole = frames.apply(read_wav(first)[1].T)[0]
    found = parts.apply(dataset.read(np.arange(dataset.sections))[0]["sound"])
    assert found.shape[1:] == (2, 8)
    np.testing.assert_allclose(found[:, 0], whole[: len(found)], atol=1e-3)
    np.testing.assert_allclose(found[:, 1], whole[1 : len(found) + 1], atol=1e-3)


def test_clips_stay_together_and_anomalies_are_named(tmp_path):
    dataset = sounds(put_sounds(tmp_path), validation_fraction=0.5)
    clips = {name: set((dataset.split(name) // dataset.sections).tolist()) for name in SPLITS}
    assert [len(clips[name]) for name in SPLITS] == [3, 3, 6]
    truth = dataset.read(dataset.split("test"))[1]
    assert truth["anomalous"].sum() == 2 * dataset.sections
    found = dataset.evaluate(
        {"score": truth["anomalous"] + np.tile([0, 3], len(truth["clip"]))[: len(truth["clip"])]},
        truth,
    )
    assert dataset.task.primary.compute(found) == 1  # the sections' noise is averaged
    with pytest.raises(ConfigError, match="a section"):
        sounds(tmp_path, seconds=0.01)
    with pytest.raises(DatasetError, match="neither by themselves nor in train and test"):
        sounds(tmp_path / "nowhere").prepare()


# -- pictures
# ---------------------------------------------------------------------------------------


def put_things(root: Path) -> Path:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for part, kinds in {
        "train": ["good"],
        "test": ["good", "scratch"],
        "ground_truth": ["scratch"],
    }.items():
        for number, kind in enumerate(kinds):
            (root / part / kind).mkdir(parents=True)
            for i in range(5):
                pixels = np.random.default_rng(100 * number + i + len(part)).integers(
                    0, 256, (9, 8, 3), np.uint8
                )
                image.fromarray(pixels).save(root / part / kind / f"{i:03}.png")
    return root


class TestAnomalyFolder(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        return AnomalyFolderDataset(dataset_root=put_things(tmp_path / "root"), image_size=(6, 7))

    def perfect(self, dataset, truth):
        return {"score": truth["anomalous"].astype(np.float32)}


class TestAnomalyFolderWithMasks(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        return AnomalyFolderDataset(
            dataset_root=put_things(tmp_path / "root"), image_size=(6, 7), judged="pixels"
        )


def test_masks_of_defects_are_brought_to_the_images_size(tmp_path):
    root = put_things(tmp_path)
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    mask = np.zeros((9, 8), np.uint8)
    mask[3:6, 2:4] = 255
    folder = root / "ground_truth/scratch"
    for number in range(5):
        (folder / f"{number:03}.png").unlink()
        image.fromarray(mask).save(folder / f"{number:03}_mask.bmp")
    plain = AnomalyFolderDataset(dataset_root=root, image_size=(3, 4))
    dataset = AnomalyFolderDataset(dataset_root=root, image_size=(3, 4), judged="pixels")
    tested = dataset.split("test")
    images, truth = dataset.read(tested)
    np.testing.assert_array_equal(images["image"], plain.read(tested)[0]["image"])
    assert truth["mask"][:5].max() == 0
    wanted = np.asarray(image.fromarray(mask).resize((4, 3), image.Resampling.NEAREST)) > 0
    np.testing.assert_array_equal(truth["mask"][5:], [wanted] * 5)
    assert wanted.sum() == 1
    image.fromarray(mask[:5]).save(folder / "000_mask.bmp")
    with pytest.raises(
        DatasetError, match=r"000\.png has 8 x 9 pixels, and its annotations are for 8 x 5"
    ):
        dataset.read(tested)
    (folder / "000_mask.bmp").unlink()
    with pytest.raises(DatasetError, match=r"holds no 000_mask\.png, the mask of"):
        AnomalyFolderDataset(dataset_root=root, judged="pixels").prepare()


class TestSyntheticDefects(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticDefectsDataset(num_samples=60, image_size=(20, 26), data_seed=1)


def test_made_up_defects_are_in_test_pictures_only():
    dataset = SyntheticDefectsDataset(num_samples=90, image_size=(24, 20), validation_fraction=0.2)
    assert [len(dataset.split(name)) for name in SPLITS] == [48, 12, 30]
    assert not dataset.read(dataset.split("train"))[1]["mask"].any()
    truth = dataset.read(dataset.split("test"))[1]
    assert truth["anomalous"].mean() == 0.5
    np.testing.assert_array_equal(truth["mask"].any(axis=(1, 2)), truth["anomalous"])


def test_defects_are_in_the_test_split(tmp_path):
    dataset = AnomalyFolderDataset(
        dataset_root=put_things(tmp_path), image_size=(6, 7), validation_fraction=0.2
    )
    assert [len(dataset.split(name)) for name in SPLITS] == [4, 1, 10]
    assert dataset.read(dataset.split("test"))[1]["anomalous"].tolist() == [0] * 5 + [1] * 5
    assert not dataset.read(dataset.split("train"))[1]["anomalous"].any()
