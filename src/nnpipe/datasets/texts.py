"""Texts with classes, and prompts for language models, from files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import suggest_name
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import ClassList
from nnpipe.datasets._number_table import infer_delimiter
from nnpipe.datasets._split import split_samples
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.classification.task import Classification
from nnpipe.tasks.generation.task import Generation

ENDINGS = (".txt", ".jsonl", ".csv")
_MOST_BYTES = 1 << 30
_MOST_RECORDS = 10_000_000
_LONGEST = 1 << 22  # characters of one line

Record = Mapping[str, Any]


def read_records(path: Path, line: str) -> list[tuple[str, Record]]:
    """Return the records of a file, each with its place for messages.

    Parameters
    ----------
    path
        A file whose name ends in ``.txt`` (each line that is not empty is a record), ``.jsonl``
        (each line is a JSON object) or ``.csv`` (the first line has the names of the columns).
    line
        The name that a line of a text file gets in its record.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, too large or empty; the message names the line.
    """
    readers = {".txt": _iter_lines, ".jsonl": _iter_objects, ".csv": _iter_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None or not path.is_file():
        raise DatasetError(
            f"{path} is no file with texts; its name should end in {', '.join(ENDINGS)}"
        )
    found = []
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DatasetError(f"{path} has more than {_MOST_BYTES >> 30} GiB")
        for place, record in reader(path, line):
            found.append((f"{path}, line {place}", record))
            if len(found) > _MOST_RECORDS:
                raise DatasetError(f"{path} has more than {_MOST_RECORDS:,} records")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as UTF-8: {error}") from None
    if not found:
        raise DatasetError(f"{path} has no texts")
    return found


def get_text(record: Record, name: str, place: str) -> str:
    """Return a text of a record; numbers and truth values are written out.

    Raises
    ------
    DatasetError
        If there is none of this name, or it is a list or an object.
    """
    if name not in record:
        raise DatasetError(
            f"{place}: has no {name!r}{suggest_name(name, record)}; it has: "
            f"{', '.join(map(str, record))[:200]}"
        )
    value = record[name]
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return json.dumps(value)
    raise DatasetError(f"{place}: {name!r} should be a text, not {type(value).__name__}")


def _iter_numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        number = 0
        while line := file.readline(_LONGEST + 1):
            number += 1
            if len(line) > _LONGEST:
                raise DatasetError(f"{path}, line {number}: longer than {_LONGEST:,} characters")
            yield number, line


def _iter_lines(path: Path, name: str) -> Iterator[tuple[int, Record]]:
    for number, line in _iter_numbered_lines(path):
        if text := line.strip("\r\n"):
            yield number, {name: text}


def _iter_objects(path: Path, _: str) -> Iterator[tuple[int, Record]]:
    for number, line in _iter_numbered_lines(path):
        if not line.strip():
            continue
        try:
            found = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}, line {number}: no JSON: {error}") from None
        if not isinstance(found, dict):
            raise DatasetError(
                f'{path}, line {number}: should be an object, such as {{"prompt": "..."}}'
            )
        yield number, found


def _iter_rows(path: Path, _: str) -> Iterator[tuple[int, Record]]:
    lines = (line for _, line in _iter_numbered_lines(path))
    first = list(islice(lines, 2))
    rows = csv.reader(chain(first, lines), delimiter=infer_delimiter(*first) if first else ",")
    try:
        header = [name.strip() for name in next(rows, [])]
        if not header or "" in header or len(set(header)) < len(header):
            raise DatasetError(
                f"{path}: the first line must have a name for each column, no two alike"
            )
        for row in rows:
            if row and len(row) != len(header):
                raise DatasetError(
                    f"{path}, line {rows.line_num}: {len(row)} cells, and there are {len(header)} "
                    f"columns"
                )
            if row:
                yield rows.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise DatasetError(f"{path}, line {rows.line_num}: no CSV: {error}") from None


_MOST_CLASSES = 1 << 16


class TextClassificationDataset(InMemoryDataset):
    """Your own texts, each with its class: a table (.csv) or JSON lines (.jsonl).

    Labels are names of classes, which are numbered in the order of their names; if all are whole
    numbers, they are numbers.  With a list of classes they are numbered in its order.
    """

    dataset_root: Path = argument(
        Path("texts.csv"), help="file with texts and labels: .csv or .jsonl"
    )
    text_name: str = argument("text", help="name of the texts in the records")
    label_name: str = argument("label", help="name of the labels in the records")
    class_list: Path | None = argument(
        None, help="text file with the name of one class a line, in the model's order"
    )

    def load(self) -> Samples:
        """Read all texts and labels."""
        texts, labels = [], []
        for place, record in read_records(self.dataset_root, self.text_name):
            texts.append(get_text(record, self.text_name, place))
            labels.append(get_text(record, self.label_name, place).strip())
        numbers, names = self._encode_labels(labels)
        return Samples({"text": np.array(texts, object)}, {"label": numbers}, names)

    def _encode_labels(self, labels: list[str]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
        if self.class_list is not None:
            classes = ClassList.read(self.class_list)
            known = {label: classes.number(label) for label in dict.fromkeys(labels)}
            return np.array([known[label] for label in labels], np.int64), classes.names
        kinds = set(labels)
        if all(label.isascii() and label.isdecimal() and len(label) < 8 for label in kinds):
            numbers = np.array([int(label) for label in labels], np.int64)
            if (count := int(numbers.max()) + 1) <= _MOST_CLASSES:
                return numbers, tuple(map(str, range(count)))
        if len(kinds) > _MOST_CLASSES or "" in kinds:
            raise DatasetError(
                f"{self.dataset_root}: its column {self.label_name!r} should hold classes, not "
                f"{len(kinds):,} "
                "different or empty texts; name another with --label-name"
            )
        names = tuple(sorted(kinds))
        places = {name: number for number, name in enumerate(names)}
        return np.array([places[label] for label in labels], np.int64), names

    @property
    def spec(self) -> DatasetSpec:
        """A text and its class."""
        return DatasetSpec(
            Classification.name,
            inputs=(TensorSpec("text", (None,), "string"),),
            targets=(TensorSpec("label", (None,), "int64"),),
            class_names=self.samples.class_names,
        )

    @cached_property
    def _splits(self) -> dict[str, npt.NDArray[np.int64]]:
        texts = self.samples.inputs["text"].astype(str)
        return split_samples(
            np.asarray(self.samples.targets["label"]),
            None,
            lambda: np.unique(texts, return_inverse=True)[1],
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=self.split_seed,
        )


class PromptsDataset(InMemoryDataset):
    """Your own prompts, to be answered by a language model: a file with a prompt on each line, JSON
    lines or a table.

    Records of ``.jsonl`` and ``.csv`` files have a ``prompt``, and may have a ``reference``, the
    answer that is right. All prompts are in the test split: nothing is trained on them.
    """

    dataset_root: Path = argument(
        Path("prompts.jsonl"), help="file with prompts: .txt, .jsonl or .csv"
    )
    prompt_name: str = argument("prompt", help="name of the prompts in the records")
    reference_name: str = argument(
        "reference", help="name of the reference answers in the records, which may lack them"
    )

    def load(self) -> Samples:
        """Read all prompts."""
        prompts, references = [], []
        for place, record in read_records(self.dataset_root, self.prompt_name):
            prompts.append(get_text(record, self.prompt_name, place))
            has = record.get(self.reference_name) is not None
            references.append(get_text(record, self.reference_name, place) if has else "")
        return _build_samples(prompts, references)

    @property
    def spec(self) -> DatasetSpec:
        """Prompts with references; their numbers, and the references as the right answers."""
        return DatasetSpec(
            Generation.name,
            (TensorSpec("prompt", (None,), "string"), TensorSpec("reference", (None,), "string")),
            (TensorSpec("sample", (None,), "int64"), TensorSpec("answer", (None,), "string")),
        )

    @cached_property
    def _splits(self) -> dict[str, npt.NDArray[np.int64]]:
        nothing = np.zeros(0, np.int64)
        return {
            "train": nothing,
            "validation": nothing,
            "test": np.arange(len(self), dtype=np.int64),
        }


def _build_samples(prompts: list[str], references: list[str]) -> Samples:
    pairs = zip(prompts, references, strict=True)
    numbers = np.array(
        [crc32(f"{prompt}\0{answer}".encode()) for prompt, answer in pairs], np.int64
    )
    answers = np.array(references, object)
    return Samples(
        {"prompt": np.array(prompts, object), "reference": answers},
        {"sample": numbers, "answer": answers},
    )


class SyntheticPromptsDataset(SyntheticDataset, PromptsDataset):
    """Sums of two numbers as prompts, with the right answers."""

    def load(self) -> Samples:
        """Make all prompts."""
        numbers = np.random.default_rng(self.data_seed).integers(0, 1000, (self.num_samples, 2))
        prompts = [f"{one} + {other} =" for one, other in numbers]
        return _build_samples(prompts, [f" {one + other}" for one, other in numbers])
