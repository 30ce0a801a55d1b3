"""Prompts and labelled texts from files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError, NNPipeError
from nnpipe.datasets.texts import PromptsDataset, SyntheticPromptsDataset, TextClassificationDataset
from nnpipe.testing.dataset import DatasetContract


class TestPromptsDataset(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Dataset:
        path = tmp_path / "prompts.jsonl"
        rows = [{"prompt": f"What is {n} + 1?", "reference": n + 1} for n in range(20)]
        path.write_text("\n".join(map(json.dumps, rows)))
        return PromptsDataset(dataset_root=path)


class TestSyntheticPromptsDataset(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticPromptsDataset(num_samples=20)


class TestTextClassificationDataset(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Dataset:
        path = tmp_path / "texts.csv"
        path.write_text(
            "label,text\n"
            + "".join(f'{("good", "bad")[n % 2]},"text, {n // 3}"\n' for n in range(40))
        )
        return TextClassificationDataset(dataset_root=path)


def texts(dataset: Dataset, name: str) -> list[str]:
    dataset.prepare()
    return [str(text) for text in dataset.read(np.arange(len(dataset)))[0][name]]


def test_prompts_from_lines_tables_and_objects_are_the_same(tmp_path: Path) -> None:
    files = {
        "a.txt": "one, two\n\nthree\n",
        "b.csv": 'number,prompt\n1,"one, two"\n2,three\n',
        "c.jsonl": '{"prompt": "one, two"}\n\n{"prompt": "three", "reference": null}\n',
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        dataset = PromptsDataset(dataset_root=tmp_path / name)
        assert texts(dataset, "prompt") == ["one, two", "three"]
        assert texts(dataset, "reference") == ["", ""]
        assert dataset.split("test").tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"\n\n", "has no texts"),
        ("a.bin", b"x", "should end in .txt, .jsonl, .csv"),
        ("a.txt", b"\xff\xfe\xff", "UTF-8"),
        ("a.txt", b"x" * (5 << 20), "line 1: longer than"),
        ("a.jsonl", b'{"prompt": "x"}\n[1]\n', "line 2: should be an object"),
        ("a.jsonl", b"[" * 100_000, "line 1: no JSON"),
        ("a.jsonl", b'{"promt": "x"}', "no 'prompt'; did you mean promt?"),
        ("a.jsonl", b'{"prompt": ["x"]}', "should be a text, not list"),
        ("a.csv", b"prompt,prompt\nx,y\n", "no two alike"),
        ("a.csv", b"prompt,n\nx\n", "line 2: 1 cells"),
    ],
)
def test_damaged_files_are_named_with_the_line(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        PromptsDataset(dataset_root=tmp_path / name).prepare()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_beyond_any_size_are_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "a.txt", "wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(DatasetError, match="more than 1 GiB"):
        PromptsDataset(dataset_root=tmp_path / "a.txt").prepare()


def test_classes_are_numbered_by_name_by_number_or_by_a_list(tmp_path: Path) -> None:
    path, names = tmp_path / "texts.jsonl", tmp_path / "names.txt"
    path.write_text('{"text": "a", "label": "spam"}\n{"text": "b", "label": "ham"}\n')
    dataset = TextClassificationDataset(dataset_root=path)
    dataset.prepare()
    assert dataset.spec.class_names == ("ham", "spam")
    assert dataset.samples.targets["label"].tolist() == [1, 0]
    names.write_text("spam\nham\neggs\n")
    dataset = TextClassificationDataset(dataset_root=path, class_list=names)
    assert dataset.samples.targets["label"].tolist() == [0, 1]
    path.write_text('{"text": "a", "label": 2}\n{"text": "b", "label": 0}\n')
    dataset = TextClassificationDataset(dataset_root=path)
    assert dataset.samples.class_names == ("0", "1", "2")
    path.write_text('{"text": "a", "label": ""}\n{"text": "b", "label": "x"}\n')
    with pytest.raises(NNPipeError, match="--label-name"):
        TextClassificationDataset(dataset_root=path).prepare()
