"""The learning-rate finder: it finds the fall, and the training does not notice it."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
import training_toys as toys

from nnpipe.core.errors import TrainingError
from nnpipe.training.callbacks.learning_rate import (
    LearningRateFinder,
    find_steepest_rate,
    smooth_losses,
)
from nnpipe.training.optimization import SGD
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def test_it_tries_rising_rates_and_changes_nothing(tmp_path: Path) -> None:
    watched, alone = toys.fresh(), toys.fresh()
    finder = LearningRateFinder(1e-4, 100.0, 40)
    for model, callbacks, folder in ((watched, [finder], tmp_path), (alone, [], None)):
        Trainer(TrainerOptions(num_epochs=1), callbacks).fit(
            model, toys.sequences(), folder=folder, optimiser=SGD()
        )
    assert toys.equal(toys.weights(watched), toys.weights(alone))
    rows = json.loads((tmp_path / "tables" / "learning_rate_finder.json").read_text())
    rates, losses = [row["rate"] for row in rows], [row["loss"] for row in rows]
    assert np.diff(np.log(rates)) == pytest.approx(np.log(1e6) / 39)
    assert rates[0] == 1e-4
    assert rates[-1] < 100  # the loss grew too large before
    assert min(losses) < 0.9 * losses[0]
    assert (
        1e-3 < find_steepest_rate(rates, smooth_losses(losses)) < rates[int(np.argmin(losses))] * 10
    )


def test_what_cannot_be_tried_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="needs 0 < lowest < highest"):
        Trainer(TrainerOptions(num_epochs=1), [LearningRateFinder(1.0, 0.1)]).fit(
            toys.fresh(), toys.sequences(), folder=tmp_path
        )


def test_several_optimisers_cannot_be_tried(tmp_path: Path) -> None:
    optimisers = {"layers.0": SGD(), "layers.4": SGD()}
    with pytest.raises(
        TrainingError, match=r"with one optimiser; this training has layers\.0, layers\.4"
    ):
        Trainer(TrainerOptions(num_epochs=1), [LearningRateFinder()]).fit(
            toys.fresh(), toys.sequences(), folder=tmp_path, optimiser=optimisers
        )


def test_the_steepest_fall_and_smoothing() -> None:
    rates = np.logspace(-5, 0, 101).tolist()
    # falls most at 0.01
    losses = [1 - 1 / (1 + np.exp(-4 * (np.log10(rate) + 2))) for rate in rates]
    assert find_steepest_rate(rates, losses) == pytest.approx(0.01)
    assert smooth_losses([3.0] * 5) == pytest.approx([3.0] * 5)
