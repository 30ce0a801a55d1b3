"""Callbacks that run in some epochs only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ComponentNotFound, ConfigError, TrainingError
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.resource_monitor import NanWatch
from nnpipe.training.callbacks.selection import SkipEpochs, choose
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


class Noting(Callback):
    def __init__(self) -> None:
        self.state = State(seen=[])

    def _note(self, name: str, epoch: int) -> None:
        if [name, epoch] not in self.state.seen:
            self.state.seen.append([name, epoch])


for hook in (
    "on_fit_begin",
    "on_epoch_begin",
    "on_batch_begin",
    "on_batch_end",
    "on_evaluate_batch",
    "on_epoch_end",
    "on_fit_end",
):
    setattr(Noting, hook, lambda self, fit, *_, hook=hook: self._note(hook, fit.epoch))


def train(callback: Callback, *others: Callback, epochs: int = 5, folder: Any = None) -> None:
    trainer = Trainer(TrainerOptions(num_epochs=epochs), [callback, *others])
    trainer.fit(toys.fresh(), toys.sequences(32), folder=folder)


def test_callbacks_run_in_every_second_epoch_and_the_last_one() -> None:
    noting = Noting()
    train(SkipEpochs([noting], every=2))
    seen = noting.state.seen
    inner = [
        "on_epoch_begin",
        "on_batch_begin",
        "on_batch_end",
        "on_evaluate_batch",
        "on_epoch_end",
    ]
    assert seen == [
        ["on_fit_begin", 0],
        *([name, epoch] for epoch in (2, 4, 5) for name in inner),
        ["on_fit_end", 5],
    ]


def test_their_states_are_part_of_checkpoints(tmp_path: Path) -> None:
    first, second = Noting(), Noting()
    train(SkipEpochs([first], every=2), folder=tmp_path, epochs=2)
    train(SkipEpochs([second], every=2), folder=tmp_path, epochs=2)
    assert second.state.seen[:-2] == first.state.seen[:-1]


def test_they_can_be_named() -> None:
    (found,) = choose(
        ["SkipEpochs:callbacks=['NanWatch:every=3'],every=4"], framework="torch", known={}
    )
    assert isinstance(found, SkipEpochs)
    assert found.every == 4
    assert isinstance(found.callbacks[0], NanWatch)
    assert found.callbacks[0].every == 3
    with pytest.raises(ComponentNotFound, match="NanWacht"):
        SkipEpochs(["NanWacht"])
    with pytest.raises(ConfigError, match="every is 0; it takes 1 or more"):
        SkipEpochs([], every=0)


def test_all_are_closed_even_if_one_fails() -> None:
    closed = []

    class Failing(Callback):
        def close(self) -> None:
            closed.append(self)
            raise ZeroDivisionError("oh")

    with pytest.raises(TrainingError, match=r"SkipEpochs\.close failed .*ZeroDivisionError: oh"):
        train(SkipEpochs([Failing(), Failing()]), epochs=1)
    assert len(closed) == 2
