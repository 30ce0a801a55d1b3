"""Folders of images that stand for some of a model's classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_folders import ClassList
from nnpipe.datasets.image_files import ImageFolderDataset

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("background\ntench, Tinca tinca\ncrane\nEgyptian cat\ncrane\n\n", "utf-8")
    return path


def test_folders_are_classes_by_name_by_part_of_a_name_or_by_number(
    tmp_path: Path, classes: Path
) -> None:
    for number, name in enumerate(("tench", "Egyptian cat", "4")):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        Image.fromarray(np.full((4, 4, 3), 40 * number, np.uint8)).save(folder / "a.png")
    dataset = ImageFolderDataset(
        dataset_root=tmp_path / "images", class_list=classes, test_fraction=0.5
    )
    dataset.prepare()
    assert dataset.spec.class_names == (
        "background",
        "tench, Tinca tinca",
        "crane",
        "Egyptian cat",
        "crane",
    )
    found = dict(
        zip(
            (p.parent.name for p in dataset.files.paths), dataset.files.labels.tolist(), strict=True
        )
    )
    assert found == {"tench": 1, "Egyptian cat": 3, "4": 4}


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("crane", "may be class 2 or 4"),
        ("5", "names 5 from 0"),
        ("Egiptian cat", "did you mean Egyptian cat"),
    ],
)
def test_a_folder_that_is_no_class_is_named(classes: Path, folder: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        ClassList.read(classes).number(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n \n", "names no classes"), (b"\xff\xfe\x00", "cannot be read")]
)
def test_what_is_no_list_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        ClassList.read(path)
    with pytest.raises(DatasetError, match="is not there"):
        ClassList.read(tmp_path / "none.txt")


def test_a_list_may_be_written_by_a_spreadsheet(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_bytes("\ufeffcat\r\ndog\r\n".encode())
    assert ClassList.read(tmp_path / "classes.txt").names == ("cat", "dog")
