"""Options of a training, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


class TrainingOptions(Component):
    """Options that every trainable model understands.

    Examples
    --------
    >>> TrainingOptions(num_epochs=20, learning_rate=0.01).num_epochs
    20
    >>> TrainingOptions(num_epochs=0)
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.ConfigError: ...num_epochs...
    """

    num_epochs: int = argument(5, help="how often to go through the training samples", minimum=1)
    batch_size: int = argument(32, help="samples in one training step", minimum=1)
    learning_rate: float = argument(
        0.001, help="step size of the optimiser at the start", minimum=0.0
    )
    seed: int = argument(0, help="seed of initial weights, order of samples and dropout", minimum=0)
    logdir: Path | None = argument(None, help="folder for TensorBoard event files")
    run_folder: Path | None = argument(
        None,
        help=(
            "folder of the run: checkpoints, from which a killed training continues, pictures, "
            "tables, and index.html"
        ),
    )

    callbacks: tuple[str, ...] = argument(
        ("default",),
        help="callbacks that write pictures and tables into --run-folder: names such as NanWatch "
        "or NanWatch:every=5, 'default' for those that fit the task, 'none' for none",
    )
    weights: Literal["last", "best"] = argument(
        "last",
        help=(
            "which weights to keep: those after the last epoch, or of the epoch with the least "
            "validation loss"
        ),
    )
    resume: bool = argument(
        True, help="continue an interrupted training in --run-folder; otherwise begin a new one"
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if there are callbacks but no run folder."""
        if self.run_folder is None and not set(self.callbacks) <= {"default", "none"}:
            raise ConfigError(
                f"{', '.join(self.callbacks)}: callbacks write into a run's folder; give "
                f"--run-folder"
            )

    def get_weight_options(self) -> dict[str, Any]:
        """Return the options on which the weights depend, as JSON: all but output paths and
        observers.
        """
        free = ("logdir", "run_folder", "callbacks", "resume", "weights")
        return {name: value for name, value in self.to_json().items() if name not in free}


@dataclass(frozen=True)
class TrainingHistory:
    """Metrics after each epoch, by name: ``loss``, ``accuracy``, ``validation_loss``,
    ``validation_accuracy``, ...

    Attributes
    ----------
    epochs
        The metrics of each epoch.
    weights
        Which weights the model has at the end: ``"last"``, ``"best"`` or ``"average"``.
    epoch
        The epoch, counted from 1, after which the model had these weights; by default the last one.

    Examples
    --------
    >>> history = TrainingHistory(({"loss": 0.9}, {"loss": 0.4}))
    >>> history.epochs[-1]["loss"]
    0.4
    """

    epochs: tuple[Mapping[str, float], ...]
    weights: str = "last"
    epoch: int | None = None

    @property
    def figures(self) -> Mapping[str, float]:
        """The metrics of the weights that the model has."""
        return self.epochs[(self.epoch or len(self.epochs)) - 1] if self.epochs else {}

    def to_json(self) -> dict[str, Any]:
        """Return which weights the model has, in the JSON form of the description beside them."""
        return {
            "weights": self.weights,
            "epoch": self.epoch or len(self.epochs),
            "figures": dict(self.figures),
        }

    def __str__(self) -> str:
        which = {
            "last": "the last weights",
            "best": "the best weights",
            "average": "the weights' moving average",
        }
        said = (
            f"{which.get(self.weights, self.weights)}, after epoch {self.epoch or len(self.epochs)}"
        )
        return f"{said}: {', '.join(f'{name} {value:.4g}' for name, value in self.figures.items())}"
