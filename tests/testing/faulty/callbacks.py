"""Callbacks that each break the contract in one way, under the suite that must tell;
test_callback.py runs this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from nnpipe.core.discoverable import Option
from nnpipe.experiment.state import State
from nnpipe.testing.callback import CallbackContract
from nnpipe.training.callbacks.callback import Callback


class Counting(Callback):
    """Counts the steps of a training, as it should be done.

    Parameters
    ----------
    start
        What to count from.
    """

    frameworks: ClassVar[tuple[str, ...]] = ("torch", "keras")

    def __init__(self, start: int = 0) -> None:
        self.state = State(steps=start)

    def on_batch_end(self, fit: Any, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        self.state.steps += 1


class TestCounting(CallbackContract):
    made: ClassVar[type[Callback]] = Counting

    @pytest.fixture
    def callback(self) -> Callback:
        return type(self).made()


class Foreign(Counting):
    """Looks on trainings that there are none of."""

    frameworks = ("jax",)


class TestForeign(TestCounting):
    made = Foreign


class Aimless(Counting):
    """Looks on no training."""

    frameworks = ()


class TestAimless(TestCounting):
    made = Aimless


class Unexplained(Counting):
    """Has an option that nothing is said of."""

    def __init__(self, start: int = 0, often: int = 1) -> None:
        super().__init__(start)


class TestUnexplained(TestCounting):
    made = Unexplained


class Unprepared(Counting):
    """Closes what a training opens."""

    def on_fit_begin(self, fit: Any) -> None:
        self.file = (fit.folder / "steps.txt").open("w")

    def close(self) -> None:
        self.file.close()


class TestUnprepared(TestCounting):
    made = Unprepared


class Meddling(Counting):
    """Changes weights."""

    def on_batch_end(self, fit: Any, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        for parameter in fit.model.parameters():
            parameter.data += 1e-3


class TestMeddling(TestCounting):
    made = Meddling


class Drawing(Counting):
    """Draws random numbers that the training would have had."""

    def on_batch_end(self, fit: Any, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        import torch

        torch.rand(1)


class TestDrawing(TestCounting):
    made = Drawing


class Resting(Counting):
    """Leaves the model as if it were not trained."""

    def on_batch_begin(self, fit: Any, batch: dict[str, Any]) -> None:
        fit.model.eval()


class TestResting(TestCounting):
    made = Resting


class Hooking(Counting):
    """Leaves hooks on layers."""

    def on_fit_begin(self, fit: Any) -> None:
        fit.model.register_forward_hook(lambda *_: None)


class TestHooking(TestCounting):
    made = Hooking


class Freezing(Counting):
    """Takes parameters out of the training that comes next."""

    def on_fit_end(self, fit: Any) -> None:
        next(fit.model.parameters()).requires_grad_(False)


class TestFreezing(TestCounting):
    made = Freezing


class Littering(Counting):
    """Writes where the program was started."""

    def on_fit_end(self, fit: Any) -> None:
        Path("steps.txt").write_text(str(self.state.steps), "utf-8")


class TestLittering(TestCounting):
    made = Littering


class Forgetful(Counting):
    """Keeps what it needs where no checkpoint has it."""

    def __init__(self, start: int = 0) -> None:
        super().__init__(start)
        self.epochs = 0

    def on_epoch_end(self, fit: Any) -> None:
        self.epochs += 1
        assert self.epochs == fit.epoch


class TestForgetful(TestCounting):
    made = Forgetful


class Shaking(Counting):
    """Changes the weights of a model of Keras."""

    def on_epoch_end(self, fit: Any) -> None:
        fit.model.set_weights([array + 1e-3 for array in fit.model.get_weights()])


class TestShaking(TestCounting):
    made = Shaking


# -- as all classes that are found by name ------------------------------------------------------


class _Hidden(Counting):
    """Has the name of a private class."""


class TestHidden(TestCounting):
    made = _Hidden


class TestLocal(TestCounting):
    @pytest.fixture
    def callback(self) -> Callback:
        class Local(Counting):
            """Lies in a function."""

        return Local()


class Silent(Counting):
    frameworks = ("torch",)


class TestSilent(TestCounting):
    made = Silent


class Stammering(Counting):
    """Names its options twice."""

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        return super().options() * 2


class TestStammering(TestCounting):
    made = Stammering


class Misspelt(Counting):
    """Needs what no package can be called."""

    requires = ("no package",)


class TestMisspelt(TestCounting):
    made = Misspelt
