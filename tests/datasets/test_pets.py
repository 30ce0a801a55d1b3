"""Oxford-IIIT Pet from its archives, its folders, or a few images."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import pets
from nnpipe.datasets._download import RemoteFile
from nnpipe.datasets.pets import BREEDS, PetDataset
from nnpipe.testing.dataset import DatasetContract

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

TRAINVAL = ["Abyssinian_1", "Abyssinian_2", "beagle_1", "beagle_2", "pug_10", "Maine_Coon_3"]
TEST = ["Abyssinian_201", "beagle_201", "american_pit_bull_terrier_5"]
SPARE = ["Bombay_9"]  # in the archive, but in neither list


def image(seed: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def content() -> dict[str, bytes]:
    files = {f"images/{stem}.jpg": image(i) for i, stem in enumerate(TRAINVAL + TEST + SPARE)}
    files["images/Abyssinian_100.mat"] = b"no image"
    files["annotations/list.txt"] = b"#Image CLASS-ID SPECIES BREED ID\nAbyssinian_1 1 1 1\n"
    files["annotations/trainval.txt"] = "".join(f"{stem} 1 1 1\n" for stem in TRAINVAL).encode()
    files["annotations/test.txt"] = (
        "# a comment\n" + "".join(f"{stem} 1 1 1\n" for stem in TEST)
    ).encode()
    files["annotations/trimaps/._Abyssinian_1.png"] = b"a leftover"
    return files


def archives() -> dict[str, bytes]:
    found = {}
    for name in ("images", "annotations"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for path, data in content().items():
                if path.startswith(name):
                    info = tarfile.TarInfo(path)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        found[f"{name}.tar.gz"] = buffer.getvalue()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, data in content().items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "root"


class TestPetDataset(DatasetContract):
    @pytest.fixture
    def dataset(self, root):
        return PetDataset(
            dataset_root=root, image_size=(8, 8), classification="species", split_seed=4
        )


class TestPetDatasetWithoutAnnotations(DatasetContract):
    @pytest.fixture
    def dataset(self, root):
        (root / "annotations" / "test.txt").unlink()
        return PetDataset(dataset_root=root, image_size=(8, 8))


def stems(dataset: PetDataset, split: str) -> list[str]:
    return [dataset.files.paths[i].stem for i in dataset.split(split)]


def test_the_published_lists_decide(root):
    dataset = PetDataset(dataset_root=root, validation_fraction=0.0, test_fraction=0.5)
    dataset.prepare()
    assert stems(dataset, "train") == TRAINVAL
    assert stems(dataset, "test") == TEST
    assert len(dataset) == 9


def test_breeds_and_species_follow_from_the_names(root):
    breeds = PetDataset(dataset_root=root)
    assert [BREEDS[label] for label in breeds.files.labels] == [
        stem.rpartition("_")[0] for stem in TRAINVAL + TEST
    ]
    species = PetDataset(dataset_root=root, classification="species")
    assert species.spec.class_names == ("cat", "dog")
    assert list(species.files.labels) == [0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_there_are_37_breeds_in_the_published_order():
    assert len(BREEDS) == len(set(BREEDS)) == 37
    assert list(BREEDS) == sorted(BREEDS, key=str.lower)
    assert sum(breed[0].isupper() for breed in BREEDS) == 12  # breeds of cats


def test_archives_that_are_there_are_unpacked_without_a_network(tmp_path, capfd):
    for name, data in archives().items():
        (tmp_path / name).write_bytes(data)
    dataset = PetDataset(dataset_root=tmp_path, image_size=(5, 5))
    dataset.prepare()
    assert len(dataset) == 9
    assert dataset.read(np.arange(9))[0]["image"].shape == (9, 5, 5, 3)


def test_archives_are_fetched_once(new_server, tmp_path, monkeypatch):
    described, servers = {}, []
    for name, data in archives().items():
        servers.append(new_server(data))
        url = servers[-1].url(f"/{name}")
        described[name.removesuffix(".tar.gz")] = RemoteFile(
            name, (url,), hashlib.sha256(data).hexdigest(), len(data)
        )
    monkeypatch.setattr(pets, "_ARCHIVES", described)
    for _ in range(2):
        dataset = PetDataset(dataset_root=tmp_path, download_dataset=True)
        dataset.prepare()
        assert len(dataset) == 9
    assert [len(server.seen) for server in servers] == [1, 1]


def test_an_image_that_lacks_is_named(root):
    (root / "images" / "pug_10.jpg").unlink()
    with pytest.raises(DatasetError, match=r"trainval\.txt names pug_10\.jpg, which is not in"):
        PetDataset(dataset_root=root).prepare()


def test_lists_that_share_images_are_refused(root):
    (root / "annotations" / "test.txt").write_text("pug_10 1 1 1\n")
    with pytest.raises(DatasetError, match=r"trainval\.txt and test\.txt in .* share images"):
        PetDataset(dataset_root=root).prepare()


def test_a_list_that_is_no_text_is_named(root):
    (root / "annotations" / "test.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match=r"cannot read .*test\.txt"):
        PetDataset(dataset_root=root).prepare()


def test_a_name_of_no_breed_is_named(root):
    (root / "annotations" / "test.txt").unlink()
    (root / "images" / "pug_10.jpg").rename(root / "images" / "hamster_1.jpg")
    with pytest.raises(
        DatasetError, match=r"hamster_1\.jpg is not named after one of the 37 breeds"
    ):
        PetDataset(dataset_root=root).prepare()


def test_an_empty_folder_is_named(tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(DatasetError, match="images holds no images"):
        PetDataset(dataset_root=tmp_path).prepare()


def test_five_real_pets_are_read(shared_data):
    dataset = PetDataset(
        dataset_root=shared_data / "pets" / "annotated5",
        download_dataset=False,
        image_size=(32, 32),
    )
    dataset.prepare()
    assert [dataset.spec.class_names[label] for label in dataset.files.labels] == [
        *("Abyssinian", "British_Shorthair", "Russian_Blue", "Siamese", "pug")
    ]
    assert dataset.read(np.arange(5))[0]["image"].shape == (5, 32, 32, 3)
