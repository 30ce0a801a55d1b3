"""What the trainer is given for a wrapper: its data set as a sequence, its module with loss and score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.experiment.module import Module
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._callback import Callback
from nnpipe.training.fit import Fit
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

DATA = "data"
"""What the wrapper's data set is called in histories."""

_INPUT, _TRUTH = "input/", "truth/"


class DatasetSequence(Module):
    """Batches of a split: read, preprocessed and, where there is a seed, shuffled and varied.

    Order and variation follow from seed, epoch and place in the epoch.
    """

    def __init__(self, wrapper: PyTorchWrapper, dataset: Dataset, split: str, size: int, seed: int | None) -> None:
        self._wrapper = wrapper
        self._dataset = dataset
        self._indices = dataset.split(split)
        self._cuts = cuts(len(self._indices), size)
        self._seed = seed
        self._state = State(epoch=0, handed=0)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        self._state.epoch, self._state.handed = epoch, 0

    def __len__(self) -> int:
        return len(self._cuts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        state, seed, indices = self._state, self._seed, self._indices
        if seed is not None:
            indices = np.random.default_rng([seed, state.epoch]).permutation(indices)
        for start, end in self._cuts[state.handed :]:
            raw, truth = self._dataset.read(indices[start:end])
            inputs = self._wrapper.preprocess(self._dataset.preprocess(raw))
            if seed is not None:
                inputs = self._wrapper.augment(inputs, np.random.default_rng([seed, state.epoch, start]))
            state.handed += 1
            yield {
                "sample_id": np.asarray(indices[start:end], np.int64),
                **{_INPUT + name: array for name, array in inputs.items()},
                **{_TRUTH + name: array for name, array in truth.items()},
            }
        state.handed = 0

    def close(self) -> None:
        """Nothing is open."""


def cuts(count: int, size: int) -> list[tuple[int, int]]:
    """Cut a number of samples into batches; a single one left over joins the last batch.

    Batch normalisation cannot learn from one sample.
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))


@dataclass(eq=False)
class OutputOfWrapper(Output):
    """All outputs of a wrapper's module, judged by the wrapper's own ``loss`` and ``score`` of whole batches."""

    wrapper: Any = field(kw_only=True)
    _mean: Any = field(default=None, init=False, repr=False)

    def loss(self) -> Any:
        """Give the mean loss of the batch."""
        if self._mean is None:
            self._mean = self.wrapper.loss(self.output, self.target)
        return self._mean

    def compute_losses(self) -> Any:
        """Compute the loss of each sample by itself: as many calls of the wrapper's ``loss`` as there are samples."""
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
        """Give what the module gave."""
        return tuple(tensor.detach() for tensor in self.output)

    def loss_metric(self) -> Metric:
        """Count the mean loss once for each sample."""
        return self._counted(self.loss().detach())

    def metrics(self) -> dict[str, Metric]:
        """Give the wrapper's score."""
        detached = tuple(tensor.detach() for tensor in self.output)
        return {self.wrapper.score_name: self._counted(self.wrapper.score(detached, self.target))}

    def _counted(self, mean: Any) -> Metric:
        count = mean.double().new_full((1,), self._size)
        return Metric(mean.double()[None] * count, count)


def trained(wrapper: PyTorchWrapper) -> Any:
    """Give the module that the trainer takes: the wrapper's own, with batches for arguments."""
    import torch

    class Trained(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = wrapper.native

        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            if mode:
                wrapper.training_mode(self.module)
            return self

        def forward(self, batch: Mapping[str, Any]) -> OutputOfWrapper:
            outputs = as_tuple(self.module(*(batch[_INPUT + spec.name] for spec in wrapper.io.inputs)))
            truth = {n.removeprefix(_TRUTH): tensor for n, tensor in batch.items() if n.startswith(_TRUTH)}
            return OutputOfWrapper(outputs, truth, wrapper=wrapper)

    return Trained()


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Give what a module returned as a tuple."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def figures_of(row: Mapping[str, float]) -> dict[str, float]:
    """Give the figures of an epoch as :class:`~nnpipe.core.training.TrainingHistory` calls them."""
    found = {}
    for split, prefix in (("train", ""), ("validation", "validation_")):
        for name, value in row.items():
            if name.startswith(f"{DATA}/{split}/"):
                found[prefix + name.rpartition("/")[2]] = float(value)
    return found


class EpochCurves(Callback):
    """Hands the figures of each epoch on, with the rate that its first step used."""

    def __init__(self, write: Callable[[int, Mapping[str, float]], None]) -> None:
        self.write = write
        self.first = State(rate=0.0)

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Note the rate."""
        if fit.batch == 1:
            self.first.rate = fit.rates[0]

    def on_epoch_end(self, fit: Fit) -> None:
        """Write."""
        self.write(fit.epoch, figures_of(fit.history.last) | {"learning_rate": self.first.rate})
