"""Open Images is read from its published files, with groups, hierarchy and verified classes, and
downloaded.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from installed import needs

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.registry import find
from nnpipe.core.tensors import Batch
from nnpipe.datasets.open_images import OpenImagesDataset
from nnpipe.testing.dataset import DatasetContract

COLUMNS = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
    "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
)
BOXES = [
    "0a1,xclick,/m/cat,1,0.1,0.6,0.2,0.7,0,0,0,0,0",
    "0b2,xclick,/m/animal,1,0,1,0,0.5,0,0,1,0,0",
    "0b2,xclick,/m/car,1,0.5,0.75,0.25,0.5,0,0,0,0,0",
    "9ff,xclick,/m/car,1,0.5,0.75,0.25,0.5,0,0,0,0,0",  # of a picture that is not there
]
CLASSES = "/m/animal,Animal\n/m/cat,Cat\n/m/car,Car\n"
HIERARCHY = {
    "LabelName": "/m/0bl9f",
    "Subcategory": [
        {"LabelName": "/m/animal", "Subcategory": [{"LabelName": "/m/cat"}]},
        {"LabelName": "/m/car"},
    ],
}
LABELS = (
    "ImageID,Source,LabelName,Confidence\n0a1,verification,/m/cat,1\n0b2,verification,/m/animal,0\n"
)


def write(root: Path, annotations: Path, pictures: Path) -> None:
    needs("PIL")
    from PIL import Image

    annotations.mkdir(parents=True, exist_ok=True)
    pictures.mkdir(parents=True)
    for name, size in (("0a1", (40, 20)), ("0b2", (16, 32))):
        Image.new("RGB", size, "red").save(pictures / f"{name}.jpg")
    (annotations / "validation-annotations-bbox.csv").write_text(
        "\n".join([COLUMNS, *BOXES]) + "\n"
    )
    (annotations / "validation-annotations-human-imagelabels-boxable.csv").write_text(LABELS)


def written(root: Path) -> OpenImagesDataset:
    write(root, root, root / "validation")
    (root / "class-descriptions-boxable.csv").write_text(CLASSES)
    (root / "bbox_labels_600_hierarchy.json").write_text(json.dumps(HIERARCHY))
    return OpenImagesDataset(dataset_root=root)


@pytest.fixture
def dataset(tmp_path: Path) -> OpenImagesDataset:
    return written(tmp_path / "data")


class TestOpenImages(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> OpenImagesDataset:
        return written(tmp_path / "data")

    def perfect(self, dataset: Dataset, truth: Batch) -> Batch:
        return {
            "boxes": truth["boxes"],
            "class": truth["class"],
            "scores": np.ones(truth["class"].shape),
        }


def test_boxes_count_for_the_classes_above_too(dataset: OpenImagesDataset) -> None:
    dataset.prepare()
    _, truth = dataset.read(np.arange(2))
    assert dataset.spec.class_names == ("Animal", "Cat", "Car")
    assert truth["class"].tolist() == [[1, 0], [0, 2]]
    assert truth["crowd"].tolist() == [[0, 0], [1, 0]]
    np.testing.assert_allclose(truth["boxes"][0], [[4, 4, 20, 10]] * 2)
    assert truth["verified"].tolist() == [[0, 1], [0, 1]]  # no animal, so no cat
    assert dataset.split("test").tolist() == [0, 1]
    assert (
        dataset.evaluate(TestOpenImages().perfect(dataset, truth), truth).settings["protocol"]
        == "open_images"
    )
    flat = replace(dataset, hierarchy=False)
    assert flat.read(np.array([0]))[1]["class"].tolist() == [[1, -1]]


def test_its_name_in_another_system_leads_to_it() -> None:
    assert find("OpenImagesDatasetV6", Dataset) is OpenImagesDataset


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("validation-annotations-bbox.csv", "ImageID,LabelName\n", "no column XMin"),
        (
            "validation-annotations-bbox.csv",
            f"{COLUMNS}\n{BOXES[0]},1\n",
            "14 columns instead of 13",
        ),
        (
            "validation-annotations-bbox.csv",
            f"{COLUMNS}\n" + BOXES[0].replace("0.6", "1.6"),
            "from 0 to 1",
        ),
        (
            "validation-annotations-bbox.csv",
            f"{COLUMNS}\n" + BOXES[0].replace("cat", "dog"),
            "no class",
        ),
        (
            "validation-annotations-bbox.csv",
            f"{COLUMNS}\n" + f"{BOXES[0]}\n" * 10_001,
            "more than 10,000 boxes",
        ),
        ("validation-annotations-bbox.csv", COLUMNS + "\n" + "x" * 200_000, "cannot be read"),
        ("class-descriptions-boxable.csv", "/m/cat\n", "an identifier and a name"),
        ("bbox_labels_600_hierarchy.json", "[" * 50_000, "cannot be read"),
        ("bbox_labels_600_hierarchy.json", "[]", "LabelName and Subcategory"),
    ],
)
def test_files_that_cannot_be_are_refused(
    dataset: OpenImagesDataset, name: str, text: str, told: str
) -> None:
    (dataset.dataset_root / name).write_text(text)
    with pytest.raises(DatasetError, match=told) as caught:
        dataset.prepare()
    assert "\n" not in str(caught.value)


def test_listed_pictures_are_downloaded_and_checked(tmp_path: Path) -> None:
    server = tmp_path / "server"
    write(server, server / "v5", server / "validation")
    (server / "v5" / "class-descriptions-boxable.csv").write_text(CLASSES)
    (server / "2018_04").mkdir()
    (server / "2018_04" / "bbox_labels_600_hierarchy.json").write_text(json.dumps(HIERARCHY))

    class Mirror(OpenImagesDataset):
        """Open Images in a folder."""

        annotations_at: ClassVar[str] = server.as_uri()
        pictures_at: ClassVar[str] = server.as_uri()

    listed = tmp_path / "pictures.txt"
    listed.write_text("validation/0b2\n")
    dataset = Mirror(dataset_root=tmp_path / "data", picture_list=listed, download_dataset=True)
    dataset.prepare()
    assert len(dataset) == 1
    assert dataset.read(np.array([0]))[1]["class"].tolist() == [[0, 2]]

    (server / "validation" / "0a1.jpg").write_bytes(b"<html>not here</html>")
    listed.write_text("validation/0a1\n")
    with pytest.raises(DatasetError, match=r"cannot download 0a1\.jpg .*it cannot be read"):
        replace(dataset).download()
    assert not (tmp_path / "data" / "validation" / "0a1.jpg").exists()
    listed.write_text("../0a1\n")
    with pytest.raises(DatasetError, match="no PART/ID"):
        replace(dataset).download()
    with pytest.raises(DatasetError, match="--picture-list"):
        replace(dataset, picture_list=None).download()
