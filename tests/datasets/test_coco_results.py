"""Boxes that a detector found elsewhere are read from COCO's results, and judged against COCO's
and YOLO's truth.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from shared_data import shared_data

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import COCOResultsDataset
from nnpipe.scenarios.judge import main as judge
from nnpipe.testing.dataset import DatasetContract

COCOS_FIGURES = (
    0.21092,
    0.38131,
    0.21068,
    0.04517,
    0.13903,
    0.37253,
    0.18672,
    0.24936,
    0.25357,
    0.04595,
    0.17135,
    0.42656,
)
"""pycocotools' figures for the stored boxes (EXPECTED.md of the shared data)."""

TRUTH = {
    "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
    "images": [{"id": n, "file_name": f"{n}.jpg", "height": 100, "width": 200} for n in (7, 139)],
    "annotations": [
        {
            "id": 1,
            "image_id": 139,
            "category_id": 18,
            "bbox": [10, 10, 50, 40],
            "area": 1500,
            "iscrowd": 0,
        },
        {
            "id": 2,
            "image_id": 139,
            "category_id": 3,
            "bbox": [0, 0, 30, 20],
            "area": 600,
            "iscrowd": 1,
        },
        {
            "id": 3,
            "image_id": 7,
            "category_id": 3,
            "bbox": [5, 5, 20, 20],
            "area": 400,
            "iscrowd": 0,
        },
    ],
}
FOUND = [
    {"image_id": 139, "category_id": 18, "bbox": [11, 10, 50, 40], "score": 0.9},
    {"image_id": 7, "category_id": 3, "bbox": [5, 5, 20, 20], "score": 0.8},
    {"image_id": 139, "category_id": 3, "bbox": [2, 2, 10, 10], "score": 0.7},
]


def written(folder: Path, found: Any = FOUND, text: str | None = None) -> COCOResultsDataset:
    (folder / "truth.json").write_text(json.dumps(TRUTH))
    with gzip.open(folder / "found.json.gz", "wt") as file:
        file.write(json.dumps(found) if text is None else text)
    return COCOResultsDataset(dataset_root=folder / "found.json.gz", truth=folder / "truth.json")


class TestCOCOResults(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path) -> COCOResultsDataset:
        return written(tmp_path)

    def perfect(self, dataset, truth):
        return dataset.task.perfect(truth, dataset.spec)


def test_images_and_categories_are_known_by_the_numbers_of_the_file_and_pictures_are_not_needed(
    tmp_path,
) -> None:
    found, truth = written(tmp_path).read(np.arange(2))
    assert found["found_class"].tolist() == [[0, -1], [1, 0]]
    assert found["scores"].tolist() == [[0.8, 0], [0.9, 0.7]]
    assert truth["crowd"].tolist() == [[0, 0], [0, 1]]
    assert truth["area"].tolist() == [[400, 0], [1500, 600]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is no JSON array"),
        ("[1, 2]", "box 1: it has the image_id"),
        (json.dumps([{**FOUND[0], "category_id": 19}]), "a category_id of the truth"),
        (json.dumps([FOUND[0], {**FOUND[0], "image_id": 8}]), "has no picture '8'"),
        (json.dumps([{**FOUND[0], "image_id": n} for n in range(3)]), "in more pictures than"),
        (json.dumps([{**FOUND[0], "bbox": [0, 0, -1, 2]}]), "bbox should be four numbers"),
        (json.dumps([{**FOUND[0], "score": "high"}]), "score should be a number"),
        ("[" + "[" * 100_000, "is no JSON array"),
    ],
)
def test_damaged_files_are_refused_with_the_place(tmp_path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        written(tmp_path, text=text).prepare()
    (tmp_path / "found.json.gz").write_bytes(gzip.compress(text.encode())[:-9])
    cut = COCOResultsDataset(dataset_root=tmp_path / "found.json.gz", truth=tmp_path / "truth.json")
    with pytest.raises(DatasetError, match=r"found\.json\.gz"):
        cut.prepare()


def test_the_command_gives_the_twelve_figures_of_stored_boxes(tmp_path, capsys) -> None:
    needs("PIL")
    stored, folder = shared_data("vectors/coco_val64_fastestdet.json.gz"), shared_data("coco_val64")
    out = tmp_path / "judged.json"
    assert (
        judge(
            [
                "COCOResultsDataset",
                "--dataset-root",
                str(stored),
                "--truth",
                str(folder),
                "--output",
                str(out),
            ]
        )
        == 0
    )
    metrics = json.loads(out.read_text())["metrics"]
    assert [round(known["value"], 5) for known in metrics.values()] == list(COCOS_FIGURES)
    assert "Average recall of large boxes" in capsys.readouterr().out
    named = json.loads(gzip.decompress(stored.read_bytes()))
    pictures = sorted(path.stem for path in folder.glob("images/*/*"))
    for box in named:
        box["image_id"] = int(pictures[box["image_id"]])
    (tmp_path / "named.json").write_text(json.dumps(named))
    data = COCOResultsDataset(dataset_root=tmp_path / "named.json", truth=folder)
    other = COCOResultsDataset(dataset_root=stored, truth=folder)
    np.testing.assert_array_equal(
        data.samples.inputs["found_boxes"], other.samples.inputs["found_boxes"]
    )
