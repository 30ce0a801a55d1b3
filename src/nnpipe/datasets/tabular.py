"""Rows of tables with columns of numbers and categories: classification and regression."""

from __future__ import annotations

import re
import shlex
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.category_code import encode_category
from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import list_names
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.datasets._number_table import is_unnamed
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.table import SUFFIXES, DataTable, open_table, parse_number
from nnpipe.tasks.classification.task import Classification
from nnpipe.tasks.regression.task import Regression

FEATURES = "features"
"""The name of the input."""

_ENCODING = "nnpipe.transforms.tabular_encoding.TabularEncoding"
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
_MOST_CATEGORIES = 1000  # of a column whose kind is not given
_MOST_NUMBERS = 1 << 31  # of all cells
_MARKED_NUMBER = re.compile(r"[+-]?[$€£]?\s*\d[\d.,'\s]*[%$€£]?")  # such as 1,234.50 or 12 %
_TARGETS = ("target", "label", "labels", "class")


@dataclass(frozen=True)
class Column:
    """A column that the model is given.

    Attributes
    ----------
    name
        Its name.
    categories
        The categories by their codes; empty for numbers.
    """

    name: str
    categories: Mapping[float, str] = field(default_factory=dict)


class TabularDataset(InMemoryDataset):
    """Base of data sets whose samples are rows of a table.

    The input ``"features"``, float64 ``(n, columns)``, holds numbers as they are, NaN for gaps, and
    for a category its :func:`~nnpipe.core.category_code.encode_category`.  The encoding that models
    are given is learned from the training samples: :attr:`spec` names it, and it travels with every
    model that is trained on the data set.
    """

    abstract: ClassVar[bool] = True

    encoding: Literal["one_hot", "ordinal"] = argument(
        "one_hot", help="how categories are encoded for models"
    )

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns that the model is given."""

    @property
    @abstractmethod
    def table_task(self) -> str:
        """The name of the task: with classes or with values."""

    @property
    def spec(self) -> DatasetSpec:
        """Rows ``(n, columns)``, the target, and the encoding of the columns."""
        samples = self.samples
        return DatasetSpec(
            self.table_task,
            (TensorSpec(FEATURES, (None, len(self.columns)), "float64"),),
            tuple(
                TensorSpec(name, (None,), array.dtype.name)
                for name, array in samples.targets.items()
            ),
            samples.class_names,
            {FEATURES: self._encoding},
        )

    @cached_property
    def _encoding(self) -> Mapping[str, Any]:
        rows = self.samples.inputs[FEATURES][self.split("train")]
        fills, means, deviations, categories = [], [], [], []
        for place, column in enumerate(self.columns):
            values = rows[:, place]
            held = values[~np.isnan(values)].astype(np.float64)
            if column.categories:
                texts = sorted(column.categories[code] for code in np.unique(held))
                categories += [f"{place}={text}" for text in texts]
                held = np.zeros(0)
            fills.append(float(np.median(held)) if len(held) else 0.0)
            means.append(float(held.mean()) if len(held) else 0.0)
            deviation = float(held.std()) if len(held) else 1.0
            deviations.append(deviation if deviation > 0 and np.isfinite(deviation) else 1.0)
        arguments = {
            "fills": fills,
            "means": means,
            "deviations": deviations,
            "categories": categories,
        }
        return {"class": _ENCODING, "arguments": {**arguments, "encoding": self.encoding}}

    def download(self) -> None:
        """Do nothing: the table is the user's."""


