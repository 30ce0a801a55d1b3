"""Tables with columns of numbers and categories, whose kinds are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_contract import SyntheticContract

from nnpipe.core.category_code import encode_category
from nnpipe.core.errors import DatasetError
from nnpipe.core.input_transform import transform_from
from nnpipe.datasets.synthetic import SyntheticTabularDataset
from nnpipe.datasets.table import open_table
from nnpipe.datasets.tabular import TabularClassificationDataset, TabularRegressionDataset
from nnpipe.testing.dataset import DatasetContract


def put_table(path: Path, rows: int = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"person {n},{20 + n if n % 9 else 'NA'},{('red', '', 'dark blue')[n % 3]},{n % 2},{'yes' if n % 4 else 'no'}"
        for n in range(rows)
    ]
    path.write_text("name,age,colour,flag,bought\n" + "\n".join(lines) + "\n")
    return path


class TestTabularClassification(DatasetContract):
    needs_files = True

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> TabularClassificationDataset:
        return TabularClassificationDataset(dataset_root=put_table(tmp_path / "own" / "a.csv"))


class TestTabularRegression(DatasetContract):
    needs_files = True

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> TabularRegressionDataset:
        return TabularRegressionDataset(
            dataset_root=put_table(tmp_path / "own" / "a.csv"), target="flag"
        )

    def perfect(self, dataset, truth):
        return truth


class TestSyntheticTabular(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticTabularDataset(num_samples=60, gaps=0.0, data_seed=1)


def test_kinds_of_columns_are_found_and_told(tmp_path: Path) -> None:
    data = TabularClassificationDataset(dataset_root=put_table(tmp_path / "a.csv"))
    data.prepare()
    assert data.reading_notes == (
        "bought is predicted; numbers: age, flag; categories: colour; ignored: name",
        "2 classes: no, yes",
    )
    assert data.spec.class_names == ("no", "yes")
    assert [column.name for column in data.columns] == ["age", "colour", "flag"]
    inputs, truth = data.read(np.array([0, 2]))
    np.testing.assert_array_equal(
        inputs["features"],
        [[np.nan, encode_category("red"), 0], [22, encode_category("dark blue"), 0]],
    )
    assert truth["label"].tolist() == [0, 1]


def test_the_encoding_is_that_of_the_training_samples(tmp_path: Path) -> None:
    data = TabularClassificationDataset(
        dataset_root=put_table(tmp_path / "a.csv"), ignored=("flag",)
    )
    encoding = transform_from(data.spec.transforms["features"])
    train, _ = data.read(data.split("train"))
    encoded = encoding.apply(train["features"])
    age = train["features"][:, 0]
    assert encoded.shape[1] == 3
    assert encoded[~np.isnan(age), 0].mean() == pytest.approx(0, abs=1e-5)
    assert encoded[~np.isnan(age), 0].std() == pytest.approx(1, abs=1e-5)
    assert set(encoded[:, 1:].sum(axis=1).tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"numeric": ("colour",)},
            "'red' in column colour is no number; name the column with --categories",
        ),
        ({"target": "bougth"}, "has no column 'bougth'"),
        ({"target": "colour"}, "20 rows have no colour, the first is line 3"),
        ({"ignored": ("name", "age", "colour", "flag")}, "no columns beside bought"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    data = TabularClassificationDataset(dataset_root=put_table(tmp_path / "a.csv"), **options)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=said) as caught:
        data.prepare()
    assert "\n" not in str(caught.value)


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import csv, parquet

    path = put_table(tmp_path / "a.csv")
    options = csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
    parquet.write_table(
        csv.read_csv(path, convert_options=options), tmp_path / "a.parquet", row_group_size=17
    )
    assert arrow
    one, other = (
        TabularClassificationDataset(dataset_root=tmp_path / name)
        for name in ("a.csv", "a.parquet")
    )
    assert one.spec == other.spec
    for mine, its in zip(one.read(np.arange(60)), other.read(np.arange(60)), strict=True):
        for name, array in mine.items():
            np.testing.assert_array_equal(its[name], array)


@pytest.mark.parametrize("kind", ["text", "cut", "empty"])
def test_damaged_parquet_is_told_in_one_line(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet, table

    path = tmp_path / "a.parquet"
    parquet.write_table(table({"a": list(range(1000)), "b": ["x", "y"] * 500}), path)
    held = path.read_bytes()
    path.write_bytes({"text": b"a,b\n1,2\n", "cut": held[: len(held) // 2], "empty": b""}[kind])
    with pytest.raises(DatasetError, match=r"a\.parquet") as caught:
        open_table(path)
    assert "\n" not in str(caught.value)


def test_a_small_parquet_file_of_very_many_rows_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet, table

    path = tmp_path / "a.parquet"
    parquet.write_table(table({"a": np.zeros(40_000_000, np.int8)}), path)
    assert path.stat().st_size < 1 << 20
    for read in (open_table(path).numbers, lambda columns: next(open_table(path).cells(columns))):
        with pytest.raises(DatasetError, match="states 40,000,000 rows, too many for its size"):
            read(("a",))


def put(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "age,pay,bought\n1,2.5,yes\n\n2,unknown,no\n3,4.5,no\n",
            "line 4: 'unknown' in column pay, which holds numbers, too: if it means a gap, say "
            "--missing-words unknown",
        ),
        (
            "age,pay,bought\n1,no pay,yes\n2,3,no\n",
            r"line 2: 'no pay' in column pay.*--missing-words 'no pay'",
        ),
        (
            'a,pay,bought\n1,"1,234.50",yes\n2,"2,000.00",no\n',
            r"line 2: '1,234\.50' in column pay is a number with",
        ),
        (
            'a,pay,bought\n1,"3062,87",yes\n2,"2933,95",no\n',
            "line 2: '3062,87' in column pay is a number with marks",
        ),
        (
            "5.1,3.5,setosa\n4.9,3.0,setosa\n",
            "first line holds '5.1' and other numbers, and no names of columns",
        ),
        ("sep=;\na;b\n1;2\n", "its first line, sep=;, is for a spreadsheet program; remove it"),
        ("a,bought\n1,yes\n2,\n", "1 rows have no bought, the first is line 3"),
    ],
)
def test_an_odd_cell_or_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    data = TabularClassificationDataset(dataset_root=put(tmp_path / "a.csv", text))
    with pytest.raises(DatasetError, match=said) as caught:
        data.prepare()
    assert "\n" not in str(caught.value)


def test_words_for_gaps_can_be_given(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "age,pay,bought\n1,2.5,yes\n2,Unknown,no\n3,4.5,no\n")
    data = TabularClassificationDataset(dataset_root=path, missing_words=("unknown",))
    data.prepare()
    np.testing.assert_array_equal(data.samples.inputs["features"][:, 1], [2.5, np.nan, 4.5])


def test_none_and_na_may_be_classes(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "age,grade\n1,None\n2,NA\n3,None\n4,mild\n")
    data = TabularClassificationDataset(dataset_root=path)
    data.prepare()
    assert data.spec.class_names == ("NA", "None", "mild")
    with pytest.raises(DatasetError, match="1 rows have no grade, the first is line 3"):
        TabularClassificationDataset(dataset_root=path, missing_words=("NA",)).prepare()


@pytest.mark.parametrize(
    "text",
    [
        ",age,pay,bought\n0,31,2.5,yes\n1,42,3.5,no\n",
        "Unnamed: 0,age,pay,bought\n0,31,2.5,yes\n1,42,3.5,no\n",
        "\ufeff;age;pay;bought\r\n0;31;2,5;yes\r\n1;42;3,5;no\r\n",
        '"","age","pay","bought"\n"0","31","2.5","yes"\n"1","42","3.5","no"\n',
        "age;pay;bought;\n31;2,5;yes;\n42;3,5;no;\n",
    ],
)
def test_a_column_without_a_name_is_left_out_and_told(tmp_path: Path, text: str) -> None:
    data = TabularClassificationDataset(dataset_root=put(tmp_path / "a.csv", text))
    data.prepare()
    np.testing.assert_array_equal(data.samples.inputs["features"], [[31, 2.5], [42, 3.5]])
    assert "ignored: Unnamed: " in data.reading_notes[0]
    assert data.spec.class_names == ("no", "yes")


def test_names_that_are_counted_are_names(tmp_path: Path) -> None:
    data = TabularClassificationDataset(
        dataset_root=put(tmp_path / "a.csv", "0,1,label\n0.5,2.5,a\n1.5,3.5,b\n")
    )
    data.prepare()
    assert len(data) == 2
