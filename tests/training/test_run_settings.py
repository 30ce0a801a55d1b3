"""Another training in the folder of a run is refused, and each setting that differs is named."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.state_file import read_state, write_state
from nnpipe.training.checkpoints import CHECKPOINT
from nnpipe.training.optimization import SGD, AdamW, Cosine, Exponential, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer


def data(size: int = 16, changed: int | None = None, **more: Any) -> dict[str, Any]:
    arrays = toys.blobs(100)
    if changed is not None:
        arrays["label"][changed] = (arrays["label"][changed] + 1) % 3
    sequence = ArraySequence(arrays, batch=size, sampler=RandomSampler(), **{"seed": 1, **more})
    return {"blobs": {"train": sequence, "test": ArraySequence(toys.blobs(20, 1))}}


def wider() -> Any:
    model = toys.fresh()
    model.layers[2] = torch.nn.GELU()
    return model


def step(gamma: float) -> TorchSchedule:
    return TorchSchedule(
        make=lambda optimiser: torch.optim.lr_scheduler.StepLR(optimiser, 2, gamma)
    )


FIRST: dict[str, Any] = {"optimiser": AdamW(rate=0.01), "schedule": Exponential(gamma=0.9)}


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({}, {"optimiser": AdamW(rate=0.02)}, r"optimiser\.lr was 0\.01 and is 0\.02"),
        (
            {},
            {"optimiser": SGD(rate=0.01)},
            r"optimiser\.class was 'torch\.optim\.adamw\.AdamW' and is '.*SGD'",
        ),
        ({}, {"schedule": Exponential(gamma=0.8)}, r"schedule\.gamma was 0\.9 and is 0\.8"),
        ({}, {"schedule": None}, r"schedule\.class was '.*Exponential' and is 'none'"),
        ({"schedule": step(0.5)}, {"schedule": step(0.4)}, r"schedule\.gamma was 0\.5 and is 0\.4"),
        (
            {"schedule": Cosine()},
            {"schedule": Cosine(), "num_epochs": 4},
            r"schedule\.steps of the training was 14 and",
        ),
        ({}, {"data": data(8)}, r"data\.blobs/train\.batch was 16 and is 8"),
        ({}, {"data": data(changed=3)}, r"data\.blobs/train\.content was '\w{16}' and is '\w{16}'"),
        ({}, {"data": data(seed=2)}, r"data\.blobs/train\.seed was 1 and is 2"),
        ({}, {"seed": 5}, r"seed was 0 and is 5"),
        ({}, {"model": wider}, r"structure\.layers\.2 was 'ReLU\(\)' and is .GELU\(.*\)"),
        ({}, {"identity": {"rows": 3}}, r"rows was not there and is 3"),
    ],
)
def test_the_setting_that_differs_is_named_with_both_values_and_the_way_on(
    first: dict[str, Any], second: dict[str, Any], named: str, tmp_path: Path
) -> None:
    fit(tmp_path, **{**FIRST, **first})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(
        ConfigError,
        match=(
            rf"started with different settings: {named}.*; use another folder, or begin anew "
            rf".*resume="
        ),
    ):
        fit(tmp_path, **{**FIRST, **second})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "checkpoints" / "last.state").unlink()
    with pytest.raises(ConfigError, match=named):  # also where no checkpoint was made yet
        fit(tmp_path, **{**FIRST, **second})


def fit(folder: Path, **given: Any) -> Any:
    model = given.pop("model", toys.fresh)()
    kept = {
        name: given.pop(name) for name in ("optimiser", "schedule", "identity") if name in given
    }
    sequences = given.pop("data", None) or data()
    asked = TrainerOptions.from_json({"num_epochs": 2, **given})
    return Trainer(asked, ()).fit(model, sequences, folder=folder, **kept)


def test_all_that_differ_are_named(tmp_path: Path) -> None:
    fit(tmp_path, **FIRST)
    with pytest.raises(
        ConfigError, match=r"seed was 0 and is 5, optimiser\.lr .*, data\.blobs/train\.batch was 16"
    ):
        fit(
            tmp_path,
            optimiser=AdamW(rate=0.1),
            schedule=Exponential(gamma=0.9),
            seed=5,
            data=data(8),
        )


def test_what_changes_nothing_is_no_other_training(tmp_path: Path) -> None:
    fit(tmp_path, **FIRST)
    alike = functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.01, foreach=False)
    history = fit(
        tmp_path, optimiser=alike, schedule=Exponential(gamma=0.9), num_epochs=3, patience=9
    )
    assert len(history) == 3


def test_a_run_from_before_these_settings_were_kept_goes_on(tmp_path: Path) -> None:
    history = fit(tmp_path, **FIRST)
    path = tmp_path / "checkpoints" / "last.state"
    state = read_state(path, kind=CHECKPOINT)
    for name in ("optimiser", "schedule", "data", "structure"):
        del state["course"][name]
    state["fit"]["history"] = {"rows": list(history.rows())}  # as it once was
    write_state(path, state, kind=CHECKPOINT)
    assert list(fit(tmp_path, **FIRST, num_epochs=3).rows())[:2] == list(history.rows())


@pytest.mark.slow
def test_equal_sequences_have_equal_fingerprints_in_any_process(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys, json; sys.path[:0] = json.loads(sys.argv[1])\n"
        "import test_run_settings\nprint(json.dumps(test_run_settings.data()['blobs']['train'].map(len).fingerprint()))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, json.dumps([str(Path(__file__).parent), *sys.path])],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(answer.stdout) == json.loads(
        json.dumps(data()["blobs"]["train"].map(len).fingerprint())
    )


def test_of_large_data_some_samples_count() -> None:
    from nnpipe.training.sequences._content_digest import compute_digest

    large = np.zeros((200, 100_000), np.uint8)
    one = compute_digest({"x": large})
    large[0] += 1
    assert compute_digest({"x": large}) != one
