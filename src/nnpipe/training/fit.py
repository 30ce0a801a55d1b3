"""A running training as callbacks see it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.experiment.history import History
from nnpipe.training._random import generator
from nnpipe.training.final_weights import FinalWeights
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_folder import RunFolder


@dataclass(eq=False)
class Fit:
    """A training under way: made by :meth:`Trainer.fit <nnpipe.training.trainer.Trainer.fit>`, given to callbacks.

    Callbacks may read all of it; they change it by :meth:`stop` only.

    Attributes
    ----------
    model
        The ``torch.nn.Module`` itself, neither compiled nor spread over processes.
    optimiser
        The ``torch.optim.Optimizer``.
    datasets
        By data set and split, the sequences.
    folder
        Names the run's files; None where nothing is written.
    epoch
        The epoch under way, from 1; before the first one 0.
    batch
        Batches of this epoch that were learned from.
    step
        Steps of the optimiser so far.
    history
        A row for each epoch, with ``epoch``, ``step``, ``learning_rate`` and figures
        called ``dataset/split/loss`` and ``dataset/split/output/metric``.
    dataset
        The data set of the batch in hand.
    gradient_norm
        A scalar tensor, the norm before clipping; None unless ``clip_norm`` is set.
    best_epoch, best
        The best epoch so far, 0 if none, and its monitored figure.
    waited
        Evaluations since then.
    final
        Which weights the model has at the end, known in ``on_fit_end``.
    stopping
        Why the training ends after this epoch; empty if it does not.
    log
        For messages to whoever runs the training.
    """

    model: Any
    optimiser: Any
    datasets: Mapping[str, Mapping[str, Any]]
    folder: RunFolder | None
    options: TrainerOptions
    history: History = field(default_factory=History)
    epoch: int = 0
    batch: int = 0
    step: int = 0
    dataset: str = ""
    gradient_norm: Any = None
    best_epoch: int = 0
    best: float = math.nan
    waited: int = 0
    stopping: str = ""
    final: FinalWeights | None = None
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("nnpipe.training"))

    @property
    def framework(self) -> str:
        """Whose model this is: ``"torch"`` or ``"keras"``; see :attr:`Callback.frameworks
        <nnpipe.training.callbacks.callback.Callback>`."""
        return "torch"

    @property
    def device(self) -> str:
        """Where the model computes: ``"cpu"`` or ``"cuda"``."""
        return self.options.device

    @property
    def rates(self) -> list[float]:
        """The learning rate of each group of the optimiser, as the last step used it."""
        return [float(group["lr"]) for group in self.optimiser.param_groups]

    def generator(self, purpose: str, *numbers: int) -> np.random.Generator:
        """Return random numbers that depend on the run's seed, a purpose and numbers (epoch, sample, ...) alone."""
        return generator(self.options.seed, purpose, *numbers)

    def stop(self, reason: str) -> None:
        """End the training after this epoch."""
        self.stopping = self.stopping or reason

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs of it."""
        names = ("epoch", "batch", "step", "best_epoch", "best", "waited", "stopping")
        return {name: getattr(self, name) for name in names} | {"history": self.history.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it back."""
        self.history.load_state_dict(state["history"])
        for name, value in state.items():
            if name != "history":
                setattr(self, name, value)
