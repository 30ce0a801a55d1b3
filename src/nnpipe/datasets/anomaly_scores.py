"""Anomaly scores that were computed elsewhere, to be judged."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import suggest_name
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.datasets._number_table import DecimalMarks, infer_delimiter
from nnpipe.datasets._split import TEST
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.tasks.anomaly.task import CLIP, AnomalyDetection

_LIMIT = 256 << 20  # bytes
_LONGEST = 1 << 20  # characters of a line
_MOST_CELLS = 8 << 20  # a cell takes some 60 bytes in memory
_TRUE, _FALSE = (
    {"1", "true", "yes", "anomaly", "anomalous"},
    {"0", "false", "no", "normal", "usual"},
)


class ScoreTable:
    """The cells of a CSV file by column, which is named, or numbered from 1.

    Parameters
    ----------
    path
        The file.  Its first line has names if a column is named, or if there is no number in
        ``numeric``.
    numeric
        A column of numbers.

    Raises
    ------
    DatasetError
        If the file is missing, too large or no table, or has no such column.
    """

    def __init__(self, path: Path, numeric: str) -> None:
        self.path = path
        try:
            if path.stat().st_size > _LIMIT:
                raise DatasetError(
                    f"{path} has more than {_LIMIT >> 20} MiB, too many for a table of scores"
                )
            with open(path, newline="", encoding="utf-8-sig") as file:
                rows, cells = [], 0
                delimiter = infer_delimiter(file.readline(_LONGEST), file.readline(_LONGEST))
                file.seek(0)
                for row in csv.reader(_iter_lines(file, path), delimiter=delimiter, strict=True):
                    cells += len(row)
                    if cells > _MOST_CELLS:
                        raise DatasetError(
                            f"{path} has more than {_MOST_CELLS:,} cells, too many for a table of "
                            f"scores"
                        )
                    if row:
                        rows.append(row)
        except FileNotFoundError:
            raise DatasetError(
                f"{path} is not there; --dataset-root names a CSV file of scores"
            ) from None
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DatasetError(f"{path} cannot be read as a table: {error}") from None
        if not rows:
            raise DatasetError(f"{path} is empty")
        for number, row in enumerate(rows, 1):
            if len(row) != len(rows[0]):
                raise DatasetError(
                    f"{path}, row {number}: {len(row)} cells, and the first row has {len(rows[0])}"
                )
        place = _parse_column_number(numeric)
        named = place is None or not (0 < place <= len(rows[0]) and _is_number(rows[0][place - 1]))
        self.names: Sequence[str] = tuple(rows[0]) if named else ()
        self._rows = rows[1:] if named else rows
        self._first = 2 if named else 1
        self._marks = DecimalMarks(path, delimiter)
        if not self._rows:
            raise DatasetError(f"{path} has names of columns, and no rows")

    def __len__(self) -> int:
        return len(self._rows)

    def get_texts(self, column: str) -> list[str]:
        """Return the cells of a column."""
        place = _parse_column_number(column)
        if place is None:
            if column not in self.names:
                raise DatasetError(
                    f"{self.path} has no column {column!r}{suggest_name(column, self.names)}; it "
                    f"has: {', '.join(self.names)}"
                )
            place = self.names.index(column) + 1
        if not 0 < place <= len(self._rows[0]):
            raise DatasetError(
                f"{self.path} has {len(self._rows[0])} columns, and no column {place}"
            )
        return [row[place - 1] for row in self._rows]

    def numbers(self, column: str) -> npt.NDArray[np.float64]:
        """Return the numbers of a column, ``(rows,)``."""
        cells = [self._marks.normalize(column, cell) for cell in self.get_texts(column)]
        try:
            return np.array(cells, np.float64)
        except ValueError:
            bad = next(row for row, cell in enumerate(cells) if not _is_number(cell))
            raise DatasetError(
                f"{self.path}, row {bad + self._first}: {cells[bad][:40]!r} in column {column} is "
                f"no number"
            ) from None

    def parse_anomaly_labels(self, column: str) -> npt.NDArray[np.int64]:
        """Return 1 for each anomaly and 0 for each normal row, ``(rows,)``, as 1 and 0, true and
        false and so on.
        """
        found = np.empty(len(self), np.int64)
        for row, cell in enumerate(self.get_texts(column)):
            word = cell.strip().lower()
            if word not in _TRUE | _FALSE:
                raise DatasetError(
                    f"{self.path}, row {row + self._first}: {cell[:40]!r} in column {column} is "
                    f"neither 1 nor 0"
                )
            found[row] = word in _TRUE
        return found


def _iter_lines(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise DatasetError(
                f"{path} has a line of more than {_LONGEST:,} characters; it is no table"
            )
        yield line


def _parse_column_number(column: str) -> int | None:
    return int(column) if column.isascii() and column.isdecimal() and len(column) < 10 else None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class AnomalyScoresDataset(InMemoryDataset):
    """Anomaly scores from a CSV file, one row each, to be judged by ``nnpipe judge
    AnomalyScoresDataset``.

    Whether a row is an anomaly is in ``kind_column``, or else follows from its name: the default
    arguments read the files of DCASE and MLPerf Tiny, ``anomaly_id_01_00000000.wav,9.7``.  Columns
    are named by the file's first line, or numbered from 1.  All rows are the test split.
    """

    dataset_root: Path = argument(Path("scores.csv"), help="CSV file of scores")
    score_column: str = argument("2", help="column of the scores; greater means more anomalous")
    kind_column: str | None = argument(
        None, help="column that holds 1 for an anomaly and 0 for a normal sample"
    )
    name_column: str = argument("1", help="column of names, if there is no column of kinds")
    anomaly_text: str = argument("anomaly", help="text that the names of anomalies contain")
    clip_column: str | None = argument(
        None,
        help="column that says which rows belong to one clip, whose score is the mean of theirs",
    )

    @property
    def spec(self) -> DatasetSpec:
        """A score, and whether the sample is an anomaly."""
        targets = [TensorSpec("anomalous", (None,), "int64")]
        if self.clip_column is not None:
            targets.append(TensorSpec(CLIP, (None,), "int64"))
        return DatasetSpec(
            AnomalyDetection.name,
            inputs=(TensorSpec("score", (None,), "float64"),),
            targets=tuple(targets),
            class_names=("usual", "anomalous"),
        )

    def load(self) -> Samples:
        """Return the scores, float64, and the kinds, int64."""
        table = ScoreTable(self.dataset_root, self.score_column)
        if self.kind_column is not None:
            kinds = table.parse_anomaly_labels(self.kind_column)
        else:
            names = table.get_texts(self.name_column)
            kinds = np.array([self.anomaly_text in name for name in names], np.int64)
        targets = {"anomalous": kinds}
        if self.clip_column is not None:
            clips = np.array(table.get_texts(self.clip_column), object)
            targets[CLIP] = np.unique(clips, return_inverse=True)[1].reshape(-1).astype(np.int64)
        official = np.full(len(table), TEST, np.int8)
        return Samples(
            {"score": table.numbers(self.score_column)}, targets, ("usual", "anomalous"), official
        )
