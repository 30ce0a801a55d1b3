"""The stages around the inference: reading, preprocessing, quantising, padding, and evaluating."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.batch_conversion import adapt_inputs, adapt_outputs
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, IOSpec, batch_size


@dataclass(frozen=True)
class Item:
    """One call of the session: its inputs, the truth, and how many samples count."""

    inputs: dict[str, npt.NDArray[Any]]
    truth: Batch
    samples: int

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and truth."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self.truth.values()))


@dataclass(frozen=True)
class SampleRoute:
    """The way from a data set to a session and back.

    Parameters
    ----------
    dataset, wrapper
        Whose processing stands before and after the model.
    model_io, session_io
        What the wrapper's processing works with, and what the session does.
    size
        Samples in one call.

    Raises
    ------
    ConfigError
        If the session has another fixed batch size.
    """

    dataset: Dataset
    wrapper: ModelWrapper
    model_io: IOSpec
    session_io: IOSpec
    size: int

    def __post_init__(self) -> None:
        fixed = fixed_size(self.session_io)
        if fixed is not None and fixed != self.size:
            raise ConfigError(
                f"the model takes batches of {fixed}, not of {self.size}: give --inference-batch-size {fixed}"
            )

    def items(self, indices: npt.NDArray[Any]) -> Iterator[Item]:
        """Prepare these samples call by call."""
        for raw, truth in self.dataset.batches(indices, self.size):
            samples = batch_size(raw)
            inputs = adapt_inputs(self.wrapper.preprocess(raw), self.model_io, self.session_io)
            if fixed_size(self.session_io) is not None and samples < self.size:
                inputs = {name: _filled_up(array, samples, self.size) for name, array in inputs.items()}
            yield Item(inputs, truth, samples)

    def judge(self, items: Sequence[Item], outputs: Sequence[Batch]) -> list[Evaluation]:
        """Evaluate what the session gave for some calls: at once where outputs can be joined, else one by one."""
        outputs = [
            {name: _without_copies(array, item.samples, self.size) for name, array in found.items()}
            for item, found in zip(items, outputs, strict=True)
        ]
        truths = [item.truth for item in items]
        counts = [item.samples for item in items]
        if _can_be_joined(outputs, counts) and _can_be_joined(truths, counts):
            outputs, truths = [_joined(outputs)], [_joined(truths)]
        return [self._evaluate(*pair) for pair in zip(outputs, truths, strict=True)]

    def _evaluate(self, outputs: Batch, truth: Batch) -> Evaluation:
        predictions = self.wrapper.postprocess(adapt_outputs(outputs, self.model_io, self.session_io))
        return self.dataset.evaluate(self.dataset.postprocess(predictions), truth)


def fixed_size(io: IOSpec) -> int | None:
    """Return how many samples a session takes in one call, or nothing if any number."""
    first = io.inputs[0].shape
    return first[0] if first else None


def goes(items: Iterable[Item], most_bytes: int, output_bytes: int, most_calls: int) -> Iterator[list[Item]]:
    """Bundle calls so that inputs, truth and outputs of a bundle are not many more than ``most_bytes``."""
    go: list[Item] = []
    held = 0
    for item in items:
        go.append(item)
        held += item.nbytes + output_bytes
        if held >= most_bytes or len(go) >= most_calls:
            yield go
            go, held = [], 0
    if go:
        yield go


def _filled_up(array: npt.NDArray[Any], samples: int, size: int) -> npt.NDArray[Any]:
    if not array.ndim or array.shape[0] != samples:
        return array
    return np.concatenate([array, np.repeat(array[-1:], size - samples, axis=0)])


def _without_copies(array: npt.NDArray[Any], samples: int, size: int) -> npt.NDArray[Any]:
    return array[:samples] if samples < size and array.ndim and array.shape[0] == size else array


def _can_be_joined(batches: Sequence[Batch], counts: Sequence[int]) -> bool:
    shapes = {name: array.shape[1:] for name, array in batches[0].items()}
    return all(
        batch.keys() == shapes.keys()
        and all(array.ndim and array.shape == (count, *shapes[name]) for name, array in batch.items())
        for batch, count in zip(batches, counts, strict=True)
    )


def _joined(batches: Sequence[Batch]) -> Batch:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
