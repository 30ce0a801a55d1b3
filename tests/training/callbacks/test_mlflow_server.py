"""MLflow's own server, opened over what a training wrote, gives back its run, its parameters and
its figures.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from installed import needs

# graphene: mlflow-skinny has no server
needs("torch", "safetensors", "mlflow", "alembic", "graphene")
import training_toys as toys

from nnpipe.experiment.history import History
from nnpipe.training.callbacks.history import HistoryTable
from nnpipe.training.callbacks.tracking import MlflowLog
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer

# the server imports for a quarter of a minute
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Served:
    """A training's history, and MLflow's server over the folder where it was logged."""

    address: str
    history: History

    def asked(self, call: str, send: Any = None, **query: str) -> Any:
        """Return the answer of MLflow's REST API, to a POST where something is sent."""
        data = None if send is None else json.dumps(send).encode()
        where = f"{self.address}/api/2.0/mlflow/{call}" + (f"?{urlencode(query)}" if query else "")
        with urlopen(
            Request(where, data, {"Content-Type": "application/json"}), timeout=60
        ) as answer:
            return json.load(answer)

    def experiment(self) -> str:
        return str(
            self.asked("experiments/get-by-name", experiment_name="blobs")["experiment"][
                "experiment_id"
            ]
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served") / "first-run"
    callbacks = (HistoryTable(), MlflowLog(experiment="blobs"))
    history = Trainer(TrainerOptions(num_epochs=3), callbacks).fit(
        toys.fresh(), toys.sequences(32, 20), folder=folder
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow/mlflow.db'}",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    log = folder / "server.log"
    with log.open("wb") as told:
        server = subprocess.Popen(
            command,
            stdout=told,
            stderr=told,
            cwd=folder,
            start_new_session=True,
            env={
                **os.environ,
                "MLFLOW_DISABLE_TELEMETRY": "true",
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/health", server, log)
        yield Served(address, history)
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # its workers, too
        server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 600
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(address, timeout=10):
                return
        except (URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"MLflow's server does not answer: {log.read_text(errors='replace')[-3000:]}")


def test_it_has_the_run_with_its_parameters_and_figures(served: Served) -> None:
    experiment, history = served.experiment(), served.history
    (run,) = served.asked("runs/search", {"experiment_ids": [experiment]})["runs"]
    assert (run["info"]["run_name"], run["info"]["status"]) == ("first-run", "FINISHED")
    assert {one["key"]: one["value"] for one in run["data"]["params"]}["num_epochs"] == "3"
    last = {one["key"]: one["value"] for one in run["data"]["metrics"]}
    told = {name: value for name, value in history.last.items() if name != "step"}
    assert {name: last[name] for name in told} == told
    identity = run["info"]["run_id"]
    for name in ("blobs/train/loss", "blobs/test/label/accuracy"):
        figures = served.asked("metrics/get-history", run_id=identity, metric_key=name)["metrics"]
        assert [one["value"] for one in figures] == history[name].tolist()
        assert [int(one["step"]) for one in figures] == history["step"].tolist()
    files = served.asked("artifacts/list", run_id=identity, path="tables")["files"]
    assert "tables/live.csv" in [one["path"] for one in files]


def test_its_page_shows_the_run(served: Served, browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(120_000)
    inside = f"{served.address}/"
    page.route(
        "**/*",
        lambda route: route.continue_() if route.request.url.startswith(inside) else route.abort(),
    )
    page.goto(f"{served.address}/#/experiments/{served.experiment()}/runs")
    page.get_by_text("first-run").first.wait_for()
    page.close()
