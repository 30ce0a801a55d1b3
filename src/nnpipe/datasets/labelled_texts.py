"""Texts with classes, from files."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets._split import split_samples
from nnpipe.datasets._text_records import read_records, text_in
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.tasks.classification.task import Classification

_MOST_CLASSES = 1 << 16


class TextClassificationDataset(InMemoryDataset):
    """Your own texts, each with its class: a table (.csv) or JSON lines (.jsonl).

    Labels are names of classes, which are numbered in the order of their names; if all are whole numbers, they are
    numbers.  With a list of classes they are numbered in its order.
    """

    dataset_root: Path = argument(Path("texts.csv"), help="file with texts and labels: .csv or .jsonl")
    text_name: str = argument("text", help="name of the texts in the records")
    label_name: str = argument("label", help="name of the labels in the records")
    class_list: Path | None = argument(None, help="text file with the name of one class a line, in the model's order")

    def load(self) -> Samples:
        """Read all texts and labels."""
        texts, labels = [], []
        for place, record in read_records(self.dataset_root, self.text_name):
            texts.append(text_in(record, self.text_name, place))
            labels.append(text_in(record, self.label_name, place).strip())
        numbers, names = self._numbered(labels)
        return Samples({"text": np.array(texts, object)}, {"label": numbers}, names)

    def _numbered(self, labels: list[str]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
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
                f"{self.dataset_root}: its column {self.label_name!r} should hold classes, not {len(kinds):,} "
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
            np.asarray(self.samples.targets["label"]), None, lambda: np.unique(texts, return_inverse=True)[1],
            validation_fraction=self.validation_fraction, test_fraction=self.test_fraction, seed=self.split_seed,
        )  # fmt: skip
