"""MNIST and Fashion-MNIST from their IDX files, wherever these come from."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError
from nnpipe.datasets._download import RemoteFile
from nnpipe.datasets.mnist import FashionMNISTDataset, MNISTDataset
from nnpipe.testing.dataset import DatasetContract

RNG = np.random.default_rng(0)
TRAIN_LABELS = (np.arange(40) % 10).astype(np.uint8)
TEST_LABELS = (np.arange(20) % 10).astype(np.uint8)


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def content() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(RNG.integers(0, 256, (40, 28, 28), np.uint8)),
        "train-labels-idx1-ubyte": idx(TRAIN_LABELS),
        "t10k-images-idx3-ubyte": idx(RNG.integers(0, 256, (20, 28, 28), np.uint8)),
        "t10k-labels-idx1-ubyte": idx(TEST_LABELS),
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    for name, data in content().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    return folder


class TestMNISTDataset(DatasetContract):
    @pytest.fixture
    def dataset(self, root):
        return MNISTDataset(dataset_root=root, split_seed=1, validation_fraction=0.25)


class TestFashionMNISTDataset(DatasetContract):
    @pytest.fixture
    def dataset(self, root):
        return FashionMNISTDataset(dataset_root=root)


def test_the_official_test_set_stays_the_test_set(root):
    mnist = MNISTDataset(dataset_root=root, test_fraction=0.5)
    np.testing.assert_array_equal(mnist.split("test"), np.arange(40, 60))
    np.testing.assert_array_equal(mnist.read(mnist.split("test"))[1]["label"], TEST_LABELS)
    assert len(mnist.split("validation")) == 4


def test_unpacked_files_will_do(root):
    for path in list(root.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    MNISTDataset(dataset_root=root, download_dataset=True).prepare()


def test_files_are_fetched_and_read(new_server, root, tmp_path, monkeypatch):
    files, servers = [], []
    for path in sorted(root.iterdir()):
        data = path.read_bytes()
        servers.append(new_server(data))
        url = servers[-1].url(f"/{path.name}")
        files.append(RemoteFile(path.name, (url,), hashlib.sha256(data).hexdigest(), len(data)))
    monkeypatch.setattr(MNISTDataset, "files", tuple(files))
    target = tmp_path / "fetched"
    with pytest.raises(DatasetError, match="add --download-dataset"):
        MNISTDataset(dataset_root=target).prepare()
    assert not target.exists()
    fetched = MNISTDataset(dataset_root=target, download_dataset=True)
    fetched.prepare()
    assert len(fetched) == 60
    again = MNISTDataset(dataset_root=target, download_dataset=True)
    again.prepare()
    assert [len(server.seen) for server in servers] == [1, 1, 1, 1]


def damage(root: Path, name: str, data: bytes) -> None:
    (root / f"{name}.gz").write_bytes(gzip.compress(data))


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        (
            "train-images-idx3-ubyte",
            idx(np.zeros((39, 28, 28), np.uint8)),
            "holds 39 images, but .* 40 labels",
        ),
        (
            "train-images-idx3-ubyte",
            idx(np.zeros((40, 28, 27), np.uint8)),
            r"holds uint8 images of \(28, 27\)",
        ),
        ("t10k-labels-idx1-ubyte", idx(np.full(20, 10, np.uint8)), "no class numbers from 0 to 9"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros((20, 1), np.uint8)), "2 axes instead of 1"),
        ("t10k-images-idx3-ubyte", b"\x89PNG", "no IDX file"),
    ],
)
def test_content_that_does_not_fit_is_named(root, name, data, complaint):
    damage(root, name, data)
    with pytest.raises(DatasetError, match=complaint) as caught:
        MNISTDataset(dataset_root=root).prepare()
    assert name in str(caught.value)


def test_a_truncated_file_is_named(root):
    path = root / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        MNISTDataset(dataset_root=root).prepare()


@pytest.mark.parametrize("dataset", [MNISTDataset, FashionMNISTDataset])
def test_the_published_files_are_described(dataset):
    names = [file.name for file in dataset.files]
    assert names == [f"{name}.gz" for name in content()]
    assert all(len(file.urls) == 2 for file in dataset.files)
    assert len({file.sha256 for file in (*MNISTDataset.files, *FashionMNISTDataset.files)}) == 8
    # their files bear the same names
    assert MNISTDataset().dataset_root != FashionMNISTDataset().dataset_root


def test_the_real_mnist_is_recognised_and_read(shared_data, monkeypatch):
    monkeypatch.setattr("nnpipe.datasets._download.write_text", lambda *_: None)
    # needs no network
    mnist = MNISTDataset(dataset_root=shared_data / "mnist", download_dataset=True)
    mnist.prepare()
    assert [len(mnist.split(name)) for name in ("train", "validation", "test")] == [
        54000,
        6000,
        10000,
    ]
    labels = mnist.read(mnist.split("test"))[1]["label"]
    assert list(np.bincount(labels)) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    first = mnist.read(np.array([0]))
    assert first[1]["label"][0] == 5
    assert int(first[0]["image"].sum()) == 27525
