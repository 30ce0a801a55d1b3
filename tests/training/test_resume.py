"""A run that is killed with -9 anywhere, and begun again, ends as one that never was: to the
last bit.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.experiment.state_file import read_state
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("undisturbed")


def points(seed: int, batches: int, writes: int) -> list[list[Any]]:
    """Random places: early and late, within a checkpoint's writing, and wherever time has it."""
    rng = random.Random(seed)
    kills = [["batch", rng.randint(1, batches)] for _ in range(4)]
    kills += [["write", rng.randint(1, writes)] for _ in range(3)]
    rng.shuffle(kills)
    later = kills[2:] + [["time", rng.random() * 0.1] for _ in range(4)]
    rng.shuffle(later)
    return kills[:2] + later  # a quick run may be through before its time has come


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("kind", "batches", "writes"),
    [
        pytest.param("plain", 8, 9, marks=pytest.mark.slow),  # the others do all that it does
        ("everything", 12, 9),
        pytest.param("scheduler", 8, 9, marks=pytest.mark.slow),
        pytest.param("workers", 8, 9, marks=pytest.mark.slow),
        pytest.param("steps", 12, 9, marks=pytest.mark.slow),
        pytest.param("control", 12, 12, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_random_points_ends_as_if_it_never_was(
    kind: str, batches: int, writes: int, seed: int, base: Path, tmp_path: Path
) -> None:
    # Starting workers anew takes seconds.
    kills = points(seed, batches, writes)[: 5 if kind == "workers" else None]
    if (kind, seed) == ("everything", 0):  # the one test of the quick run: a kill of each kind
        kills = list({kill[0]: kill for kill in kills}.values())
    undisturbed = {} if (base / kind).exists() else {base / kind: []}
    *_, (found, killed) = toys.killed(kind, {**undisturbed, tmp_path: kills}, 280)
    expected = read_state(base / kind / "result.state", kind="result")
    assert killed >= 2
    assert toys.equal(found["model"], expected["model"])
    assert repr(found["history"]) == repr(expected["history"])  # also where a figure is NaN
    assert found["drawn"] == expected["drawn"]
    checkpoints = {
        path.name: path.read_bytes() for path in (tmp_path / "checkpoints").glob("*.state")
    }
    assert {"last.state", "epoch-0002.state"} <= checkpoints.keys()
    for name, stored in checkpoints.items():
        assert stored == (base / kind / "checkpoints" / name).read_bytes(), name
    assert not list((tmp_path / "checkpoints").glob(".*"))


def fit(folder: Path, model: Any = None, resume: bool = True, **options: Any) -> Any:
    asked = TrainerOptions.from_json({"num_epochs": 2, **options})
    return Trainer(asked, ()).fit(
        model or toys.fresh(),
        toys.sequences(),
        folder=folder,
        resume=resume,
        optimiser=AdamW(rate=0.01),
    )


def test_a_run_that_is_through_gives_its_history_again(tmp_path: Path) -> None:
    model, again = toys.fresh(), toys.fresh(9)
    history = fit(tmp_path, model)
    assert list(fit(tmp_path, again).rows()) == list(history.rows())
    assert toys.equal(toys.weights(again), toys.weights(model))


def test_a_run_goes_on_for_more_epochs(tmp_path: Path) -> None:
    longer, whole = toys.fresh(), toys.fresh()
    fit(tmp_path / "a")
    history = fit(tmp_path / "a", longer, num_epochs=4)
    assert list(history.rows()) == list(fit(tmp_path / "b", whole, num_epochs=4).rows())
    assert toys.equal(toys.weights(longer), toys.weights(whole))


def test_a_run_is_begun_anew_where_that_is_asked_for(tmp_path: Path) -> None:
    history = fit(tmp_path)
    assert len(fit(tmp_path, num_epochs=1, resume=False)) == 1 < len(history)


def test_a_run_that_was_begun_otherwise_is_not_continued(tmp_path: Path) -> None:
    fit(tmp_path)
    before = (tmp_path / "checkpoints" / "last.state").read_bytes()
    with pytest.raises(
        ConfigError,
        match=r"last\.state: this run was started with different settings: seed was 0 and is 3",
    ):
        fit(tmp_path, seed=3)
    with pytest.raises(
        ConfigError,
        match=(
            r"last\.state: this run was started with different settings: .*structure\.layers\.0 "
            r"was 'Linear"
        ),
    ):
        fit(tmp_path, torch.nn.Linear(2, 2))
    assert (tmp_path / "checkpoints" / "last.state").read_bytes() == before


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    fit(tmp_path)
    path = tmp_path / "checkpoints" / "last.state"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"last\.state: damaged"):
        fit(tmp_path)


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path) -> None:
    fit(tmp_path)
    folder = tmp_path / "checkpoints"
    shutil.copy(folder / "last.state", folder / ".last.abcd.partial.state")
    fit(tmp_path, num_epochs=3)
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.state",
        "fit.history.rows.jsonl",
        "last.state",
    ]
