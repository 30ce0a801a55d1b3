"""The trainer's inputs for a wrapper: its data set as a sequence, its module with loss and score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nnpipe.core.dataset import Dataset
from nnpipe.core.training import TrainingOptions
from nnpipe.experiment.state import State
from nnpipe.frameworks.source_files import sources_of
from nnpipe.frameworks.training_curves import figures_of
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import choose
from nnpipe.training.final_weights import FinalWeights
from nnpipe.training.fit import Fit
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output
from nnpipe.training.sequences.dataset import DatasetSequence

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_INPUT, _TRUTH = "input/", "truth/"


def sequence_of(wrapper: PyTorchWrapper, dataset: Dataset, split: str, size: int, seed: int | None) -> DatasetSequence:
    """Return the batches of a split, prepared for the model and, with a seed, shuffled and augmented."""
    return DatasetSequence(
        dataset, split, batch=size, shuffle=seed is not None, seed=seed or 0, prepare=wrapper.preprocess,
        augment=None if seed is None else wrapper.augment, prefixes=(_INPUT, _TRUTH),
    )  # fmt: skip


@dataclass(eq=False)
class OutputOfWrapper(Output):
    """All outputs of a wrapper's module, with the wrapper's ``loss`` and ``score`` of whole batches."""

    wrapper: Any = field(kw_only=True)
    _mean: Any = field(default=None, init=False, repr=False)

    def loss(self) -> Any:
        """Return the mean loss of the batch."""
        if self._mean is None:
            self._mean = self.wrapper.loss(self.output, self.target)
        return self._mean

    def compute_losses(self) -> Any:
        """Return the loss of each sample; calls the wrapper's ``loss`` once per sample."""
        import torch

        def one(sample: int) -> Any:
            here = slice(sample, sample + 1)
            truth = {name: tensor[here] for name, tensor in self.target.items()}
            return self.wrapper.loss(tuple(tensor[here] for tensor in self.output), truth)

        return torch.stack([one(sample) for sample in range(self._size)])

    @property
    def _size(self) -> int:
        return len(self.output[0])

    def predictions(self) -> Any:
        """Return the module's results."""
        return tuple(tensor.detach() for tensor in self.output)

    def loss_metric(self) -> Metric:
        """Return the mean loss, weighted with the number of samples."""
        return self._counted(self.loss().detach())

    def metrics(self) -> dict[str, Metric]:
        """Return the wrapper's score."""
        detached = tuple(tensor.detach() for tensor in self.output)
        return {self.wrapper.score_name: self._counted(self.wrapper.score(detached, self.target))}

    def _counted(self, mean: Any) -> Metric:
        count = mean.double().new_full((1,), self._size)
        return Metric(mean.double()[None] * count, count)


def trained(wrapper: PyTorchWrapper, module: Any) -> Any:
    """Return the trainer's module: the live one with batches as arguments."""
    import torch

    class Trained(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            if mode:
                wrapper.training_mode(self.module)
            else:
                wrapper.inference_mode(self.module)
            return self

        def forward(self, batch: Mapping[str, Any]) -> Output | dict[str, Output]:
            outputs = as_tuple(self.module(*(batch[_INPUT + spec.name] for spec in wrapper.io.inputs)))
            # An autoencoder is judged by what it was given.
            truth = {spec.name: batch[_INPUT + spec.name] for spec in wrapper.io.inputs}
            truth |= {n.removeprefix(_TRUTH): tensor for n, tensor in batch.items() if n.startswith(_TRUTH)}
            return wrapper.judge(self.module, outputs, truth)

    return Trained()


def judged(wrapper: PyTorchWrapper, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Output:
    """Return the output with the wrapper's loss and score, or a classification if they are the defaults."""
    if wrapper.classifies():
        return ClassificationOutput(outputs[0], truth["label"])
    return OutputOfWrapper(outputs, truth, wrapper=wrapper)


def callbacks_for(wrapper: PyTorchWrapper, dataset: Dataset, options: TrainingOptions) -> tuple[Callback, ...]:
    """Return the requested callbacks; none without a folder for their files."""
    if options.run_folder is None:
        return ()
    first = _INPUT + wrapper.io.inputs[0].name
    known = {
        "classes": dataset.spec.class_names,
        "folders": sources_of(wrapper, dataset),
        "input": first,
        "inputs": [_INPUT + spec.name for spec in wrapper.io.inputs],
        "output": "output",
    }
    return choose(options.callbacks, framework="torch", known=known, classes=wrapper.classifies())


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Return a module's results as a tuple."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


class EpochCurves(Callback):
    """Passes on the figures of each epoch and the rate of its first step, and records which weights are kept."""

    def __init__(self, write: Callable[[int, Mapping[str, float]], None]) -> None:
        self.write = write
        self.first = State(rate=0.0)
        self.final: FinalWeights | None = None

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Record the rate."""
        if fit.batch == 1:
            self.first.rate = fit.rates[0]

    def on_epoch_end(self, fit: Fit) -> None:
        """Pass on the figures."""
        self.write(fit.epoch, figures_of(fit.history.last) | {"learning_rate": self.first.rate})

    def on_fit_end(self, fit: Fit) -> None:
        """Record which weights are kept."""
        self.final = fit.final
