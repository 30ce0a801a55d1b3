"""Data sets of the user's own arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError
from nnpipe.datasets.arrays import ArraysDataset, write_arrays
from nnpipe.testing.dataset import DatasetContract

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (60, 4, 5, 3)).astype(np.uint8)
LABELS = np.arange(60) % 3


class TestArraysDataset(DatasetContract):
    needs_files = True

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> ArraysDataset:
        return write_arrays(tmp_path / "own", {"image": IMAGES}, LABELS)


def test_an_archive_holds_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", image=IMAGES, labels=LABELS)
    archive, folder = (
        ArraysDataset(dataset_root=tmp_path / "own.npz"),
        write_arrays(tmp_path / "own", {"image": IMAGES}, LABELS),
    )
    assert archive.spec == folder.spec
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(archive.split(name), folder.split(name))
    inputs, truth = archive.read(np.array([7, 3]))
    np.testing.assert_array_equal(inputs["image"], IMAGES[[7, 3]])
    np.testing.assert_array_equal(truth["label"], [1, 0])


def test_a_split_of_ones_own_is_kept(tmp_path: Path) -> None:
    split = np.repeat([0, 1, 2], 20)
    data = write_arrays(tmp_path, {"image": IMAGES}, LABELS, split=split, class_names=("a", "b", "c"))
    assert data.spec.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(data.split("test"), np.arange(40, 60))
    assert not set(data.split("train")) & set(data.split("test"))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"image": IMAGES}, "no array 'labels' with the class of each sample; there are image"),
        ({"labels": LABELS}, "no array beside 'labels'"),
        ({"image": IMAGES, "labels": LABELS[:50]}, "differ in their number of samples"),
        ({"image": IMAGES, "labels": LABELS - 1}, "'labels' holds -1"),
        ({"image": IMAGES, "labels": LABELS / 2}, "should be a vector of class numbers, not float64"),
        ({"image": IMAGES, "labels": LABELS, "split": LABELS + 1}, "'split' should hold 0"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(DatasetError, match=said) as caught:
        ArraysDataset(dataset_root=tmp_path).prepare()
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_pickle_is_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    np.save(tmp_path / "image.npy", np.array([{"a": 1}] * 60, dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match=r"image\.npy: no array of numpy"):
        ArraysDataset(dataset_root=tmp_path).prepare()


def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    np.save(tmp_path / "image.npy", IMAGES)
    content = (tmp_path / "image.npy").read_bytes()
    (tmp_path / "image.npy").write_bytes(content.replace(b"(60, 4, 5, 3)", b"(9**9,4,5,3) ", 1))
    with pytest.raises(DatasetError, match=r"image\.npy: no array of numpy"):
        ArraysDataset(dataset_root=tmp_path).prepare()
    (tmp_path / "image.npy").write_bytes(content.replace(b"(60, 4, 5, 3)", b"(60,4,9000,3)", 1))
    with pytest.raises(DatasetError, match=r"image\.npy: no array of numpy"):
        ArraysDataset(dataset_root=tmp_path).prepare()
