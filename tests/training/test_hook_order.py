"""The order in which hooks are called, as docs/training.md states it."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.training import _loop
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.options import TrainerOptions
from nnpipe.training.step import default_step
from nnpipe.training.trainer import Trainer


def test_hooks_are_called_in_the_order_that_the_page_about_training_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    stated = re.findall(
        r"^ *(\w+(?: \w+)?)(?:  |$)", page.partition("```text order\n")[2].partition("```")[0], re.M
    )
    seen: list[str] = []

    def noted(owner: Any, name: str, word: str) -> None:
        before = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (seen.append(word), before(*a, **k))[1])

    noted(_loop.Checkpointer, "checkpoint", "checkpoint")
    noted(_loop.Checkpointer, "epoch", "checkpoint")
    noted(_loop.Evaluator, "evaluate", "evaluate")
    noted(_loop.Loop, "_choose_final_weights", "choose weights")

    def hooks(number: int) -> Callback:
        names = [name for name in vars(Callback) if name.startswith("on_") or name == "close"]
        own = {n: lambda *_, n=n: seen.append(f"{n} {number}") for n in names}
        return type("All", (Callback,), own)()

    def learn(fit: Any, batch: Any) -> Any:
        seen.append("learn")
        return default_step(fit, batch)

    data = {
        "d": {
            "train": toys.ArraySequence(toys.blobs(8), 8),
            "test": toys.ArraySequence(toys.blobs(8), 8),
        }
    }
    trainer = Trainer(TrainerOptions(num_epochs=1, checkpoint_every=1), [hooks(1), hooks(2)])
    trainer.fit(toys.fresh(), data, step=learn, folder=tmp_path)
    twice = ("on_", "close")
    expected = [
        f"{word}{one}"
        for word in stated
        for one in ((" 1", " 2") if word.startswith(twice) else ("",))
    ]
    expected[-2:] = ["close 2", "close 1"]
    assert seen == expected
