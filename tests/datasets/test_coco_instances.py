"""Masks of single things are read from COCO's form, and what cannot be is refused in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import COCOInstancesDataset
from nnpipe.tasks.instance_segmentation.run_lengths import encode_mask_runs
from nnpipe.testing.dataset import DatasetContract

SIZES = [(30, 40), (24, 18), (20, 20), (31, 25), (12, 36)]
POLYGONS = [[3.5, 2, 20, 4.25, 18, 22.75, 5, 20], [25, 1, 39.5, 1, 30, 28]]


def crowd() -> np.ndarray:
    mask = np.zeros(SIZES[1], bool)
    mask[3:9, 2:7] = mask[10:20, 11:13] = True
    return mask


def content() -> dict[str, Any]:
    from pycocotools.mask import encode

    half = np.zeros((30, 40), np.uint8)
    half[:, 20:] = 1
    text = {"size": [30, 40], "counts": encode(np.asfortranarray(half))["counts"].decode()}
    runs = encode_mask_runs(crowd()).tolist()
    masks: list[tuple[int, Any]] = [
        (0, POLYGONS),
        (3, [[1, 1, 9, 1, 9, 9]]),
        (0, text),
        (1, {"size": [24, 18], "counts": runs}),
    ]
    return {
        "images": [
            {"id": 7 * number, "file_name": f"{number}.png", "height": height, "width": width}
            for number, (height, width) in enumerate(SIZES)
        ],
        "categories": [{"id": 90, "name": "dog"}, {"id": 7, "name": "cat"}],
        "annotations": [
            {
                "id": number,
                "image_id": 7 * picture,
                "category_id": 90 if number else 7,
                "segmentation": mask,
                "iscrowd": int(number == 3),
                **({"area": 80.5} if number == 1 else {}),
            }
            for number, (picture, mask) in enumerate(masks)
        ],
    }


def coco(
    root: Path, change: Callable[[dict[str, Any]], object] = lambda stated: None
) -> COCOInstancesDataset:
    needs("PIL", "pycocotools")
    from PIL import Image

    (root / "val").mkdir(parents=True)
    for number, size in enumerate(SIZES):
        pixels = np.random.default_rng(number).integers(0, 255, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(root / "val" / f"{number}.png")
    stated = content()
    change(stated)
    (root / "annotations").mkdir()
    (root / "annotations" / "instances_val.json").write_text(json.dumps(stated))
    return COCOInstancesDataset(dataset_root=root)


class TestCOCOInstances(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> COCOInstancesDataset:
        return coco(tmp_path / "data")


def test_masks_are_those_of_pycocotools(tmp_path: Path) -> None:
    dataset = coco(tmp_path / "data")
    dataset.prepare()
    from pycocotools.coco import COCO

    known = COCO()
    known.dataset = content()
    known.createIndex()
    inputs, truth = dataset.read(np.arange(5))
    assert inputs["image_size"].tolist() == list(map(list, SIZES))
    assert dataset.spec.class_names == ("cat", "dog")
    assert truth["class"].tolist() == [[0, 1], [1, -1], [-1, -1], [1, -1], [-1, -1]]
    assert truth["crowd"].tolist() == [[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]]
    for picture, place, number in ((0, 0, 0), (0, 1, 2), (1, 0, 3), (3, 0, 1)):
        mask = known.annToMask(known.anns[number])
        own = truth["runs"][picture, place]
        np.testing.assert_array_equal(np.trim_zeros(own, "b"), encode_mask_runs(mask))
        assert truth["area"][picture, place] == (80.5 if number == 1 else mask.sum())
    assert len(dataset.split("test")) == 5


def test_several_files_are_one_data_set(tmp_path: Path) -> None:
    dataset = coco(tmp_path / "data")
    alone = dataset.read(np.arange(5))[1]
    folder = tmp_path / "data" / "annotations"
    (folder / "instances_train.json").write_bytes((folder / "instances_val.json").read_bytes())
    (tmp_path / "data" / "val").rename(tmp_path / "data" / "images")
    both = COCOInstancesDataset(dataset_root=tmp_path / "data")
    both.prepare()
    assert [len(both.split(name)) for name in ("train", "test")] == [5, 5]
    np.testing.assert_array_equal(both.read(both.split("test"))[1]["runs"], alone["runs"])


def mask_of(stated: dict[str, Any], number: int, **parts: Any) -> None:
    stated["annotations"][number]["segmentation"].update(parts)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda c: c["annotations"][0].update(segmentation=[[1, 2, 3, 4]]),
            "at least three points",
        ),
        (lambda c: c["annotations"][0].update(segmentation=[[1, 2, 3, 4, 5, 6, 7]]), "x and y"),
        (lambda c: c["annotations"][0].update(segmentation=[]), "has no mask"),
        (lambda c: c["annotations"][0].update(segmentation=[["1"] * 6]), "numbers of pixels"),
        (lambda c: c["annotations"][0].update(segmentation=[[1e30] * 6]), "numbers of pixels"),
        (lambda c: c["annotations"][0].update(segmentation=[[10**400] * 6]), "numbers of pixels"),
        (lambda c: c["annotations"][0].update(segmentation=[[1] * 6] * 10_001), "10,001 polygons"),
        (
            lambda c: c["annotations"][0].update(segmentation=[[1] * 2_000_000]),
            "more than 524,288 points",
        ),
        (
            lambda c: c["annotations"][0].update(segmentation=[[1] * 20_000_000]),
            "unreasonably large",
        ),
        (lambda c: c.update(annotations=c["annotations"][:1] * 10_001), "more than 10,000 masks"),
        (
            lambda c: mask_of(c, 3, counts=[1, 2]),
            "add up to 3 pixels, and its size of 18 x 24 has 432",
        ),
        (lambda c: mask_of(c, 3, counts=[440, -8]), "whole numbers from 0"),
        (lambda c: mask_of(c, 3, counts=[1.5]), "whole numbers from 0"),
        (lambda c: mask_of(c, 3, counts=[10**30]), "whole numbers from 0"),
        (lambda c: mask_of(c, 3, counts=[0] * 1_100_000), "more than 1,048,576 run lengths"),
        (
            lambda c: mask_of(c, 3, counts=[400], size=[20, 20]),
            "for 20 x 20 pixels, and image 7 has 18 x 24",
        ),
        (lambda c: mask_of(c, 3, size=[24]), "height and width"),
        (lambda c: mask_of(c, 2, counts="5P"), "ends within a number"),
        (lambda c: mask_of(c, 2, counts="5£"), "characters"),
        (lambda c: mask_of(c, 2, counts="55"), "add up to 10 pixels"),
        (lambda c: c["annotations"][0].update(area=-1), "area should be a number"),
        (lambda c: c["annotations"][0].update(image_id=6), "no image 6"),
        (lambda c: c["annotations"][0].update(category_id=6), "no category 6"),
        (lambda c: c["images"][0].update(width=1 << 20), "has the size"),
    ],
)
def test_content_that_cannot_be_is_refused(
    change: Callable[[dict[str, Any]], object], told: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=told) as caught:
        coco(tmp_path / "data", change).prepare()
    assert "\n" not in str(caught.value)


def test_a_size_that_is_only_declared_costs_no_memory(tmp_path: Path) -> None:
    def huge(stated: dict[str, Any]) -> None:
        stated["images"][3].update(height=65_536, width=65_536)

    with pytest.raises(DatasetError, match="its annotations are for 65536 x 65536"):
        coco(tmp_path / "data", huge).read(np.array([3]))
