"""Tables are read as spreadsheets write them: with semicolons, tabs and decimal commas, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import AnomalyScoresDataset, SeriesDataset, TabularClassificationDataset
from nnpipe.datasets._number_table import (
    DecimalMarks,
    infer_delimiter,
    read_header_names,
    read_numbers,
)
from nnpipe.datasets.table import open_table


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("a,b", "1,2", ","),
        ("a;b", "1,5;2,5", ";"),
        ("a\tb", "1\t2", "\t"),
        ("a|b", "", "|"),
        ("a", "1", ","),
        ("a;b, net", "1;2,5", ";"),
        ("power|kW,price", "1,2", ","),
        ('"a;b",c', "1,2", ","),
        ("", "", ","),
    ],
)
def test_what_separates_cells_is_told_by_two_lines(first: str, second: str, wanted: str) -> None:
    assert infer_delimiter(first, second) == wanted


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_numbers_with_decimal_commas_are_read(tmp_path: Path, end: str, mark: str) -> None:
    path = written(
        tmp_path / "a.csv", mark + end.join(["hour;load", "1;1,5", "2;-,25", "3;2,5e1", ""])
    )
    assert read_header_names(path) == ("hour", "load")
    np.testing.assert_array_equal(
        read_numbers(path, ("load", "hour")), [[1.5, 1], [-0.25, 2], [25, 3]]
    )
    assert list(open_table(path).cells(("load",))) == [[("1.5",), ("-.25",), ("2.5e1",)]]
    series = SeriesDataset(
        dataset_root=path, columns=("load",), window=1, horizon=1, test_fraction=1.0
    )
    series.prepare()
    assert len(series) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a;b\n1;1,5\n2;1.234\n", "'1,5' and '1.234': write decimals alike"),
        ("a;b\n1;1.234,5\n", "line 2: '1.234,5' in column b is no number"),
        ("a;b\n1;2;3\n", "line 2: 3 cells, and there are 2 columns"),
    ],
)
def test_numbers_that_may_mean_two_things_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DatasetError) as error:
        read_numbers(written(tmp_path / "a.csv", text), ("b",))
    assert told in str(error.value)


def test_points_are_decimals_where_cells_are_separated_by_commas() -> None:
    marks = DecimalMarks(Path("a.csv"), ",")
    assert [marks.normalize("a", cell) for cell in ("1,5", "1.5")] == ["1,5", "1.5"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_table_with_tabs_is_read(tmp_path: Path, name: str) -> None:
    rows = "".join(
        f"{n}\t{'red' if n % 3 else 'blue'}\t{'yes' if n % 4 else 'no'}\n" for n in range(40)
    )
    data = TabularClassificationDataset(
        dataset_root=written(tmp_path / name, "age\tcolour\tbought\n" + rows)
    )
    data.prepare()
    assert data.spec.class_names == ("no", "yes")
    assert [column.name for column in data.columns] == ["age", "colour"]


def test_texts_in_another_encoding_stay_different(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "word,n\nröt,1\nrät,2\n", "latin-1")
    assert len(open_table(path).read_texts("word").names) == 2
    with pytest.raises(DatasetError, match="UTF-16: save it as UTF-8"):
        _ = open_table(written(tmp_path / "b.csv", "word,n\nrot,1\n", "utf-16")).names


def test_scores_with_semicolons_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "kind;score\nnormal;0,25\nanomaly;0,75\n")
    data: Any = AnomalyScoresDataset(dataset_root=path, score_column="score", kind_column="kind")
    data.prepare()
    assert data.read(np.arange(2))[0]["score"].ravel().tolist() == [0.25, 0.75]
