"""A running training, as callbacks see it."""

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
    """A running training, which :meth:`Trainer.fit <nnpipe.training.trainer.Trainer.fit>` gives to callbacks.

    Callbacks may read all attributes; to change the training they may only call :meth:`stop`.

    Attributes
    ----------
    model
        The ``torch.nn.Module`` itself, neither compiled nor distributed.
    optimiser
        The ``torch.optim.Optimizer``.
    datasets
        Sequences by data set and split.
    folder
        The run's folder, which names its files; None if nothing is written.
    epoch
        The current epoch, counted from 1; 0 before the first one.
    batch
        Number of training batches of this epoch so far.
    step
        Number of optimiser steps so far.
    history
        A row for each epoch, with ``epoch``, ``step``, ``learning_rate`` and figures
        named ``dataset/split/loss`` and ``dataset/split/output/metric``.
    dataset
        The data set of the current batch.
    gradient_norm
        The norm of all gradients before clipping, a scalar tensor; None unless ``clip_norm`` is set.
    best_epoch, best
        The best epoch so far, 0 if there is none, and its monitored figure.
    waited
        Number of evaluations since the best epoch.
    final
        Which weights the model has at the end; set before ``on_fit_end``.
    stopping
        Why the training ends after this epoch; empty if it does not.
    log
        The logger for messages to the user.
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
        """The model's framework, ``"torch"`` or ``"keras"``; see :attr:`Callback.frameworks
        <nnpipe.training.callbacks.callback.Callback>`."""
        return "torch"

    @property
    def device(self) -> str:
        """The device of the model: ``"cpu"`` or ``"cuda"``."""
        return self.options.device

    @property
    def rates(self) -> list[float]:
        """The learning rate of each group of the optimiser at the last step."""
        return [float(group["lr"]) for group in self.optimiser.param_groups]

    def generator(self, purpose: str, *numbers: int) -> np.random.Generator:
        """Return a generator that depends only on the run's seed, a purpose and numbers (epoch, sample, ...)."""
        return generator(self.options.seed, purpose, *numbers)

    def stop(self, reason: str) -> None:
        """Stop the training after this epoch, for a reason that is logged."""
        self.stopping = self.stopping or reason

    def state_dict(self) -> dict[str, Any]:
        """Return the values that a resumed run needs."""
        names = ("epoch", "batch", "step", "best_epoch", "best", "waited", "stopping")
        return {name: getattr(self, name) for name in names} | {"history": self.history.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.history.load_state_dict(state["history"])
        for name, value in state.items():
            if name != "history":
                setattr(self, name, value)
