"""The training of ``training.py`` by other packages: PyTorch Lightning and ignite, with the same
figures.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch


def peers(make: Callable[[], Any], rate: float) -> dict[str, Callable[[Iterable[Any]], Any]]:
    """Return the trainings of the packages that are installed.

    Each takes batches, and returns the model, the mean loss and the accuracy.
    """
    found: dict[str, Callable[[Iterable[Any]], Any]] = {}
    if find_spec("lightning") is not None:
        found["Lightning"] = lambda batches: by_lightning(make(), batches, rate)
    if find_spec("ignite") is not None:
        found["ignite"] = lambda batches: by_ignite(make(), batches, rate)
    return found


def by_lightning(model: Any, batches: Iterable[Any], rate: float) -> Any:
    import lightning

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, number: int) -> Any:
            x, y = torch.from_numpy(batch["image"]), torch.from_numpy(batch["label"])
            logits = self.model.layers(x)
            loss = torch.nn.functional.cross_entropy(logits, y)
            right = (logits.argmax(1) == y).float().mean()
            self.log_dict(
                {"loss": loss, "accuracy": right}, on_step=False, on_epoch=True, batch_size=len(y)
            )
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.model.parameters(), lr=rate)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), batches)
    return (
        model,
        float(trainer.callback_metrics["loss"]),
        float(trainer.callback_metrics["accuracy"]),
    )


def by_ignite(model: Any, batches: Iterable[Any], rate: float) -> Any:
    from ignite.engine import Engine
    from ignite.metrics import Accuracy, Loss

    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()

    def step(engine: Any, batch: Any) -> Any:
        x, y = torch.from_numpy(batch["image"]), torch.from_numpy(batch["label"])
        logits = model.layers(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return logits.detach(), y

    engine = Engine(step)
    Accuracy().attach(engine, "accuracy")
    Loss(torch.nn.functional.cross_entropy).attach(engine, "loss")
    engine.run(batches, max_epochs=1)
    return model, engine.state.metrics["loss"], engine.state.metrics["accuracy"]
