"""What a training is asked for, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


class TrainingOptions(Component):
    """Options that every trainable model understands."""

    num_epochs: int = argument(5, help="how often to go through the training samples", minimum=1)
    batch_size: int = argument(32, help="samples in one training step", minimum=1)
    learning_rate: float = argument(0.001, help="step size of the optimiser at the start", minimum=0.0)
    seed: int = argument(0, help="seed of initial weights, order of samples and dropout", minimum=0)
    logdir: Path | None = argument(None, help="folder for TensorBoard event files")
    run_folder: Path | None = argument(
        None,
        help="folder of the run: checkpoints, from which a training that was killed goes on, and index.html to look at",
    )

    callbacks: tuple[str, ...] = argument(
        ("default",),
        help="what looks on and writes pictures and tables into --run-folder: names of callbacks such as NanWatch, "
        "'default' for those that fit the task, 'none'",
    )
    resume: bool = argument(True, help="go on with the training in --run-folder that was killed; else begin anew")

    def validate(self) -> None:
        """Check what cannot work together."""
        if self.run_folder is None and not set(self.callbacks) <= {"default", "none"}:
            raise ConfigError(f"{', '.join(self.callbacks)}: callbacks write into a run's folder; give --run-folder")

    def course(self) -> dict[str, Any]:
        """Give the options on which the weights depend, as JSON: all but where things are written, and who looks on."""
        free = ("logdir", "run_folder", "callbacks", "resume")
        return {name: value for name, value in self.to_json().items() if name not in free}


@dataclass(frozen=True)
class TrainingHistory:
    """Figures after each epoch, by name: ``loss``, ``accuracy``, ``validation_loss``, ``validation_accuracy``, ..."""

    epochs: tuple[Mapping[str, float], ...]
