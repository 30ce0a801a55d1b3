"""Pictures with masks are read with the classes of their pixels, and files that cannot be are
refused in a line.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.datasets import MaskFolderDataset, PascalVOCMasksDataset
from nnpipe.testing.dataset import DatasetContract

SIZES = [(30, 40), (24, 18), (20, 20), (31, 25), (12, 36)]


def written(
    images: Path, masks: Path, values: tuple[int, ...], suffix: str = ".png", palette: bool = False
) -> None:
    """Write five pictures of random pixels and their masks, which hold all values."""
    needs("PIL")
    from PIL import Image

    images.mkdir(parents=True)
    masks.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number, size in enumerate(SIZES):
        Image.fromarray(random.integers(0, 255, (*size, 3), np.uint8)).save(
            images / f"{number}{suffix}"
        )
        pixels = np.resize(np.array(values, np.uint8), size)
        mask = Image.fromarray(pixels)
        if palette:
            mask = Image.fromarray(pixels, "P")
            mask.putpalette(random.integers(0, 255, 768, np.uint8).tobytes())
        mask.save(masks / f"{number}.png")


def folder(
    root: Path, values: tuple[int, ...] = (0, 1, 2, 255), **options: Any
) -> MaskFolderDataset:
    written(root / "images", root / "masks", values)
    (root / "names.txt").write_text("ground\ncat\ndog\n")
    return MaskFolderDataset(dataset_root=root, **{"class_list": root / "names.txt"} | options)


class TestMaskFolder(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> MaskFolderDataset:
        return folder(tmp_path / "data")


class TestMaskFolderOfOneSize(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Dataset:
        return folder(tmp_path / "data", side_lengths=(16, 12))


class TestPascalVOCMasks(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Dataset:
        root = tmp_path / "data"
        written(root / "JPEGImages", root / "SegmentationClass", (0, 12, 255), ".jpg", palette=True)
        (root / "ImageSets" / "Segmentation").mkdir(parents=True)
        for name, stems in (("train", "0\n1\n2\n"), ("val", "3\n4\n")):
            (root / "ImageSets" / "Segmentation" / f"{name}.txt").write_text(stems)
        return PascalVOCMasksDataset(dataset_root=root)

    def test_palettes_hold_classes(self, dataset: Dataset) -> None:
        dataset.prepare()
        mask = dataset.read(np.array([0]))[1]["mask"]
        assert np.unique(mask).tolist() == [-1, 0, 12]
        assert dataset.spec.class_names[12] == "dog"
        assert dataset.split("test").tolist() == [3, 4]


def classes_in(dataset: MaskFolderDataset) -> list[str]:
    dataset.prepare()
    found = np.unique(dataset.read(np.array([1]))[1]["mask"])
    return ["-" if number < 0 else dataset.spec.class_names[number] for number in found.tolist()]


def test_values_of_pixels_become_classes(tmp_path: Path) -> None:
    own = folder(tmp_path / "own")
    assert classes_in(own) == ["-", "ground", "cat", "dog"]
    assert classes_in(replace(own, pixel_classes=("1=dog", "other=ground"))) == [
        "-",
        "ground",
        "dog",
    ]
    assert classes_in(replace(own, class_list=None, pixel_classes=("2=a", "0=b", "1=ignored"))) == [
        "-",
        "a",
        "b",
    ]
    assert classes_in(replace(own, class_list=None, pixel_classes=("0=1", "1=0", "2=0"))) == [
        "-",
        "class 0",
        "class 1",
    ]
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"0": None, "1": "cat", "other": 2}))
    assert classes_in(replace(own, pixel_classes_file=table)) == ["-", "cat", "dog"]
    table = tmp_path / "table.csv"
    table.write_text("value,class\n0,ignored\n1,cat\n2,1\n")
    assert classes_in(replace(own, pixel_classes_file=table)) == ["-", "cat"]
    coco = folder(tmp_path / "coco", (0, 5, 90, 183), numbering="coco-ids", class_list=None)
    assert classes_in(coco) == ["-", "airplane", "toothbrush"]


def test_colours_may_be_classes(tmp_path: Path) -> None:
    dataset = folder(tmp_path / "data", pixel_classes=("#800000=cat", "other=0"))
    from PIL import Image

    pixels = np.zeros((24, 18, 3), np.uint8)
    pixels[:5] = (128, 0, 0)
    Image.fromarray(pixels).save(tmp_path / "data" / "masks" / "1.png")
    dataset.prepare()
    assert dataset.read(np.array([1]))[1]["mask"].sum() == 5 * 18
    with pytest.raises(DatasetError, match="say which colour"):
        replace(dataset, pixel_classes=None).read(np.array([1]))
    pixels[:5] = 1  # all of its colours are grey
    Image.fromarray(pixels).save(tmp_path / "data" / "masks" / "1.png")
    assert replace(dataset, pixel_classes=None).read(np.array([1]))[1]["mask"].sum() == 5 * 18


def test_folders_are_splits_and_files_may_be_named(tmp_path: Path) -> None:
    dataset = folder(tmp_path / "data")
    for part in ("images", "masks"):
        whole = (tmp_path / "data" / part).rename(tmp_path / part)
        (tmp_path / "data" / part).mkdir()
        whole.rename(tmp_path / "data" / part / "val2017")
    assert len(dataset.split("test")) == 5
    named = replace(
        dataset,
        images=(tmp_path / "data/images/val2017/2.png",),
        masks=(tmp_path / "data/masks/val2017/2.png",),
    )
    assert len(named) == 1


def test_pictures_and_masks_are_resized_alike(tmp_path: Path) -> None:
    dataset = folder(tmp_path / "data", side_lengths=(15, 20))
    dataset.prepare()
    from PIL import Image

    with Image.open(tmp_path / "data" / "masks" / "0.png") as mask:
        wanted = np.asarray(mask.resize((20, 15), Image.Resampling.NEAREST)).astype(int)
    found = dataset.read(np.array([0]))[1]
    np.testing.assert_array_equal(found["mask"][0], np.where(wanted == 255, -1, wanted))
    assert found["size"].tolist() == [[15, 20]]


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def other_size(path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.zeros((24, 19), np.uint8)).save(path)


def strange(path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((24, 18), 77, np.uint8)).save(path)


def huge(path: Path) -> None:
    """Write the header of a picture of 100 megapixels, and no more."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 10_000, 10_000, 8, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 4) + b"IDAT")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (damaged, "no image that can be read"),
        (other_size, "its annotations are for 19 x 24"),
        (strange, "holds pixels of 77, which is no class"),
        (huge, "10,000 x 10,000 pixels"),
        (Path.unlink, "has no mask 1.png"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(change: Any, told: str, tmp_path: Path) -> None:
    dataset = folder(tmp_path / "data")
    change(tmp_path / "data" / "masks" / "1.png")
    with pytest.raises(DatasetError, match=told) as caught:
        dataset.read(np.array([1]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pixel_classes": ("0=horse",)}, "'horse' is none of the 3 classes"),
        ({"pixel_classes": ("x=cat",)}, "should be a pixel value"),
        ({"pixel_classes": ("#12=cat",)}, "should be a colour"),
        ({"class_list": None}, "--class-list"),
        ({"images": (Path("a.png"), Path("b.png")), "masks": (Path("c.png"),)}, "2 pictures"),
        ({"table": "[1, 2]"}, "should be an object"),
        ({"table": "[" * 100_000}, "is no JSON"),
        ({"table": " " * (2 << 20)}, "too large"),
    ],
)
def test_options_that_cannot_be_are_refused(
    options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    dataset = folder(tmp_path / "data")
    if text := options.pop("table", ""):
        options["pixel_classes_file"] = tmp_path / "table.json"
        options["pixel_classes_file"].write_text(text)
    with pytest.raises(DatasetError, match=told) as caught:
        replace(dataset, **options).prepare()
    assert "\n" not in str(caught.value)
