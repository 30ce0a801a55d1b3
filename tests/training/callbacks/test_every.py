"""What holds of every callback: it changes nothing of a training, and a kill changes nothing of
what it writes.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("safetensors", "matplotlib", "sklearn", "onnxruntime", "onnxscript", "tensorboardX", "PIL")
import every
import training_toys as toys
from sketches import sketching

from nnpipe.testing.callback import CallbackContract
from nnpipe.testing.trainings import WatchedTraining
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import find_callback_classes

_CLOCKS = {
    "index.html",
    "status.json",
    "tables/epochs.txt",
    "tables/profile.txt",
    "tables/resources.json",
    "pictures/resources.png",
    "profile/trace.json.gz",
    "tensorboard/events.out.tfevents.run",
}
"""Files that tell times, or how large those are that do."""


def flat(state: Any) -> Any:
    """Return a state in which everything can be compared by ``==``, bit by bit."""
    if isinstance(state, dict):
        return {name: flat(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [flat(value) for value in state]
    if isinstance(state, (torch.Tensor, np.ndarray)):
        array = np.asarray(state)
        return [str(array.dtype), list(array.shape), array.tobytes()]
    return state


class TestEveryCallback(CallbackContract):
    # The calls of a training with Keras are those of one with PyTorch, and
    # tests/training/test_resume.py kills one with all callbacks at once.
    repeats = (
        "test_a_training_with_keras_is_the_same_with_it",
        "test_a_training_with_pytorch_is_the_same_with_it_and_files_lie_in_its_folder",
        "test_a_training_that_was_interrupted_goes_on_with_it",
    )

    @pytest.fixture(autouse=True)
    def no_rendering(self) -> Iterator[None]:
        with sketching():  # the tests of each callback render
            yield

    # MLflow and Weights & Biases take seconds to begin a run.
    @pytest.fixture(
        params=[
            pytest.param(n, marks=pytest.mark.slow) if n in every.FOREIGN else n
            for n in every.named()
        ]
    )
    def callback(self, request: pytest.FixtureRequest) -> Callback:
        return every.made(request.param)

    @pytest.fixture
    def training(self) -> WatchedTraining:
        return WatchedTraining(every.model, every.data)


def test_every_callback_is_here() -> None:
    own = [
        name
        for name, cls in find_callback_classes().items()
        if cls.__module__.startswith("nnpipe.")
    ]
    assert own == sorted(every.named()), "tests/training/callbacks/every.py lacks a new callback"


def files(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("kills", "rendered"),
    [
        pytest.param([["batch", 7], ["end", 0]], False, marks=pytest.mark.slow),
        pytest.param([["batch", 7], ["end", 0]], True, marks=pytest.mark.slow),
        pytest.param(
            [["batch", 2], ["write", 9], ["batch", 4], ["end", 0]], True, marks=pytest.mark.slow
        ),
    ],
)
def test_a_run_killed_with_all_callbacks_ends_with_the_same_weights_history_and_files(
    kills: list[list[Any]], rendered: bool, tmp_path: Path
) -> None:
    folders = {tmp_path / "whole": [], tmp_path / "killed": kills}
    (expected, _), (found, times) = toys.killed("callbacks", folders, 1200, rendered)
    assert times == len(kills)
    assert flat(found) == flat(expected)
    own, others = files(tmp_path / "killed"), files(tmp_path / "whole")
    assert sorted(own) == sorted(others)
    assert len(own) > 50
    differ = {name for name in own if own[name].read_bytes() != others[name].read_bytes()}
    # A checkpoint holds the lines of the summary, with their times; its weights are compared above.
    lines = "checkpoints/callbacks.EpochSummary.state.lines.jsonl"
    assert differ <= _CLOCKS | {"checkpoints/last.state", "checkpoints/epoch-0002.state", lines}
