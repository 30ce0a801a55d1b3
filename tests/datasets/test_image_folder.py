"""Directories of images by class."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import _split
from nnpipe.datasets._split import compute_file_groups
from nnpipe.datasets.image_files import ImageFolderDataset, decode_image
from nnpipe.testing.dataset import DatasetContract

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def put_image(
    path: Path, seed: int = 0, size: tuple[int, int] = (20, 14), mode: str = "RGB"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def put_classes(root: Path, counts: dict[str, int], seed: int = 0) -> Path:
    for number, (name, count) in enumerate(counts.items()):
        for i in range(count):
            put_image(
                root / name / f"{i:03}.png", seed * 10_000 + number * 1000 + i, size=(8 + i % 5, 9)
            )
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return put_classes(tmp_path / "root", {"cat": 10, "ant": 20, "bee": 15})


class TestImageFolderDataset(DatasetContract):
    @pytest.fixture
    def dataset(self, root):
        return ImageFolderDataset(
            dataset_root=root, image_size=(6, 7), color="grayscale", split_seed=2
        )


class TestImageFolderDatasetWithItsOwnSplit(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        for number, part in enumerate(("train", "test", "val")):
            put_classes(tmp_path / "own" / part, {"cat": 4, "ant": 5}, seed=number)
        return ImageFolderDataset(dataset_root=tmp_path / "own", image_size=(6, 7))


def files_of(dataset: ImageFolderDataset, split: str) -> set[str]:
    return {
        dataset.files.paths[i].relative_to(dataset.dataset_root).as_posix()
        for i in dataset.split(split)
    }


def test_classes_are_folders_in_alphabetical_order(root):
    dataset = ImageFolderDataset(dataset_root=root)
    dataset.prepare()
    assert dataset.spec.class_names == ("ant", "bee", "cat")
    assert list(np.bincount(dataset.files.labels)) == [20, 15, 10]
    for path, label in zip(dataset.files.paths, dataset.files.labels, strict=True):
        assert path.parent.name == dataset.spec.class_names[label]


def test_a_split_keeps_the_shares_of_classes(root):
    dataset = ImageFolderDataset(dataset_root=root, test_fraction=0.2, validation_fraction=0.25)
    assert list(np.bincount(dataset.files.labels[dataset.split("test")])) == [4, 3, 2]
    assert list(np.bincount(dataset.files.labels[dataset.split("validation")])) == [4, 3, 2]


def test_all_samples_can_be_for_testing(root):
    dataset = ImageFolderDataset(dataset_root=root, test_fraction=1.0)
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [0, 0, 45]
    with pytest.raises(
        DatasetError,
        match="its split 'train' is empty, and calibration takes its samples from there",
    ):
        next(dataset.calibration(4))


@pytest.mark.parametrize("empty", [(), ("train",), ("train", "val")])
def test_a_folder_with_a_test_split_alone_is_one(tmp_path, empty):
    put_classes(tmp_path / "test", {"cat": 4, "ant": 5})
    for name in empty:
        (tmp_path / name).mkdir()
    dataset = ImageFolderDataset(dataset_root=tmp_path)
    dataset.prepare()
    assert dataset.spec.class_names == ("ant", "cat")
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [0, 0, 9]


def test_classes_may_be_called_like_splits_where_a_list_says_so(tmp_path):
    put_classes(tmp_path / "root", {"test": 4, "val": 5})
    (tmp_path / "classes.txt").write_text("test\nval\n")
    with pytest.raises(
        DatasetError, match="images directly in val and test, which are called like splits"
    ):
        ImageFolderDataset(dataset_root=tmp_path / "root").prepare()
    dataset = ImageFolderDataset(
        dataset_root=tmp_path / "root", class_list=tmp_path / "classes.txt"
    )
    assert dataset.files.class_names == ("test", "val")
    assert dataset.files.official is None


def test_one_class_may_be_called_like_a_split(tmp_path):
    put_classes(tmp_path, {"car": 4, "train": 5})
    dataset = ImageFolderDataset(dataset_root=tmp_path)
    assert dataset.files.class_names == ("car", "train")


SPLIT_FOLDERS = [
    ("Training", "", "Testing"),
    ("train", "valid", "test"),
    ("Train", "Val", "Test"),
    ("training_set", "", "test_set"),
    ("TRAIN", "", "TEST"),
    ("train_images", "val_images", "test_images"),
    ("seg_train", "", "seg_test"),
    ("trainset", "validset", "testset"),
    ("TrainData", "DevData", "TestData"),
    ("images-train", "", "images-test"),
]


@pytest.mark.parametrize("names", SPLIT_FOLDERS, ids="-".join)
@pytest.mark.parametrize("inner", ["", "again"])
def test_folders_of_splits_are_no_classes(tmp_path, names, inner):
    root = tmp_path / "archive"
    for number, (name, count) in enumerate(zip(names, (6, 3, 4), strict=True)):
        if name:
            below = root / "data" / name / (name if inner else "")
            put_classes(below, {"cat": count, "ant": count}, seed=number)
    (root / "__MACOSX").mkdir()
    dataset = ImageFolderDataset(
        dataset_root=root if inner else root / "data", validation_fraction=0
    )
    dataset.prepare()
    assert dataset.spec.class_names == ("ant", "cat")
    sizes = [len(dataset.split(name)) for name in ("train", "validation", "test")]
    assert sizes == [12, 6 if names[1] else 0, 8]
    told = "\n".join(dataset.reading_notes)
    assert f"{names[0]} is train, 12 images" in told
    assert f"{names[2]} is test, 8 images" in told
    assert "2 classes: ant, cat" in told


def put_layout(root: Path, *folders: str) -> Path:
    for number, folder in enumerate(folders):
        put_image(root / folder / "0.png", seed=number)
    return root


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("train/cat", "train/ant", "test"), "test holds images and no folders of classes"),
        (
            ("train/cat", "val/cat", "validation/cat"),
            "holds val and validation, which are one split",
        ),
        (("train/Cat", "test/cat"), "the class cat is called Cat in another split"),
        (("train/cat", "seg_pred/cat", "test/cat"), "folders train, test and seg_pred"),
        (("brain/yes", "brain/no"), "holds the folder brain alone, which holds no, yes"),
    ],
)
def test_folders_of_which_nothing_tells_what_they_are_are_refused(tmp_path, folders, said):
    with pytest.raises(DatasetError, match=said) as caught:
        ImageFolderDataset(dataset_root=put_layout(tmp_path / "root", *folders)).prepare()
    assert "\n" not in str(caught.value)


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    path = put_image(tmp_path / "a" / "x.png", size=(9, 8))
    data = path.read_bytes()
    header = data[12:16] + struct.pack(">II", 13_000, 13_000) + data[24:29]
    path.write_bytes(data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:])
    with pytest.raises(
        DatasetError, match=r"claims 13,000 x 13,000 pixels; for 7 x 6 pixels at most 67,108,864"
    ):
        decode_image(path, (6, 7), 3)


def test_equal_lengths_are_read_once_and_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    paths = [folder / f"{number}.bin" for number in range(6)]
    for path, content in zip(paths, (b"aa", b"ab", b"aa", b"c", b"ddd", b"ddd"), strict=True):
        path.write_bytes(content)
        os.utime(path, (1, 1))
    read = []
    monkeypatch.setattr(_split, "_SETTLED", -1)  # or these are too young to be trusted
    digest = _split._compute_digest
    monkeypatch.setattr(
        _split, "_compute_digest", lambda path: read.append(path.name) or digest(path)
    )
    assert compute_file_groups(paths).tolist() == [0, 1, 0, 2, 3, 3]
    assert read == ["0.bin", "1.bin", "2.bin", "4.bin", "5.bin"]
    assert compute_file_groups(paths).tolist() == [0, 1, 0, 2, 3, 3]
    assert len(read) == 5, "nothing is read again"
    paths[1].write_bytes(b"aa")
    os.utime(paths[1], (1, 1))  # the same length and time; only the inode's own time tells
    assert compute_file_groups(paths).tolist() == [0, 0, 0, 1, 2, 2]
    assert read[5:] == ["1.bin"]
    (store,) = (tmp_path / "cache" / "nnpipe" / "contents").iterdir()
    for damage in (b"{", b"[]", b'{"schema": 1, "files": {"1.bin": 3}}', b'{"schema": 2}'):
        store.write_bytes(damage)
        assert compute_file_groups(paths).tolist() == [0, 0, 0, 1, 2, 2]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert compute_file_groups(paths).tolist() == [0, 0, 0, 1, 2, 2]


def test_copies_of_an_image_do_not_leak(tmp_path):
    for i in range(30):
        put_image(tmp_path / "a" / f"{i:02}.png", seed=i // 2)
        put_image(tmp_path / "b" / f"{i:02}.png", seed=100 + i)
    # One picture under two labels.
    put_image(tmp_path / "b" / "00.png", seed=0)
    dataset = ImageFolderDataset(dataset_root=tmp_path, test_fraction=0.4, validation_fraction=0.3)
    homes = [
        {dataset.files.paths[i].read_bytes() for i in dataset.split(s)}
        for s in ("train", "validation", "test")
    ]
    assert all(homes)
    assert sum(map(len, homes)) == len(set.union(*homes))


def test_folders_of_splits_decide(tmp_path):
    for part, count in (("train", 8), ("validation", 3), ("test", 2)):
        put_classes(tmp_path / part, {"cat": count, "ant": count})
    dataset = ImageFolderDataset(dataset_root=tmp_path, test_fraction=0.5, validation_fraction=0.5)
    for part, count in (("train", 8), ("validation", 3), ("test", 2)):
        files = files_of(dataset, part)
        assert len(files) == 2 * count
        assert all(name.startswith(f"{part}/") for name in files)


def test_what_the_folders_lack_is_drawn_from_train(tmp_path):
    put_classes(tmp_path / "train", {"cat": 10, "ant": 10})
    put_classes(tmp_path / "test", {"cat": 4, "ant": 4})
    dataset = ImageFolderDataset(dataset_root=tmp_path, validation_fraction=0.2)
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [16, 4, 8]
    assert all(name.startswith("test/") for name in files_of(dataset, "test"))


@pytest.mark.parametrize(
    "name", ["x.JPG", "x.jpeg", "deep/er/x.png", "x.gif", "x.bmp", "x.webp", "x.tiff", "x.ppm"]
)
def test_many_formats_and_deeper_folders_are_found(root, name):
    put_image(root / "ant" / name)
    assert len(ImageFolderDataset(dataset_root=root)) == 46


def test_hidden_and_other_files_are_passed_over(root):
    (root / "ant" / "notes.txt").write_text("no image")
    (root / "readme.md").write_text("no image")
    for name in (".DS_Store", "._000.png", ".thumbnails/000.png"):
        put_image(root / "ant" / "x.png").rename(_made(root / "ant" / name))
    put_image(root / ".cache" / "x.png")
    dataset = ImageFolderDataset(dataset_root=root)
    assert len(dataset) == 45
    assert dataset.files.class_names == ("ant", "bee", "cat")


def _made(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    return path


# -- decoding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "CMYK", "I;16", "LA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_pixels_becomes_bytes(tmp_path, mode, channels):
    picture = Image.fromarray(np.full((9, 11, 3), 200, np.uint8))
    picture = picture.convert("I").convert(mode) if mode == "I;16" else picture.convert(mode)
    path = tmp_path / ("x.tiff" if mode == "CMYK" else "x.png")
    picture.save(path)
    found = decode_image(path, (4, 5), channels)
    assert found.shape == (4, 5, channels)
    assert found.dtype == np.uint8


def test_a_palette_with_transparency_is_read(tmp_path):
    picture = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).convert("P")
    picture.save(tmp_path / "x.png", transparency=bytes(range(256)))
    assert decode_image(tmp_path / "x.png", (16, 16), 3).shape == (16, 16, 3)


def test_an_image_of_the_right_size_keeps_its_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    np.testing.assert_array_equal(decode_image(tmp_path / "x.png", (7, 5), 3), pixels)


def test_height_comes_before_width(tmp_path):
    pixels = np.zeros((40, 80), np.uint8)
    pixels[:20] = 255  # bright above
    Image.fromarray(pixels).save(tmp_path / "x.png")
    small = decode_image(tmp_path / "x.png", (4, 10), 1)
    assert small.shape == (4, 10, 1)
    assert small[0].min() > 200
    assert small[3].max() < 50


def test_exif_turns_the_image_upright(tmp_path):
    pixels = np.zeros((10, 20), np.uint8)
    pixels[:, :10] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter: what is left in the file is above
    Image.fromarray(pixels).save(tmp_path / "x.jpg", exif=exif, quality=95)
    upright = decode_image(tmp_path / "x.jpg", (20, 10), 1)[..., 0]
    assert upright[:8].min() > 200
    assert upright[12:].max() < 50


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "header"])
def test_a_damaged_image_is_named(root, damage):
    path = put_image(root / "bee" / "bad.jpg", size=(200, 200))
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncated": data[: len(data) // 2],
            "text": b"no image",
            "empty": b"",
            "header": data[:30],
        }[damage]
    )
    dataset = ImageFolderDataset(dataset_root=root)
    dataset.prepare()
    index = dataset.files.paths.index(path)
    with pytest.raises(DatasetError, match="is no image that can be read") as caught:
        dataset.read(np.array([0, index]))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# PIL warns of damaged metadata where it can still read the image
@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    suffix=st.sampled_from(["png", "jpg", "gif", "bmp", "webp", "tiff", "ppm"]),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    cut=st.integers(1, 2000),
)
def test_any_damage_is_read_over_or_named(tmp_path, suffix, changes, cut):
    path = put_image(tmp_path / f"x.{suffix}")
    data = bytearray(path.read_bytes())
    for at, value in changes:
        data[at % len(data)] = value
    path.write_bytes(data[:cut])
    message = f"{path}"
    try:
        assert decode_image(path, (5, 6), 3).shape == (5, 6, 3)
    except DatasetError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message


def test_an_image_that_claims_to_be_huge_takes_no_memory(tmp_path):
    path = tmp_path / "x.bmp"
    put_image(path)
    data = bytearray(path.read_bytes())
    data[18:26] = (30_000).to_bytes(4, "little") * 2
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"x\.bmp claims .*pixels.*; remove it"):
        decode_image(path, (5, 6), 3)


def test_an_image_that_vanishes_is_named(root):
    dataset = ImageFolderDataset(dataset_root=root)
    dataset.prepare()
    dataset.files.paths[3].unlink()
    with pytest.raises(DatasetError, match=r"ant/003\.png is not there any more"):
        dataset.read(np.array([3]))


# -- folders that cannot be used --------------------------------------------------------------


def test_a_folder_that_cannot_be_told_is_explained(root, tmp_path):
    put_image(root / "train" / "ant" / "0.png")
    with pytest.raises(
        DatasetError, match="holds the folders train and ant; below it may be either classes or"
    ):
        ImageFolderDataset(dataset_root=root).prepare()
    for name in ("train", "val", "validation"):
        put_classes(tmp_path / "two" / name, {"cat": 1})
    with pytest.raises(DatasetError, match="holds val and validation, which are one split"):
        ImageFolderDataset(dataset_root=tmp_path / "two").prepare()


def test_a_class_without_images_is_named(root):
    (root / "dog").mkdir()
    with pytest.raises(DatasetError, match="dog holds no images; remove it if it is no class"):
        ImageFolderDataset(dataset_root=root).prepare()


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="file is no folder"):
        ImageFolderDataset(dataset_root=tmp_path / "file").prepare()


def test_it_cannot_be_downloaded(root):
    with pytest.raises(NotImplementedError, match="cannot be downloaded; put its files into"):
        ImageFolderDataset(dataset_root=root, download_dataset=True).prepare()


def test_the_real_clothes_are_read(shared_data):
    dataset = ImageFolderDataset(dataset_root=shared_data / "clothing", image_size=(32, 24))
    dataset.prepare()
    assert len(dataset) == 300
    assert len(dataset.spec.class_names) == 10
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [198, 22, 80]
    inputs, _ = dataset.read(np.arange(0, 300, 10))
    assert inputs["image"].shape == (30, 32, 24, 3)
    assert np.all(inputs["image"].std(axis=(1, 2, 3)) > 5)


def test_all_pictures_of_a_folder_can_be_the_test_set(root: Path) -> None:
    dataset = ImageFolderDataset(dataset_root=root, image_size=(8, 8), test_fraction=1.0)
    assert dataset.split("test").tolist() == list(range(45))
    assert not len(dataset.split("train")) + len(dataset.split("validation"))
