"""A running training, as callbacks see it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.files import replace_atomically
from nnpipe.experiment.history import History
from nnpipe.training._random import create_generator
from nnpipe.training._steps import Steps
from nnpipe.training._whole_metrics import Wanted
from nnpipe.training.final_weights import FinalWeights
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.output import Output
from nnpipe.training.run_folder import RunFolder


class PictureQueue:
    """Renders figures into files for at most a share of the time; of those that wait, the newest of
    each file is kept.

    To render a figure takes a tenth of a second or more.  In a training of short epochs that would
    be most of the time, for pictures that nobody can look at before they are replaced.

    Parameters
    ----------
    share
        How much of the time since the first figure may be spent on rendering, from 0 to 1.  The
        first figure of each file is rendered whatever it takes.
    clock
        Returns the time in seconds.
    """

    def __init__(self, share: float = 0.1, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._start: float | None = None
        self._spent = 0.0
        self._rendered: set[Path] = set()
        self._waiting: dict[Path, Any] = {}

    def add(self, path: Path, figure: Any, *, at_once: bool = False) -> None:
        """Render a matplotlib figure to a PNG file now, or keep it in place of an earlier one
        that waits.
        """
        if self._start is None:
            self._start = self._clock()
        self._waiting[path] = figure
        if at_once or path not in self._rendered:
            self._render(path)
        elif self._spent <= self._share * (self._clock() - self._start):
            self._render(next(iter(self._waiting)))  # the one that has waited longest

    def finish(self) -> None:
        """Render all figures that wait, even if some cannot be written, and raise the last
        error.
        """
        with ExitStack() as stack:
            for path in reversed(self._waiting):
                stack.callback(self._render, path)

    def _render(self, path: Path) -> None:
        figure = self._waiting.pop(path)
        before = self._clock()
        with replace_atomically(path) as temporary:
            figure.savefig(temporary, format="png", dpi=90, metadata={"Software": None})
        self._spent += self._clock() - before
        self._rendered.add(path)


@dataclass(eq=False)
class TrainingRun:
    """A running training, which :meth:`Trainer.fit <nnpipe.training.trainer.Trainer.fit>` gives to
    callbacks and steps.

    Callbacks may read all attributes; to change the training they may only call :meth:`stop`.
    A step learns from a batch by :meth:`forward`, :meth:`backward` and :meth:`update`; see
    :mod:`nnpipe.training.step`.

    Attributes
    ----------
    model
        The ``torch.nn.Module`` itself, neither compiled nor distributed.
    optimiser
        The ``torch.optim.Optimizer``; of several, the first.
    datasets
        Sequences by data set and split.
    folder
        The run's folder, which names its files; None if nothing is written.
    epoch
        The current epoch, counted from 1; 0 before the first one.
    batch
        Number of training batches of this epoch so far.
    step
        Number of steps so far.  However often a batch updates weights, it is one step.
    optimisers
        The optimisers by name; a single one without a name is called ``"optimiser"``.  Keras' is
        not among them.
    metrics
        Further metrics by output and name, which were asked for.
    steps
        What :meth:`forward`, :meth:`backward` and :meth:`update` call; None outside of a training.
    history
        A row for each epoch, with ``epoch``, ``step``, ``learning_rate`` and figures
        named ``dataset/split/loss`` and ``dataset/split/output/metric``.
    dataset
        The data set of the current batch.
    gradient_norm
        The norm of all gradients before clipping, a scalar tensor; None unless ``clip_norm`` is
        set.
    passes
        Number of passes through the training data so far, the present one included.  With
        ``epoch_steps``, epochs end elsewhere.
    best_epoch, best
        The best epoch so far, 0 if there is none, and its monitored figure.
    kept
        The epochs whose weights are kept as the best ones, with their monitored figures, the best
        first.
    rollbacks
        How often the training went back to a checkpoint because it diverged.
    waited
        Number of evaluations since the best epoch.
    final
        Which weights the model has at the end; set before ``on_fit_end``.
    stopping
        Why the training ends after this epoch; empty if it does not.
    unfinished
        Whether it stopped because its time was up, and the same call goes on.
    pictures
        The pictures that callbacks draw into the folder.
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
    optimisers: Mapping[str, Any] = field(default_factory=dict)
    metrics: Wanted = field(default_factory=dict)
    steps: Steps | None = field(default=None, repr=False)
    dataset: str = ""
    gradient_norm: Any = None
    passes: int = 0
    best_epoch: int = 0
    best: float = math.nan
    kept: list[tuple[int, float]] = field(default_factory=list)
    rollbacks: int = 0
    waited: int = 0
    stopping: str = ""
    unfinished: bool = False
    final: FinalWeights | None = None
    pictures: PictureQueue = field(default_factory=PictureQueue, repr=False)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("nnpipe.training"))

    @property
    def framework(self) -> str:
        """The model's framework, ``"torch"`` or ``"keras"``; see :attr:`Callback.frameworks
        <nnpipe.training.callbacks.callback.Callback>`.
        """
        return "torch"

    @property
    def device(self) -> str:
        """The device of the model: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``."""
        return self.options.device

    @property
    def rates(self) -> list[float]:
        """The learning rate of each group of the optimisers at the last step."""
        every = tuple(self.optimisers.values()) or (self.optimiser,)
        return [float(group["lr"]) for optimiser in every for group in optimiser.param_groups]

    def generator(self, purpose: str, *numbers: int) -> np.random.Generator:
        """Return a generator that depends only on the run's seed, a purpose and numbers (epoch,
        sample, ...).
        """
        return create_generator(self.options.seed, purpose, *numbers)

    def stop(self, reason: str) -> None:
        """Stop the training after this epoch, for a reason that is logged."""
        self.stopping = self.stopping or reason

    # -- what a step is made of -----------------------------------------------------------------

    def forward(self, batch: dict[str, Any]) -> tuple[Any, dict[str, Output]]:
        """Run the model on a training batch; return the sum of its outputs' losses, and the outputs
        by name.

        This is compiled and distributed as the options say.  A step may also call the model, or
        parts of it, itself; under :meth:`autocast` for the precision of the options.
        """
        return (self.steps or _raise_outside_fit()).forward(batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which the model computes with the precision of the options."""
        return (self.steps or _raise_outside_fit()).autocast()

    def backward(
        self,
        loss: Any,
        optimiser: str | None = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Add the gradients of a loss to those that the next :meth:`update` uses.

        Parameters
        ----------
        loss
            A scalar tensor: the mean over the samples of this batch.
        optimiser
            Only the weights of this optimiser receive gradients; by default, those of all do.
        retain_graph, create_graph
            As in ``torch.Tensor.backward``: to use the graph again, and for gradients of gradients.

        Raises
        ------
        TrainingError
            If the loss is not finite, or above ``abort_above``; the message names the samples.
        """
        (self.steps or _raise_outside_fit()).backward(loss, optimiser, retain_graph, create_graph)

    def update(self, optimiser: str | None = None) -> bool:
        """Make a step of an optimiser, or of all, once ``accumulate`` batches have added gradients.

        Gradients are divided by the number of samples and clipped, the rate follows the schedule,
        and so does the moving average of the weights at the end of the batch.  Gradients that were
        computed without :meth:`backward` are used at once and as they are.

        Returns
        -------
        bool
            Whether weights were updated.
        """
        return (self.steps or _raise_outside_fit()).update(optimiser)

    def discard(self, optimiser: str | None = None) -> None:
        """Forget the gradients that :meth:`update` has not used."""
        (self.steps or _raise_outside_fit()).discard(optimiser)

    def check(self, loss: Any) -> None:
        """Stop the training if a loss of this batch is not finite; :meth:`backward` does so by
        itself.
        """
        (self.steps or _raise_outside_fit()).check(loss)

    def state_dict(self) -> dict[str, Any]:
        """Return the values that a resumed run needs."""
        names = (
            "epoch",
            "batch",
            "step",
            "passes",
            "best_epoch",
            "best",
            "rollbacks",
            "waited",
            "stopping",
        )
        values = {name: getattr(self, name) for name in names}
        return values | {
            "kept": [list(one) for one in self.kept],
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.history.load_state_dict(state["history"])
        self.kept = [(epoch, value) for epoch, value in state.get("kept", ())]
        # older states have no passes
        for name, value in {"passes": state["epoch"], **state}.items():
            if name not in ("history", "kept"):
                setattr(self, name, value)


def _raise_outside_fit() -> NoReturn:
    raise NotSupported("a step can only be made while Trainer.fit runs")
