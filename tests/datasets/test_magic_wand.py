"""Gestures in the two forms of the Magic Wand examples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from shared_data import shared_data

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.core.registry import find
from nnpipe.datasets.magic_wand import MagicWandDataset
from nnpipe.testing.dataset import DatasetContract


def put_recordings(root: Path, gesture: str, person: str, lengths: tuple[int, ...]) -> None:
    draws = np.random.default_rng(len(gesture + person))
    lines = []
    for length in lengths:
        lines += [
            "-,-,-",
            *(", ".join(f"{x:.1f}" for x in row) for row in draws.normal(0, 500, (length, 3))),
        ]
    (root / gesture).mkdir(parents=True, exist_ok=True)
    (root / gesture / f"output_{gesture}_{person}.txt").write_text("\n".join(lines) + "\n")


class TestMagicWand(DatasetContract):
    needs_files = True

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> MagicWandDataset:
        for person in "abcdefghij":
            for gesture in ("wing", "ring", "negative"):
                put_recordings(tmp_path / "wand", gesture, person, (9, 14))
        return MagicWandDataset(dataset_root=tmp_path / "wand", window=8, window_shift=8)


def test_recordings_become_windows_and_people_stay_together(tmp_path: Path) -> None:
    put_recordings(tmp_path, "wing", "anna", (3, 10))
    put_recordings(tmp_path, "negative", "1", (8,))
    data = MagicWandDataset(dataset_root=tmp_path, window=4, window_shift=3)
    assert data.spec.class_names == ("negative", "wing")
    inputs, truth = data.read(np.arange(len(data)))
    # 8 rows: windows at 0, 3 and 6; 3 rows: one; 10 rows: at 0, 3, 6.
    assert truth["label"].tolist() == [0, 0, 0, 1, 1, 1, 1]
    np.testing.assert_array_equal(inputs["series"][2][2:], inputs["series"][2][[1, 1]])
    assert data.groups().tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert find("MagicWandDataset", Dataset) is MagicWandDataset


def test_shared_strokes_are_read() -> None:
    data = MagicWandDataset(
        dataset_root=shared_data("magic_wand_digits"), window=160, window_shift=160
    )
    data.prepare()
    assert data.spec.class_names == tuple("0123456789")
    assert data.spec.inputs[0].shape == (None, 160, 2)
    labels = data.read(data.split("test"))[1]["label"]
    assert 0.1 < len(labels) / len(data) < 0.3
    assert len(set(labels.tolist())) == 10


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("wing/a_b.txt", "-,-,-\n1,2\n", "recording 1 is no list"),
        ("wing/a_b.txt", "-,-,-\n1,2,nan\n", "recording 1 is no list"),
        (
            "a.json",
            json.dumps({"strokes": [{"label": "1", "strokePoints": []}]}),
            "stroke 0 has no label",
        ),
        (
            "a.json",
            json.dumps({"strokes": [{"label": "1", "strokePoints": [{"x": "a", "y": 1}]}]}),
            "stroke 0",
        ),
        ("a.json", json.dumps({"other": []}), "holds no recordings"),
    ],
)
def test_damaged_files_are_told_in_one_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=said) as caught:
        MagicWandDataset(dataset_root=tmp_path).prepare()
    assert "\n" not in str(caught.value)
