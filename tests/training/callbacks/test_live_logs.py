"""What follows a training while it goes on: the table of the history, MLflow, Weights & Biases,
the best figures.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ComponentNotFound, TrainingError
from nnpipe.core.registry import find
from nnpipe.training._best_epoch import less_is_better
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.history import BestFigures, HistoryTable
from nnpipe.training.callbacks.tracking import MlflowLog, WandbLog
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def fit(folder: Path, *callbacks: Callback, **options: Any) -> Any:
    asked = TrainerOptions.from_json({"num_epochs": 3, **options})
    return Trainer(asked, callbacks).fit(toys.fresh(), toys.sequences(32, 20), folder=folder)


class Kill(Callback):
    """Stops a training in an epoch as a kill would."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def on_epoch_end(self, fit: Any) -> None:
        if fit.epoch == self._epoch:
            raise RuntimeError("killed")


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "tables" / "live.csv").read_text().splitlines()))


def test_the_table_has_a_line_when_an_epoch_ends(tmp_path: Path) -> None:
    seen: list[int] = []

    class Reader(Callback):
        def on_epoch_end(self, fit: Any) -> None:
            seen.append(len(rows(tmp_path)))

    history = fit(tmp_path, HistoryTable(), Reader(), evaluate_every=2)
    assert seen == [1, 2, 3]
    found = rows(tmp_path)
    assert [float(row["blobs/train/loss"]) for row in found] == history["blobs/train/loss"].tolist()
    # The first epoch had no evaluation: its columns came with the second.
    assert [row["blobs/test/loss"] != "" for row in found] == [False, True, True]


def test_a_killed_run_has_each_line_once(tmp_path: Path) -> None:
    fit(tmp_path / "whole", HistoryTable())
    with pytest.raises(TrainingError, match="killed"):
        fit(tmp_path / "killed", HistoryTable(), Kill(2))
    assert len(rows(tmp_path / "killed")) == 2  # the second epoch is not in the checkpoint
    fit(tmp_path / "killed", HistoryTable())
    tables = [
        (tmp_path / name / "tables" / "live.csv").read_bytes() for name in ("whole", "killed")
    ]
    assert tables[0] == tables[1]


def test_the_best_figures_are_told_with_their_epochs(tmp_path: Path) -> None:
    history = fit(tmp_path, BestFigures())
    found = {
        row["figure"]: row for row in json.loads((tmp_path / "tables" / "best.json").read_text())
    }
    losses, accuracies = history["blobs/test/loss"], history["blobs/test/label/accuracy"]
    assert found["blobs/test/loss"]["best"] == losses.min()
    assert found["blobs/test/loss"]["best_epoch"] == 1 + losses.argmin()
    assert found["blobs/test/label/accuracy"]["best"] == accuracies.max()
    assert found["blobs/test/label/accuracy"]["last"] == accuracies[-1]
    assert found["blobs/test/loss"]["first"] == losses[0]


@pytest.mark.parametrize(
    ("figure", "less"),
    [
        ("d/test/loss", True),
        ("d/test/a/top5", False),
        ("d/test/a/macro_f1", False),
        ("d/test/a/calibration_error", True),
        ("d/test/a/foreign", None),
    ],
)
def test_which_figures_are_better_where_they_are_less(figure: str, less: bool | None) -> None:
    assert less_is_better(figure) is less


def test_what_is_an_option_of_the_trainer_is_said_where_it_is_looked_for() -> None:
    assert find("CallbackReportingBestMetrics", Callback) is BestFigures
    with pytest.raises(ComponentNotFound, match="patience"):
        find("CallbackEarlyStopping", Callback)


@pytest.mark.slow
def test_mlflow_has_each_epoch_once_also_after_a_kill(tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    pytest.importorskip("alembic", reason="alembic is not installed")
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    log = lambda: MlflowLog(address, experiment="blobs")  # noqa: E731
    with pytest.raises(TrainingError, match="killed"):
        fit(tmp_path / "run", HistoryTable(), log(), Kill(2))
    client = tracking.MlflowClient(address)
    experiment = client.get_experiment_by_name("blobs").experiment_id
    (live,) = client.search_runs([experiment])
    assert (live.info.status, live.data.metrics["epoch"]) == ("RUNNING", 2)
    history = fit(tmp_path / "run", HistoryTable(), log())
    (run,) = client.search_runs([experiment])
    assert (run.info.status, run.data.params["num_epochs"]) == ("FINISHED", "3")
    losses = client.get_metric_history(run.info.run_id, "blobs/test/loss")
    assert [m.value for m in losses] == history["blobs/test/loss"].tolist()
    assert [m.step for m in losses] == history["step"].tolist()
    assert "tables/live.csv" in [
        file.path for file in client.list_artifacts(run.info.run_id, "tables")
    ]


@pytest.mark.slow
def test_wandb_keeps_an_offline_run_of_all_epochs(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    try:
        history = fit(tmp_path / "run", WandbLog(project="blobs"))
    finally:
        wandb.teardown()  # its process, which serves all runs of a program
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    losses = [
        json.loads(values["blobs/test/loss"])
        for values in logged(path)
        if "blobs/test/loss" in values
    ]
    assert losses == history["blobs/test/loss"].tolist()


def logged(path: Path) -> Iterator[dict[str, str]]:
    """Read a file of Weights & Biases: records in blocks of 32 KiB, as in LevelDB's logs, after
    7 bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, part = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        rest = 32768 - place % 32768
        if rest < 7:
            place += rest
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        part += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(part)
            part = b""
            if record.WhichOneof("record_type") == "history":
                yield {
                    item.key or "/".join(item.nested_key): item.value_json
                    for item in record.history.item
                }
