"""Key points are read from COCO's form and from tables, and files that cannot be are refused in
a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from synthetic_contract import SyntheticContract

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.datasets import COCOKeypointsDataset, KeypointsTableDataset, SyntheticPosesDataset
from nnpipe.testing.dataset import DatasetContract

SIZES = [(30, 40), (24, 18), (20, 20), (31, 25), (12, 36)]


def pictures(folder: Path) -> None:
    needs("PIL")
    from PIL import Image

    folder.mkdir(parents=True)
    for number, size in enumerate(SIZES):
        pixels = np.random.default_rng(number).integers(0, 255, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def coco(
    root: Path, change: Callable[[dict[str, Any]], object] = lambda content: None
) -> COCOKeypointsDataset:
    pictures(root / "val")
    content = {
        "images": [
            {"id": 7 * number, "file_name": f"{number}.png", "height": height, "width": width}
            for number, (height, width) in enumerate(SIZES)
        ],
        "categories": [
            {"id": 1, "name": "person", "keypoints": ["head", "foot"], "skeleton": [[1, 2]]}
        ],
        "annotations": [
            {
                "id": number,
                "image_id": 7 * picture,
                "category_id": 1,
                "bbox": [1, 2, 10, 12],
                "area": 80.5,
                "keypoints": [3, 4, 2, 5 + number, 6, number % 2],
                "num_keypoints": 2,
                "iscrowd": int(number == 3),
            }
            for number, picture in enumerate([3, 0, 0, 4])
        ],
    }
    change(content)
    (root / "annotations").mkdir()
    (root / "annotations" / "person_keypoints_val.json").write_text(json.dumps(content))
    return COCOKeypointsDataset(dataset_root=root)


ROWS = [
    f"{n}.png,{person},{k},{0.1 * k},{0.5 + 0.1 * person}"
    for n in range(5)
    for person in (0, 1)
    for k in (0, 1)
]
HEAD = "image,pose_id,keypoint_id,keypoint_x,keypoint_y"


def table(
    root: Path, rows: list[str] | None = None, head: str = HEAD, **options: Any
) -> KeypointsTableDataset:
    pictures(root)
    (root / "keypoints.csv").write_text("\n".join([head, *(ROWS if rows is None else rows)]) + "\n")
    return KeypointsTableDataset(dataset_root=root, **options)


class TestCOCOKeypoints(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> COCOKeypointsDataset:
        return coco(tmp_path / "data")


class TestKeypointsTable(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> KeypointsTableDataset:
        return table(tmp_path / "data")


class TestSyntheticPoses(SyntheticContract):
    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticPosesDataset(num_samples=60, image_size=(20, 24), data_seed=1)


def test_persons_belong_to_their_pictures(tmp_path: Path) -> None:
    dataset = coco(tmp_path / "data")
    dataset.prepare()
    truth = dataset.read(np.arange(5))[1]
    assert truth["count"].tolist() == [2, 0, 0, 1, 1]
    assert truth["points"][0].tolist() == [[[3, 4, 2], [6, 6, 1]], [[3, 4, 2], [7, 6, 0]]]
    assert truth["crowd"].tolist() == [[0, 0], [0, 0], [0, 0], [0, 0], [1, 0]]
    assert dataset.spec.class_names == ("head", "foot")
    only = COCOKeypointsDataset(dataset_root=tmp_path / "data", only_with_persons=True)
    only.prepare()
    assert len(only) == 3
    np.testing.assert_array_equal(
        only.read(np.array([1]))[1]["points"][:, 0], truth["points"][3:4, 0]
    )


def test_tables_are_in_shares_or_pixels(tmp_path: Path) -> None:
    dataset = table(tmp_path / "shares")
    truth = dataset.read(np.array([1]))[1]
    np.testing.assert_allclose(
        truth["points"][0, 1], [[0, 0.6 * 24, 1], [1.8, 0.6 * 24, 1]], rtol=1e-6
    )
    alone = table(
        tmp_path / "one",
        ["1,7,8", "0,5,6"],
        "keypoint_id,keypoint_x,keypoint_y",
        coordinates="pixels",
        image=tmp_path / "one" / "2.png",
    )
    assert alone.read(np.array([0]))[1]["points"].tolist() == [[[[5, 6, 1], [7, 8, 1]]]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c["annotations"][0].update(keypoints=[1, 2]), "three numbers each"),
        (lambda c: c["annotations"][0].update(keypoints=[0] * 3_000_000), "at most 1,000 points"),
        (
            lambda c: c["annotations"][1].update(keypoints=[1, 2, 2]),
            "the same number of key points",
        ),
        (lambda c: c["annotations"][0].update(keypoints=[1, 2, "x", 3, 4, 5]), "finite numbers"),
        (lambda c: c["annotations"][0].update(bbox=[1e30, 2, 3, 4]), "numbers of pixels"),
        (lambda c: c["annotations"][0].update(area=-1), "numbers of pixels"),
        (lambda c: c["annotations"][0].update(image_id=6), "no image 6"),
        (lambda c: c["categories"][0].update(keypoints=["a", "a"]), "of different names"),
        (
            lambda c: c["categories"][0].update(keypoints=["a"]),
            "names 1 key points, and its persons have 2",
        ),
        (lambda c: c.update(annotations=c["annotations"] * 600), "more than 1,000 persons"),
    ],
)
def test_content_that_cannot_be_is_refused(
    change: Callable[[dict[str, Any]], object], told: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=told) as caught:
        coco(tmp_path / "data", change).prepare()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "holds no key points"),
        (["0.png,0,x,1,1"], "line 2: 'x' should be a whole number"),
        (["0.png,0,0,nan,1"], "'nan' should be a number"),
        (["0.png,0,-1,1,1"], "from 0 to 999, not -1"),
        (["0.png,0,0,1,1"] * 2, "is there twice"),
        (["../x.png,0,0,1,1"], "should be a picture below"),
        ([f"0.png,{person},0,1,1" for person in range(1001)], "more than 1,000 persons"),
        (["x" * 10_000], "too long"),
        ([",0,0,1,1"], "--image"),
    ],
)
def test_tables_that_cannot_be_are_refused(rows: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=told) as caught:
        table(tmp_path / "data", rows).prepare()
    assert "\n" not in str(caught.value)
