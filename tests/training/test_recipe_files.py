"""Trainings as files: they build without code, start from recorded weights, and go on to the bit
after a kill.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.state_file import read_state, to_bytes
from nnpipe.scenarios.experiment import main
from nnpipe.scenarios.runs import main as runs_main
from nnpipe.training.experiment import Training
from nnpipe.training.final_weights import StartingWeights
from nnpipe.training.sequences.dataset import DatasetSequence

FILES = {
    path.stem: path for path in (Path(__file__).parents[2] / "examples" / "recipes").glob("*.yaml")
}
BEFORE = {"distillation": "distillation_teacher", "quantised": "quantised_before"}
"""The training whose weights a recipe starts from."""


def test_every_recipe_is_there_without_code() -> None:
    programs = {path.stem for path in FILES["gan"].parent.glob("*.py")}
    assert programs <= FILES.keys()
    assert FILES.keys() - programs == {"fine_tune_before", *BEFORE.values()}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_recipe_is_a_short_file_that_builds(name: str) -> None:
    assert len(FILES[name].read_text("utf-8").splitlines()) <= 80
    parts = Configuration.read(FILES[name]).build()
    assert isinstance(parts["experiment"], Training)


def test_classes_can_be_chosen_and_are_numbered_anew() -> None:
    from nnpipe.datasets.digits import DigitsDataset

    sequence = DatasetSequence(DigitsDataset(), "test", batch=64, only={"label": [7, 3]})
    batches = list(sequence)
    assert [len(batch["label"]) for batch in batches] == sequence.sizes()
    _, truth = DigitsDataset().read(np.concatenate([batch["sample_id"] for batch in batches]))
    labels = np.concatenate([batch["label"] for batch in batches])
    assert truth["label"].tolist() == np.array([7, 3])[labels].tolist()
    with pytest.raises(ConfigError, match="only names 'kind'"):
        len(DatasetSequence(DigitsDataset(), "test", only={"kind": [1]}))


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        run = database.runs.create("base")
        start = StartingWeights(run="base", model=torch.nn.Linear(1, 1))
        with pytest.raises(ConfigError, match="is created; complete it first"):
            start.load(database)
        database.runs.enter(run, "running")
        database.runs.enter(run, "completed")
        with pytest.raises(ConfigError, match=r"has no checkpoints/best\.state"):
            start.load(database)


def carried_out(name: str, *more: str) -> None:
    assert main([str(FILES[name]), "--verbosity", "error", *more]) == 0


def record(folder: Path, *names: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in names:
            carried_out(name)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recipes"), "fine_tune_before", "fine_tune")


def states(folder: Path) -> Any:
    state = read_state(folder / "checkpoints" / "last.state", kind="training checkpoint")
    del state["callbacks"]  # they keep how long an epoch took
    return to_bytes(state, kind="training checkpoint")


@pytest.mark.slow
def test_what_is_fine_tuned_is_found_below_what_it_started_from(recorded: Path) -> None:
    with RunDatabase(recorded / "runs.sqlite") as database:
        before, after = database.runs.get("fine_tune_before"), database.runs.get("fine_tune")
        assert after.parents == (before.id,)
        condition = f"parent = {before.id} and statistics.digits/test/digit/accuracy > 0.9"
        assert [run.id for run in database.runs.find(condition)] == [after.id]
        by_setting = "configuration.experiment.arguments.step.arguments.later = layers"
        assert [run.id for run in database.runs.find(by_setting)] == [after.id]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["fine_tune", "quantised"])
def test_it_goes_on_to_the_bit_after_kills(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    import shutil

    recorded = record(tmp_path_factory.mktemp(name), f"{name}_before", name)
    for kept in ("runs.sqlite", "runs.sqlite.artifacts"):
        (shutil.copytree if (recorded / kept).is_dir() else shutil.copy)(
            recorded / kept, tmp_path / kept
        )
    command = [sys.executable, "-m", "nnpipe", "experiment", str(FILES[name]), "--name", "again"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    checkpoint = tmp_path / "runs" / "again" / "checkpoints" / "last.state"
    seen = None
    for _ in range(2):
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and (
            not checkpoint.exists() or checkpoint.read_bytes() == seen
        ):
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        seen = checkpoint.read_bytes()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=280)
    assert states(tmp_path / "runs" / "again") == states(recorded / "runs" / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "figure", "least"),
    [
        ("distillation", "digits/test/digit/accuracy", 0.9),
        ("contrastive", "digits/test/features/recall_at_1", 0.9),
        ("segmentation", "digits/test/ink/mean_iou", 0.8),
        ("gan", "digits/train/drawn/accuracy", 0.5),
        ("language_model", "text/test/next/accuracy", 0.9),
        ("quantised", "digits/test/digit/accuracy", 0.95),
        ("detection", "pictures/test/squares/map", 0.5),
        ("keywords", "sounds/test/word/accuracy", 0.9),
        ("tabular", "rows/test/label/roc_auc", 0.9),
    ],
)
def test_a_recipe_works(
    name: str,
    figure: str,
    least: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = BEFORE.get(name)
    if before:
        carried_out(before)
    carried_out(name)
    with RunDatabase("runs.sqlite") as database:
        run = database.runs.get(name)
        assert run.statistics[figure] > least
        assert [
            found.id
            for found in database.runs.find(
                f"statistics.{figure} > {least} and experiment = {name}"
            )
        ] == [run.id]
        assert run.parents == ((database.runs.get(before).id,) if before else ())
    if before:
        capsys.readouterr()
        assert runs_main(["tree", name]) == 0
        assert re.search(rf"^{before} .*\n└─ {name} ", capsys.readouterr().out, re.M)
