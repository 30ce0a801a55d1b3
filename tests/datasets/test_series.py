"""Series from CSV files, their windows and splits, and metrics of forecasts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.dataset import SPLITS
from nnpipe.core.errors import DatasetError, SpecMismatch
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.datasets import _number_table
from nnpipe.datasets.series import SeriesDataset, SeriesFolderDataset
from nnpipe.testing.dataset import DatasetContract


def put_series(path, rows: int = 60, seed: int = 0):
    numbers = np.random.default_rng(seed).uniform(1, 2, (rows, 2)).astype(np.float32)
    lines = ['when,heat,"load, total"', *(f"2020-01-01,{a},{b}" for a, b in numbers)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return numbers


class TestSeries(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        for number in range(2):
            put_series(tmp_path / "root" / f"{number}.csv", 60 + 7 * number, number)
        return SeriesDataset(
            dataset_root=tmp_path / "root",
            columns=("heat",),
            window=6,
            horizon=2,
            stride=2,
            season=3,
        )

    def perfect(self, dataset, truth):
        return {"value": truth["value"]}


class TestSeriesFolder(DatasetContract):
    @pytest.fixture
    def dataset(self, tmp_path):
        for number, name in enumerate(("ring", "slope", "wing")):
            for i in range(8):
                put_series(tmp_path / "root" / name / f"{i}.csv", 4 + i, 10 * number + i)
        return SeriesFolderDataset(
            dataset_root=tmp_path / "root", columns=("heat", "load, total"), window=8
        )


def test_recordings_are_cut_or_their_last_row_is_repeated(tmp_path):
    long = put_series(tmp_path / "ring" / "a.csv", 9, 0)
    short = put_series(tmp_path / "wing" / "b.csv", 3, 1)
    dataset = SeriesFolderDataset(dataset_root=tmp_path, columns=("load, total",), window=5)
    inputs, truth = dataset.read(np.array([0, 1]))
    np.testing.assert_array_equal(inputs["series"][0], long[:5, 1:])
    np.testing.assert_array_equal(inputs["series"][1], short[[0, 1, 2, 2, 2], 1:])
    assert truth["label"].tolist() == [0, 1]


@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(1, 4), st.floats(0, 0.5), st.floats(0, 0.5)
)
@settings(max_examples=examples(60), deadline=None)
def test_nothing_forecast_later_is_seen_before(
    tmp_path_factory, window, horizon, stride, test, validation
):
    path = tmp_path_factory.getbasetemp() / "series.csv"
    numbers = put_series(path)
    dataset = SeriesDataset(
        dataset_root=path,
        columns=("heat", "load, total"),
        forecast_columns=("load, total",),
        window=window,
        horizon=horizon,
        stride=stride,
        test_fraction=test,
        validation_fraction=validation,
    )
    ends = {name: dataset.split(name) * stride + window + horizon for name in SPLITS}
    borders = [0, *dataset._compute_borders(60), 60]
    for name, low, high in zip(SPLITS, borders, borders[1:], strict=False):
        assert ((ends[name] > low) & (ends[name] <= high)).all()
    np.testing.assert_array_equal(
        np.concatenate([dataset.split(name) for name in SPLITS]), np.arange(len(dataset))
    )
    assert len(dataset) == len(range(0, 60 - window - horizon + 1, stride))
    inputs, truth = dataset.read(np.array([len(dataset) - 1]))
    row = (len(dataset) - 1) * stride
    np.testing.assert_array_equal(inputs["series"][0], numbers[row : row + window])
    np.testing.assert_array_equal(
        truth["value"][0], numbers[row + window : row + window + horizon, 1:]
    )


def test_the_naive_forecast_has_a_scaled_error_of_one(tmp_path):
    put_series(tmp_path / "a.csv", 400)
    dataset = SeriesDataset(
        dataset_root=tmp_path / "a.csv",
        columns=("heat",),
        window=5,
        season=5,
        test_fraction=0,
        validation_fraction=0,
    )
    inputs, truth = dataset.read(dataset.split("train"))
    found = dataset.evaluate({"anything": inputs["series"][:, 0]}, truth)
    assert dataset.task.primary.name == "mase"
    assert dataset.task.primary.compute(found) == pytest.approx(1, abs=1e-5)
    errors = inputs["series"][:, :1].astype(np.float64) - truth["value"]
    assert dataset.task.metric("mae").compute(found) == pytest.approx(np.abs(errors).mean())
    assert dataset.task.metric("rmse").compute(found) == pytest.approx(np.sqrt((errors**2).mean()))
    assert len(np.unique(found.arrays["block"])) == pytest.approx(len(found) / 6, abs=2)


def test_a_constant_series_has_no_scaled_error():
    truth = {"value": np.ones((3, 1, 1)), "scale": np.zeros((3, 1)), "block": np.arange(3)}
    found = get_task("forecast").evaluate(
        {"y": np.zeros((3, 1))}, truth, DatasetSpec("forecast", (), ())
    )
    assert np.isnan(get_task("forecast").primary.compute(found))
    assert get_task("forecast").metric("mae").compute(found) == 1


@pytest.mark.parametrize(
    ("shape", "fits"), [((4, 3, 2), True), ((4, 6), True), ((4, 2, 3), False), ((3, 6), False)]
)
def test_forecasts_of_another_shape_are_refused(shape, fits):
    truth = {"value": np.ones((4, 3, 2)), "scale": np.ones((4, 2)), "block": np.arange(4)}
    judge = get_task("forecast").evaluate
    if fits:
        assert len(judge({"y": np.zeros(shape)}, truth, DatasetSpec("forecast", (), ()))) == 4
    else:
        with pytest.raises(SpecMismatch, match=r"must have the shape \(4, 3, 2\)"):
            judge({"y": np.zeros(shape)}, truth, DatasetSpec("forecast", (), ()))


def test_blocks_end_anywhere(tmp_path, monkeypatch):
    numbers = put_series(tmp_path / "a.csv", 50)
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(_number_table, "_BLOCK", size)
        np.testing.assert_array_equal(
            _number_table.read_numbers(tmp_path / "a.csv", ("load, total", "heat")),
            numbers[:, ::-1],
        )
    whole = (tmp_path / "a.csv").read_text("utf-8").replace("\n", "\r\n").rstrip()
    (tmp_path / "a.csv").write_bytes(whole.encode())
    np.testing.assert_array_equal(
        _number_table.read_numbers(tmp_path / "a.csv", ("heat",)), numbers[:, :1]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a name for each column"),
        ("a,a\n1,2\n", "no two alike"),
        ("b\n1\n", "has no column 'a'"),
        ("a,b\n", "names of columns, and no rows"),
        ("a,b\n1,2\n,4\n", "line 3: '' in column a is no number; fill gaps, and choose"),
        ("a,b\n1,2\nnan,4\n", "line 3: 'nan' in column a is no number"),
        ("b,a\n1,2\n3\n", "line 3: 1 cells, and there are 2 columns"),
        ("a,b\n1,2\n1e99,4\n", "line 3: '1e99' in column a is no number"),
        ("a,b\n1,2\n3,4\n", "has 2 rows; a window of 24"),
        ("a\n" + 6_000_000 * "1", "a line of more than 1,048,576 characters"),
        ("a\0,b\n1,2\n", "has no column 'a'|name for each column"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(DatasetError, match=message) as caught:
        SeriesDataset(dataset_root=path, columns=("a",)).prepare()
    assert "\n" not in str(caught.value)
