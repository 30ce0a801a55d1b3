"""The trainer on a GPU: the same course as on the CPU, without making the host wait at each
step.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)
import training_toys as toys

from nnpipe.core.errors import TrainingError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def fit(
    model: Any,
    *callbacks: Callback,
    folder: Path | None = None,
    datasets: Any = None,
    **options: Any,
) -> Any:
    asked = TrainerOptions.from_json(
        {"num_epochs": 3, "device": "cuda", "clip_norm": 1.0, **options}
    )
    return Trainer(asked, callbacks).fit(
        model,
        datasets or toys.sequences(),
        folder=folder,
        optimiser=AdamW(rate=0.01),
        schedule=Cosine(),
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_it_learns_what_the_cpu_learns(precision: str) -> None:
    on_gpu = fit(toys.fresh(dropout=0.0), precision=precision)
    on_cpu = fit(toys.fresh(dropout=0.0), device="cpu")
    close = 1e-3 if precision == "float32" else 0.05
    assert on_gpu["blobs/test/loss"] == pytest.approx(on_cpu["blobs/test/loss"], rel=close)


def test_no_step_makes_the_host_wait() -> None:
    class Strict(Callback):
        def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
            torch.cuda.set_sync_debug_mode("error" if 2 <= fit.batch < 40 else "default")

        def close(self) -> None:
            torch.cuda.set_sync_debug_mode("default")

    fit(
        toys.fresh(),
        Strict(),
        datasets=toys.sequences(45 * 16),
        num_epochs=1,
        ema_decay=0.9,
        accumulate=2,
    )


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_interrupted_run_goes_on(precision: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"precision": precision, "checkpoint_every": 3, "ema_decay": 0.9}
    whole, resumed = toys.fresh(), toys.fresh()
    history = fit(whole, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(toys.fresh(), toys.Interrupting(10), folder=tmp_path, **options)
    assert list(fit(resumed, folder=tmp_path, **options).rows()) == list(history.rows())
    assert toys.equal(toys.weights(resumed), toys.weights(whole))


def test_a_loss_that_is_no_number_is_noticed_by_the_end_of_the_epoch() -> None:
    sequences = toys.sequences()
    sequences["blobs"]["train"].arrays["x"][17] = float("nan")
    with pytest.raises(TrainingError, match=r"diverged in epoch 1, step \d, samples .*\b17\b"):
        fit(toys.fresh(), datasets=sequences)
