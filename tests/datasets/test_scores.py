"""Scores from files, and the command that judges them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from shared_data import shared_data

from nnpipe.core.errors import DatasetError
from nnpipe.datasets import anomaly_scores
from nnpipe.datasets.anomaly_scores import AnomalyScoresDataset
from nnpipe.scenarios.judge import main as judge
from nnpipe.testing.dataset import DatasetContract

NAMED = "clip,part,strange,value\n" + "".join(
    f"c{i // 2},{i % 2},{int(i >= 6)},{i * 0.25}\n" for i in range(10)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    path.write_text(NAMED, "utf-8")
    return path


class TestAnomalyScores(DatasetContract):
    @pytest.fixture
    def dataset(self, table):
        return AnomalyScoresDataset(
            dataset_root=table,
            score_column="value",
            kind_column="strange",
            clip_column="clip",
            validation_fraction=0,
        )

    def perfect(self, dataset, truth):
        return {"score": truth["anomalous"].astype(np.float64)}


def test_columns_are_named_or_numbered_and_kinds_follow_from_names(tmp_path, table):
    by_number = AnomalyScoresDataset(dataset_root=table, score_column="4", kind_column="3")
    by_name = AnomalyScoresDataset(dataset_root=table, score_column="value", kind_column="strange")
    for one, other in zip(by_number.read(np.arange(10)), by_name.read(np.arange(10)), strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])
    plain = tmp_path / "plain.csv"
    plain.write_text("normal_1.wav,1e-3\nanomaly_2.wav,2.5\n", "utf-8")
    scores, truth = AnomalyScoresDataset(dataset_root=plain).read(np.arange(2))
    np.testing.assert_array_equal(scores["score"], [1e-3, 2.5])
    np.testing.assert_array_equal(truth["anomalous"], [0, 1])


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", {}, "is empty"),
        ("a,1\nb\n", {}, "row 2: 1 cells, and the first row has 2"),
        ("a,1\nb,x\n", {}, "row 2: 'x' in column 2 is no number"),
        ("name,score\n", {}, "names of columns, and no rows"),
        (NAMED, {"score_column": "valeu"}, "no column 'valeu'.*did you mean value"),
        (NAMED, {"score_column": "9"}, "has 4 columns, and no column 9"),
        (
            NAMED,
            {"score_column": "4", "kind_column": "clip"},
            "row 2: 'c0' in column clip is neither 1 nor 0",
        ),
        ('a,"1\n', {}, "cannot be read as a table"),
        ("a," + "1" * (1 << 20) + "\n", {}, "a line of more than 1,048,576 characters"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_one_line(tmp_path, text, arguments, message):
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(DatasetError, match=message) as caught:
        AnomalyScoresDataset(dataset_root=path, **arguments).prepare()
    assert "\n" not in str(caught.value)


def test_a_table_of_too_many_cells_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(anomaly_scores, "_MOST_CELLS", 10)
    (tmp_path / "a.csv").write_text(6 * "a,1\n", "utf-8")
    with pytest.raises(DatasetError, match="more than 10 cells"):
        AnomalyScoresDataset(dataset_root=tmp_path / "a.csv").prepare()


def test_stored_scores_are_judged_by_a_command(tmp_path, capsys):
    scores = shared_data(
        "models/mlperf_tiny_ad/baseline_tf23_result/anomaly_score_ToyCar_id_01.csv"
    )
    out = tmp_path / "metrics.json"
    assert judge(["AnomalyScoresDataset", "--dataset-root", str(scores), "--output", str(out)]) == 0
    assert "0.889848" in capsys.readouterr().out
    metrics = json.loads(out.read_text("utf-8"))["metrics"]
    assert metrics["auc"]["value"] == pytest.approx(0.8898484848484849, abs=1e-12)
    assert metrics["pauc"]["value"] == pytest.approx(0.7520505809979494, abs=1e-12)
    assert metrics["auc"]["low"] < 0.8898484848484849 < metrics["auc"]["high"]


def test_a_data_set_without_predictions_is_refused(capsys):
    assert judge(["DigitsDataset"]) == 2
    assert "DigitsDataset holds no predictions that can be judged" in capsys.readouterr().err
