"""CIFAR-10 from its binary version, whole or in parts."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import cifar10
from nnpipe.datasets._download import RemoteFile
from nnpipe.datasets.cifar10 import CIFAR10Dataset
from nnpipe.testing.dataset import DatasetContract

RNG = np.random.default_rng(0)
TRAIN = [RNG.integers(0, 256, (8, 3073), np.uint8) for _ in range(5)]
TEST = RNG.integers(0, 256, (10, 3073), np.uint8)
for batch in (*TRAIN, TEST):
    batch[:, 0] %= 10


def official() -> dict[str, bytes]:
    files = {f"data_batch_{number}.bin": batch.tobytes() for number, batch in enumerate(TRAIN, 1)}
    return {
        **files,
        "test_batch.bin": TEST.tobytes(),
        "batches.meta.txt": b"airplane\n",
        "readme.html": b"<html>",
    }


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in official().items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    for name, data in official().items():
        (folder / name).write_bytes(data)
    return folder


class TestCIFAR10Dataset(DatasetContract):
    @pytest.fixture
    def dataset(self, root):
        return CIFAR10Dataset(dataset_root=root, split_seed=5)


def check_content(dataset: CIFAR10Dataset) -> None:
    dataset.prepare()
    records = np.concatenate([*TRAIN, TEST])
    inputs, truth = dataset.read(np.arange(50))
    np.testing.assert_array_equal(truth["label"], records[:, 0])
    # Planes of red, green and blue, each row by row.
    for channel in range(3):
        plane = records[:, 1 + 1024 * channel : 1 + 1024 * (channel + 1)].reshape(-1, 32, 32)
        np.testing.assert_array_equal(inputs["image"][..., channel], plane)
    np.testing.assert_array_equal(dataset.split("test"), np.arange(40, 50))


def test_batches_are_read_in_order(root):
    check_content(CIFAR10Dataset(dataset_root=root))


def test_batches_in_their_folder_are_found(root):
    CIFAR10Dataset(dataset_root=root).prepare()
    folder = root.parent / "above" / "cifar-10-batches-bin"
    folder.parent.mkdir()
    root.rename(folder)
    check_content(CIFAR10Dataset(dataset_root=folder.parent))


def test_an_archive_that_is_there_is_unpacked_without_a_network(tmp_path, capfd):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive())
    check_content(CIFAR10Dataset(dataset_root=tmp_path))
    check_content(CIFAR10Dataset(dataset_root=tmp_path))


def test_the_archive_is_fetched_once(new_server, tmp_path, monkeypatch):
    data = archive()
    server = new_server(data)
    name = "cifar-10-binary.tar.gz"
    described = RemoteFile(
        name, (server.url(f"/{name}"),), hashlib.sha256(data).hexdigest(), len(data)
    )
    monkeypatch.setattr(cifar10, "_ARCHIVE", described)
    for _ in range(2):
        check_content(CIFAR10Dataset(dataset_root=tmp_path, download_dataset=True))
    assert len(server.seen) == 1
    assert server.bytes_sent == len(data)


def test_without_a_test_batch_some_samples_are_kept_for_testing(root):
    (root / "test_batch.bin").unlink()
    dataset = CIFAR10Dataset(dataset_root=root, test_fraction=0.25)
    assert len(dataset.split("test")) == 10


def test_without_training_batches_all_is_test(root):
    for path in root.glob("data_batch_*"):
        path.unlink()
    dataset = CIFAR10Dataset(dataset_root=root)
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [0, 0, 10]


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("data_batch_3.bin", bytes(3072), "its length of 3072 bytes is no multiple of 3073"),
        ("data_batch_3.bin", b"", "its length of 0 bytes"),
        (
            "test_batch.bin",
            bytes(3073) + b"\x0a" + bytes(3072),
            "record 1 has the label 10, not 0 to 9",
        ),
        ("train.bin.gz", b"no gzip", "Not a gzipped file"),
        ("train.bin.gz", gzip.compress(bytes(3073), mtime=0)[:-1], "ended before"),
    ],
)
def test_a_damaged_batch_is_named(root, name, data, complaint):
    (root / name).write_bytes(data)
    with pytest.raises(DatasetError, match=complaint) as caught:
        CIFAR10Dataset(dataset_root=root).prepare()
    assert str(root / name) in str(caught.value)


def test_a_damaged_archive_is_named(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive()[:-50])
    with pytest.raises(DatasetError, match=r"cifar-10-binary\.tar\.gz is damaged"):
        CIFAR10Dataset(dataset_root=tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_a_part_of_the_real_cifar10_is_read(shared_data):
    # needs no network
    dataset = CIFAR10Dataset(dataset_root=shared_data / "cifar10", download_dataset=True)
    dataset.prepare()
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [
        3600,
        400,
        500,
    ]
    labels = dataset.read(dataset.split("test")[:10])[1]["label"]
    assert [dataset.spec.class_names[label] for label in labels[:4]] == [
        "cat",
        "ship",
        "ship",
        "airplane",
    ]
    # A truck is not blue: were the planes mixed up, these means would be too.
    means = dataset.read(np.arange(4500))[0]["image"].mean(axis=(0, 1, 2))
    assert np.allclose(means, [125.3, 123.0, 113.9], atol=2.5)
