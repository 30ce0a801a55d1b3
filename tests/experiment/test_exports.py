"""Recorded runs read back from TensorBoard's and MLflow's own readers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.provenance import Origin

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")


@pytest.fixture
def database(tmp_path):
    with RunDatabase(tmp_path / "runs.sqlite") as opened:
        yield opened


@pytest.fixture
def run(database, tmp_path):
    run = database.runs.create("digits: ä/1", Configuration({"lr": 0.1, "a: b": ["x", None]}))
    database.runs.enter(run, "running")
    rows = [
        {"epoch": 5 * number, "loss": 1 / (number + 1), "odd: name": math.nan}
        for number in range(3)
    ]
    database.figures.put_history(run, "training", rows)
    database.figures.put_statistics(run, {"accuracy": 0.75})
    database.artifacts.put_state(run, "state", {"x": 1})
    database.put_origins(run, [Origin(path="a.B", module="a", package="p", version="1")])
    database.runs.advance(run, 3)
    database.runs.enter(run, "completed")
    return run


def test_tensorboard_reads_what_was_recorded(database, run, tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader",
        reason="TensorBoard is not installed",
    )
    from nnpipe.experiment.exports.export import to_tensorboard

    for _ in range(2):  # the second replaces the first
        own = to_tensorboard(database, run, tmp_path / "logs")
    assert own == tmp_path / "logs" / run
    (path,) = own.iterdir()
    found = [
        (value.tag, event.step, value.tensor.float_val[0] if value.tensor.float_val else None)
        for event in loader.EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]
    losses = [(step, value) for tag, step, value in found if tag == "training/loss"]
    assert losses == [(0, 1.0), (5, 0.5), (10, pytest.approx(1 / 3))]
    assert ("statistics/accuracy", 3, 0.75) in found
    assert any(tag.startswith("configuration") for tag, _, _ in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "{0}/mlruns",
        *(
            pytest.param(place, marks=pytest.mark.slow)
            for place in ("sqlite:///{0}/my.db", "file:{0}/mlruns", "file://{0}/mlruns")
        ),
    ],
)
def test_mlflow_has_what_was_recorded(database, run, tmp_path, monkeypatch, place):
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    pytest.importorskip(
        "alembic", reason="alembic is not installed, without which MLflow opens no database"
    )
    from nnpipe.experiment.exports.export import RUN_TAG, get_tracking_uri, to_mlflow

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    address = place.format(tmp_path)
    first, second = to_mlflow(database, run, address), to_mlflow(database, run, address)
    assert first != second
    client = tracking.MlflowClient(tracking_uri=get_tracking_uri(address))
    experiment = client.get_experiment_by_name("digits: ä/1")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == second
    assert found.info.status == "FINISHED"
    assert found.data.params == {"lr": "0.1", "a_ b.0": "x", "a_ b.1": "None"}
    assert found.data.metrics["accuracy"] == 0.75
    assert found.data.tags[RUN_TAG] == run
    assert found.data.tags["nnpipe.origin.a.B"] == "p 1"
    assert abs(found.info.start_time / 1000 - database.runs.get(run).started) < 0.001
    history = client.get_metric_history(second, "training/loss")
    assert [(metric.step, metric.value) for metric in history] == [(0, 1.0), (5, 0.5), (10, 1 / 3)]
    (artifact,) = client.list_artifacts(second, "state")
    stored = Path(client.download_artifacts(second, artifact.path, str(tmp_path)))
    assert stored.read_bytes() == database.artifacts.path(run, "state").read_bytes()
    assert not (tmp_path / "mlruns" / "0").exists()  # nothing of MLflow's old kind


def test_what_mlflow_lacks_for_a_database_is_told(database, run, tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    from nnpipe.experiment.exports.export import to_mlflow

    def lacking(**_):
        raise ModuleNotFoundError("No module named 'alembic'", name="alembic")

    monkeypatch.setattr(tracking, "MlflowClient", lacking)
    with pytest.raises(
        MissingDependency, match=r"needs alembic, .*pip install 'nnpipe\[tracking\]'"
    ):
        to_mlflow(database, run, f"sqlite:///{tmp_path / 'x.db'}")


def test_a_folder_of_an_older_mlflow_is_left_alone(database, run, tmp_path):
    pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    from nnpipe.experiment.exports.export import to_mlflow

    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: Default\n", "utf-8")
    with pytest.raises(ConfigError, match="mlflow migrate-filestore"):
        to_mlflow(database, run, str(tmp_path / "mlruns"))
    assert [path.name for path in (tmp_path / "mlruns").iterdir()] == ["0"]


def test_mlflow_that_is_not_there_is_one_line(database, run, monkeypatch):
    pytest.importorskip("mlflow.tracking", reason="MLflow is not installed")
    from nnpipe.experiment.exports.export import to_mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with pytest.raises(
        ConfigError, match=r"MLflow at http://user:\*\*\*@127\.0\.0\.1:1: "
    ) as caught:
        to_mlflow(database, run, "http://user:secret@127.0.0.1:1")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
