"""Pictures with boxes are read from the forms of YOLO, COCO and Pascal VOC, and damaged files
are refused in a line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.registry import find
from nnpipe.core.tensors import Batch
from nnpipe.datasets import COCODataset, PascalVOCDataset, YOLOFolderDataset
from nnpipe.testing.dataset import DatasetContract

# Left, top, width and height in pixels of each picture's boxes, with the class.
SIZES = [(30, 40), (64, 48), (20, 20), (50, 31), (25, 60)]
BOXES: list[list[tuple[int, tuple[int, int, int, int]]]] = [
    [(0, (4, 3, 20, 15)), (1, (10, 12, 10, 6))],
    [(1, (0, 0, 48, 64))],
    [],
    [(0, (5, 10, 20, 30))],
    [(1, (30, 5, 15, 20))],
]
NAMES = ("cat", "dog")


def write_pictures(folder: Path) -> list[str]:
    needs("PIL")
    from PIL import Image

    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    names = []
    for number, (height, width) in enumerate(SIZES):
        names.append(f"{number:03}")
        pixels = random.integers(0, 255, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{names[-1]}.png")
    return names


def yolo(root: Path) -> YOLOFolderDataset:
    names = write_pictures(root / "images" / "val")
    (root / "labels" / "val").mkdir(parents=True)
    for name, boxes, (height, width) in zip(names, BOXES, SIZES, strict=True):
        lines = [
            f"{label} {(x + w / 2) / width:.17g} {(y + h / 2) / height:.17g} {w / width:.17g} "
            f"{h / height:.17g}"
            for label, (x, y, w, h) in boxes
        ]
        if lines:
            (root / "labels" / "val" / f"{name}.txt").write_text("\n".join(lines) + "\n")
    (root / "data.yaml").write_text(
        "path: .\ntrain: images/train\nval: images/val\nnames: {0: cat, 1: dog}\n"
    )
    return YOLOFolderDataset(dataset_root=root)


def coco_content() -> dict[str, Any]:
    flat = [(picture, *box) for picture, boxes in enumerate(BOXES) for box in boxes]
    return {
        "info": {"description": "made up"},
        "licenses": [],
        "images": [
            {"id": 100 + number, "file_name": f"{number:03}.png", "height": height, "width": width}
            for number, (height, width) in enumerate(SIZES)
        ],
        "annotations": [
            {
                "id": number + 1,
                "image_id": 100 + picture,
                "category_id": 90 if label else 7,
                "bbox": list(box),
                "area": 0.5 * box[2] * box[3],
                "iscrowd": int(number == 2),
                "segmentation": [[1.5, 2, 3, 4, 5, 6]],
            }
            for number, (picture, label, box) in enumerate(flat)
        ],
        "categories": [{"id": 90, "name": "dog"}, {"id": 7, "name": "cat"}],
    }


def coco(
    root: Path, change: Callable[[dict[str, Any]], None] = lambda content: None
) -> COCODataset:
    write_pictures(root / "val2017")
    (root / "annotations").mkdir()
    content = coco_content()
    change(content)
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    return COCODataset(dataset_root=root)


def voc(root: Path) -> PascalVOCDataset:
    names = write_pictures(root / "JPEGImages")
    (root / "Annotations").mkdir()
    for name, boxes, (height, width) in zip(names, BOXES, SIZES, strict=True):
        things = "".join(
            f"<object><name>{NAMES[label]}</name><difficult>0</difficult><bndbox><xmin>{x + 1}</xmin>"
            f"<ymin>{y + 1}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
            for label, (x, y, w, h) in boxes
        )
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><filename>{name}.png</filename><size><width>{width}</width><height>{height}</height></size>"
            f"{things}</annotation>"
        )
    (root / "classes.txt").write_text("cat\ndog\n")
    return PascalVOCDataset(dataset_root=root, class_list=root / "classes.txt")


class BoxedImagesContract(DatasetContract):
    def perfect(self, dataset: Dataset, truth: Batch) -> Batch:
        return {
            "boxes": truth["boxes"],
            "class": truth["class"],
            "scores": np.ones(truth["class"].shape),
        }


class TestYOLOFolder(BoxedImagesContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> YOLOFolderDataset:
        return yolo(tmp_path / "data")


class TestCOCO(BoxedImagesContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> COCODataset:
        return coco(tmp_path / "data")


class TestPascalVOC(BoxedImagesContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> PascalVOCDataset:
        return voc(tmp_path / "data")


@pytest.mark.parametrize("make", [yolo, coco, voc])
def test_all_forms_say_the_same(make: Callable[[Path], Dataset], tmp_path: Path) -> None:
    dataset = make(tmp_path / "data")
    dataset.prepare()
    inputs, truth = dataset.read(np.arange(5))
    assert dataset.spec.class_names == NAMES
    assert inputs["image_size"].tolist() == list(map(list, SIZES))
    assert inputs["image"].shape == (5, 64, 60, 3)
    assert not inputs["image"][0, 30:].any()
    for place, boxes in enumerate(BOXES):
        assert truth["class"][place].tolist() == [label for label, _ in boxes] + [-1] * (
            2 - len(boxes)
        )
        np.testing.assert_allclose(
            truth["boxes"][place, : len(boxes)], np.reshape([box for _, box in boxes], (-1, 4))
        )
    if make is coco:
        assert truth["crowd"].sum() == 1
        assert truth["area"][0, 0] == 150
    assert len(dataset.split("test")) == (1 if make is voc else 5)


def test_names_of_other_systems_lead_to_the_data_sets() -> None:
    assert find("COCODataset2017", Dataset) is COCODataset


def test_folders_of_splits_and_lists_of_pictures_are_read(tmp_path: Path) -> None:
    one, other = tmp_path / "folders", tmp_path / "lists"
    usual = yolo(tmp_path / "usual")
    usual.prepare()
    for root in (one, other):
        shutil.copytree(tmp_path / "usual" / "images" / "val", root / "valid" / "images")
        shutil.copytree(tmp_path / "usual" / "labels" / "val", root / "valid" / "labels")
    (one / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\nnc: 2\nnames: ['cat', 'dog']\n"
    )
    listed = sorted((other / "valid" / "images").glob("*"))
    (other / "val.txt").write_text("".join(f"./valid/images/{path.name}\n" for path in listed))
    (other / "data.yaml").write_text("train: train.txt\nval: val.txt\nnames: ['cat', 'dog']\n")
    for root in (one, other):
        found = YOLOFolderDataset(dataset_root=root)
        np.testing.assert_array_equal(found.files.boxes.values, usual.files.boxes.values)
        assert len(found.split("test")) == len(SIZES)
    (other / "val.txt").write_text("../folders/valid/images/000.png\n")
    with pytest.raises(DatasetError, match="which is not inside"):
        YOLOFolderDataset(dataset_root=other).prepare()

    split = tmp_path / "coco"
    for name in ("train", "valid"):
        shutil.copytree(tmp_path / "usual" / "images" / "val", split / name)
        (split / name / "_annotations.coco.json").write_text(json.dumps(coco_content()))
    divided = COCODataset(dataset_root=split)
    divided.prepare()
    assert len(divided.split("test")) == len(SIZES)
    assert len(divided.split("train"))


def test_outlines_stand_for_boxes_around_them(tmp_path: Path) -> None:
    dataset = yolo(tmp_path / "data")
    (tmp_path / "data" / "labels" / "val" / "002.txt").write_text("1 0.1 0.5 0.3 0.2 0.5 0.9\n")
    dataset.prepare()
    np.testing.assert_allclose(dataset.read(np.array([2]))[1]["boxes"][0, 0], [2, 4, 8, 14])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("2 0.5 0.5 0.1 0.1", "002.txt, line 1: class 2 is none of the 2 classes"),
        ("0 0.5 0.5 0.1", "four numbers of a box"),
        ("0 0.5 0.5 1.5 0.1", "leaves the picture"),
        ("0 nan 0.5 0.1 0.1", "leaves the picture"),
        ("cat 0.5 0.5 0.1 0.1", "a class number"),
        ("0 0.5 0.5 0.1 0.1\n" * 10_001, "more than 10,000 boxes"),
    ],
)
def test_a_label_file_that_cannot_be_is_refused(line: str, told: str, tmp_path: Path) -> None:
    dataset = yolo(tmp_path / "data")
    (tmp_path / "data" / "labels" / "val" / "002.txt").write_text(line)
    with pytest.raises(DatasetError, match=told) as caught:
        dataset.prepare()
    assert "\n" not in str(caught.value)


def test_a_line_that_is_unreasonably_long_is_refused(tmp_path: Path) -> None:
    dataset = yolo(tmp_path)
    (tmp_path / "labels" / "val" / "000.txt").write_text("0" + " 0.5" * 300_000)
    with pytest.raises(
        DatasetError, match=r"000\.txt, line 1: it has more than 1,048,576 characters"
    ):
        dataset.prepare()


def test_label_files_may_begin_with_a_mark_and_have_classes_like_1_0(tmp_path: Path) -> None:
    data = yolo(tmp_path)
    before = data.read(np.arange(len(data)))[1]
    for path in (tmp_path / "labels" / "val").iterdir():
        lines = [line.replace(" ", ".000 ", 1) for line in path.read_text().splitlines()]
        path.write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    again = YOLOFolderDataset(dataset_root=tmp_path)
    np.testing.assert_equal(again.read(np.arange(len(again)))[1], before)


def test_a_configuration_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    dataset = yolo(tmp_path / "data")
    (tmp_path / "data" / "data.yaml").write_text("val: ../../etc\nnames: [a]\n")
    with pytest.raises(DatasetError, match="a folder inside"):
        dataset.prepare()


def million(content: dict[str, Any]) -> None:
    content["annotations"] *= 10_000


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (million, "more than 10,000 boxes"),
        (
            lambda content: content["images"][0].update(height=31),
            "30 pixels, and its annotations are for 40 x 31",
        ),
        (lambda content: content["images"][0].update(height=-1), "has the size 40 x -1"),
        (lambda content: content["images"][0].update(height=10**30), "has the size"),
        (lambda content: content["images"][0].update(file_name="../../etc/passwd"), "a file_name"),
        (lambda content: content["images"].append(content["images"][0]), "a number of its own"),
        (lambda content: content["annotations"][0].update(bbox=[1, 2, 3]), "four numbers"),
        (
            lambda content: content["annotations"][0].update(bbox=[1, 2, float("nan"), 3]),
            "NaN is no number",
        ),
        (lambda content: content["annotations"][0].update(bbox=[1, 2, -3, 4]), "not negative"),
        (lambda content: content["annotations"][0].update(category_id=8), "no category 8"),
        (lambda content: content.update(categories=[]), "no categories"),
        (lambda content: content.update(images=[1]), "a number of its own"),
    ],
)
def test_annotations_that_cannot_be_are_refused(
    change: Callable[[dict[str, Any]], None], told: str, tmp_path: Path
) -> None:
    dataset = coco(tmp_path / "data", change)
    # before a picture is opened, if the file alone tells
    with pytest.raises(DatasetError, match=told) as caught:
        dataset.read(np.arange(5))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"images": [',
        '{"images": [1 2]}',
        '{"images"}',
        "[" * 100_000,
        '{"a": ' + "[" * 100_000,
    ],
)
def test_a_file_that_is_no_such_json_is_refused(text: str, tmp_path: Path) -> None:
    dataset = coco(tmp_path / "data")
    (tmp_path / "data" / "annotations" / "instances_val2017.json").write_text(text)
    with pytest.raises(DatasetError, match=r"instances_val2017\.json"):
        dataset.prepare()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>', "declares a document type"),
        ("<a>" * 40 + "</a>" * 40, "nested too deeply"),
        ("<annotation>", "no XML that can be read"),
        (
            "<annotation><size><width>9</width><height>x</height></size></annotation>",
            "a number of pixels, not 'x'",
        ),
    ],
)
def test_xml_that_cannot_be_is_refused(text: str, told: str, tmp_path: Path) -> None:
    dataset = voc(tmp_path / "data")
    (tmp_path / "data" / "Annotations" / "002.xml").write_text(text)
    with pytest.raises(DatasetError, match=told):
        dataset.prepare()