class _TableFileDataset(TabularDataset):
    """Base of data sets of a CSV or Parquet file."""

    abstract: ClassVar[bool] = True

    dataset_root: Path = argument(
        Path("table.csv"), help="table (.csv, .parquet) with names of columns"
    )
    target: str | None = argument(
        None,
        help=(
            "column to predict; by default target, label, labels or class, otherwise the last "
            "column"
        ),
    )
    numeric: tuple[str, ...] = argument(
        (), help="columns of numbers; by default those that hold nothing else"
    )
    categories: tuple[str, ...] = argument(
        (),
        help=(
            f"columns of categories; by default those of text with at most {_MOST_CATEGORIES} "
            f"different ones"
        ),
    )
    ignored: tuple[str, ...] = argument((), help="columns that the model is not given")
    missing_words: tuple[str, ...] = argument(
        (),
        help=(
            "further texts that mean a gap; empty cells, NA, nan, null, none and ? do, but not in "
            "a column of classes"
        ),
    )

    @cached_property
    def _table(self) -> DataTable:
        if self.dataset_root.is_file() and self.dataset_root.suffix.lower() not in SUFFIXES:
            raise DatasetError(
                f"{self.dataset_root}: a table's name ends in {' or '.join(SUFFIXES)}"
            )
        table = open_table(self.dataset_root)
        table.check(
            (
                *self.numeric,
                *self.categories,
                *self.ignored,
                *(() if self.target is None else (self.target,)),
            )
        )
        return table

    @cached_property
    def _target(self) -> str:
        names = self._table.named
        return self.target or next((name for name in _TARGETS if name in names), names[-1])

    @cached_property
    def _own_gaps(self) -> frozenset[str]:
        """The texts that the user says mean a gap, in lower case, and the empty one."""
        return frozenset(("", *(text.lower() for text in self.missing_words)))

    @cached_property
    def _gaps(self) -> frozenset[str]:
        """The texts that mean a gap in columns that the model is given, in lower case."""
        return _MISSING | self._own_gaps

    @property
    def _gaps_of_target(self) -> frozenset[str]:
        """The texts that mean a gap in the column to predict."""
        return self._gaps

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """The kind of each column but the target: number, category or ignored."""
        given = {
            **dict.fromkeys(self.numeric, "number"),
            **dict.fromkeys(self.categories, "category"),
            **dict.fromkeys(self.ignored, "ignored"),
        }
        names = [name for name in self._table.names if name != self._target]
        given = {**{name: "ignored" for name in names if is_unnamed(name)}, **given}
        open_ = [name for name in names if name not in given]
        found = given | (_infer_column_kinds(self._table, open_, self._gaps) if open_ else {})
        return {name: found[name] for name in names}

    @cached_property
    def reading_notes(self) -> tuple[str, ...]:
        """The kinds of the columns, and the classes."""
        return (
            f"{self._target} is predicted; {_describe_columns(self._kinds)}",
            *super().reading_notes,
        )

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are not ignored, in the order of the file."""
        _ = self.samples
        return tuple(
            Column(name, self._texts.get(name, {}))
            for name, kind in self._kinds.items()
            if kind != "ignored"
        )

    @cached_property
    def _texts(self) -> dict[str, dict[float, str]]:
        """The categories of each column; filled while the table is read."""
        return {}

    def load(self) -> Samples:
        """Return the rows, float64, and the targets."""
        kinds = self._kinds
        used = [name for name, kind in kinds.items() if kind != "ignored"]
        if not used:
            raise DatasetError(
                f"{self.dataset_root} has no columns beside {self._target} that a model could be "
                f"given"
            )
        parts: list[npt.NDArray[np.float64]] = []
        wanted: list[str] = []
        same: dict[str, str] = {}  # so that equal texts are one object
        rows = 0
        for batch in self._table.cells((*used, self._target)):
            part = np.empty((len(batch), len(used)), np.float64)
            for place, name in enumerate(used):
                cells = [row[place] for row in batch]
                coded = kinds[name] == "category"
                part[:, place] = (
                    self._encode_categories(name, cells)
                    if coded
                    else self._parse_numbers(name, cells, rows)
                )
            parts.append(part)
            wanted += [same.setdefault(row[-1], row[-1]) for row in batch]
            rows += len(batch)
            if rows * (len(used) + 1) > _MOST_NUMBERS:
                raise DatasetError(f"{self.dataset_root} has more than {_MOST_NUMBERS:,} cells")
        if not rows:
            raise DatasetError(f"{self.dataset_root} has names of columns, and no rows")
        gaps = [row for row, text in enumerate(wanted) if text.lower() in self._gaps_of_target]
        if gaps:
            raise DatasetError(
                f"{self.dataset_root}: {len(gaps):,} rows have no {self._target}, the first is "
                f"{self._table.place(gaps[0])}; remove them"
            )
        return self._with_targets({FEATURES: np.concatenate(parts)}, wanted)

    @abstractmethod
    def _with_targets(self, inputs: dict[str, npt.NDArray[Any]], wanted: list[str]) -> Samples:
        """Return the samples, given the cells of the target."""

    def _encode_categories(self, name: str, cells: list[str]) -> list[float]:
        known = self._texts.setdefault(name, {})
        codes = {
            text: float("nan") if text.lower() in self._gaps else encode_category(text)
            for text in set(cells)
        }
        for text, code in codes.items():
            if code == code and known.setdefault(code, text) != text:
                raise DatasetError(
                    f"{self.dataset_root}: {known[code]!r} and {text!r} of {name} share a code; "
                    f"rename one"
                )
        return [codes[text] for text in cells]

    def _parse_numbers(self, name: str, cells: list[str], first: int = 0) -> list[float]:
        """Return the numbers in cells of a column, of which the first is in row ``first``."""
        numbers = [
            float("nan") if text.lower() in self._gaps else parse_number(text) for text in cells
        ]
        if (
            bad := next((row for row, number in enumerate(numbers) if number is None), None)
        ) is not None:
            raise DatasetError(
                f"{self.dataset_root}, {self._table.place(first + bad)}: {cells[bad][:40]!r} in "
                f"column {name} is no number; name the column with --categories, or if this means "
                f"a gap, say --missing-words {shlex.quote(cells[bad][:40])}"
            )
        return [number for number in numbers if number is not None]


class TabularClassificationDataset(_TableFileDataset):
    """Classes of the rows of a table (CSV, Parquet) with columns of numbers and categories.

    Which columns hold numbers and which categories is found from the file where it is not given; a
    column of text that is different in almost every row is left out.  Gaps are empty cells, ``NA``,
    ``nan``, ``null``, ``none`` or ``?``, and the texts of ``missing_words``; in the column of
    classes, only the last and empty cells are.  A column of numbers and other texts is refused, and
    one without a name, such as the index that pandas writes, is left out.
    """

    @property
    def table_task(self) -> str:
        """Classification."""
        return Classification.name

    @property
    def _gaps_of_target(self) -> frozenset[str]:
        """None, NA and the like may well be the name of a class."""
        return self._own_gaps

    def _with_targets(self, inputs: dict[str, npt.NDArray[Any]], wanted: list[str]) -> Samples:
        names = sorted(
            set(wanted),
            key=lambda text: (parse_number(text) is None, parse_number(text) or 0.0, text),
        )
        if len(names) > _MOST_CATEGORIES:
            raise DatasetError(
                f"{self.dataset_root}: {self._target} has {len(names):,} different values, too "
                f"many for classes; name "
                "another column with --target, or use TabularRegressionDataset"
            )
        numbers = {name: number for number, name in enumerate(names)}
        labels = np.array([numbers[text] for text in wanted], np.int64)
        return Samples(inputs, {"label": labels}, tuple(names))


class TabularRegressionDataset(_TableFileDataset):
    """Numbers predicted for the rows of a table (CSV, Parquet), otherwise as
    ``TabularClassificationDataset``.
    """

    @property
    def table_task(self) -> str:
        """Regression."""
        return Regression.name

    def _with_targets(self, inputs: dict[str, npt.NDArray[Any]], wanted: list[str]) -> Samples:
        values = np.array(self._parse_numbers(self._target, wanted), np.float32)
        if not np.isfinite(values).all():
            raise DatasetError(
                f"{self.dataset_root}: {self._target} holds numbers that are not finite"
            )
        return Samples(inputs, {"value": values})


def _infer_column_kinds(table: DataTable, names: list[str], gaps: frozenset[str]) -> dict[str, str]:
    """Return the kinds of columns, found in one pass over the file.

    Raises
    ------
    DatasetError
        If a column holds numbers and other texts, or numbers that are written in another way.
    """
    texts: dict[str, set[str]] = {name: set() for name in names}
    numeric: dict[str, bool] = {}  # as far as there are cells
    odd: dict[str, tuple[int, str]] = {}  # the first text of each column that is no number
    rows = 0
    for batch in table.cells(names):
        for place, name in enumerate(names):
            seen = texts[name]
            for text in dict.fromkeys(row[place] for row in batch):
                if text in seen or text.lower() in gaps:
                    continue
                is_number = parse_number(text) is not None
                if not is_number and name not in odd:
                    odd[name] = (
                        rows + next(n for n, row in enumerate(batch) if row[place] == text),
                        text,
                    )
                if numeric.setdefault(name, is_number) != is_number:
                    row, text = odd[name]
                    raise DatasetError(
                        f"{table.path}, {table.place(row)}: {text[:40]!r} in column {name}, which "
                        f"holds numbers, too: if it means a gap, say --missing-words "
                        f"{shlex.quote(text[:40])}; otherwise name the "
                        "column with --categories or --ignored"
                    )
                if not is_number and len(seen) <= _MOST_CATEGORIES:
                    seen.add(text)
        rows += len(batch)
    found = {}
    for name in names:
        if texts[name] and all(map(_MARKED_NUMBER.fullmatch, texts[name])):
            row, text = odd[name]
            raise DatasetError(
                f"{table.path}, {table.place(row)}: {text[:40]!r} in column {name} is a number "
                f"with marks: write it "
                "plainly, as in 1234.5, or name the column with --categories or --ignored"
            )
        few = len(texts[name]) <= max(2, min(_MOST_CATEGORIES, rows // 2))
        found[name] = "number" if numeric.get(name, True) else "category" if few else "ignored"
    return found


def _describe_columns(kinds: Mapping[str, str]) -> str:
    words = {"number": "numbers", "category": "categories", "ignored": "ignored"}
    held = {kind: [name for name, its in kinds.items() if its == kind] for kind in words}
    return "; ".join(f"{words[kind]}: {list_names(those)}" for kind, those in held.items() if those)
