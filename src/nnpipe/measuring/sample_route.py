"""The stages around the inference: reading, preprocessing, quantising, padding, and evaluating."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import NOT_FINITE, Evaluation
from nnpipe.core.model import ModelWrapper
from nnpipe.core.output_decoder import with_inputs
from nnpipe.core.quantization import adapt_inputs, adapt_outputs
from nnpipe.core.tensors import Batch, IOSpec, get_batch_size


@dataclass(frozen=True)
class Item:
    """One call of the session: its inputs, the truth, and the number of samples to count."""

    inputs: dict[str, npt.NDArray[Any]]
    truth: Batch
    samples: int

    @property
    def nbytes(self) -> int:
        """The size of inputs and truth in bytes."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self.truth.values()))


@dataclass(frozen=True)
class SampleRoute:
    """Prepares samples of a data set for a session, and evaluates its outputs.

    Parameters
    ----------
    dataset, wrapper
        They preprocess the samples and postprocess the outputs.
    model_io, session_io
        The inputs and outputs of the wrapper's processing, and those of the session.
    size
        The number of samples in one call.

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
        fixed = get_fixed_size(self.session_io)
        if fixed is not None and fixed != self.size:
            raise ConfigError(
                f"the model takes batches of {fixed}, not of {self.size}: give "
                f"--inference-batch-size {fixed}"
            )

    def items(self, indices: npt.NDArray[Any]) -> Iterator[Item]:
        """Yield the prepared samples, call by call."""
        for raw, truth in self.dataset.batches(indices, self.size):
            samples = get_batch_size(raw)
            inputs = adapt_inputs(self.wrapper.preprocess(raw), self.model_io, self.session_io)
            if get_fixed_size(self.session_io) is not None and samples < self.size:
                inputs = {
                    name: _pad_batch(array, samples, self.size) for name, array in inputs.items()
                }
            yield Item(inputs, truth, samples)

    def evaluate(self, items: Sequence[Item], outputs: Sequence[Batch]) -> list[Evaluation]:
        """Evaluate the outputs of some calls: together if they can be concatenated, otherwise
        one by one.
        """
        outputs = [
            {name: _remove_padding(array, item.samples, self.size) for name, array in found.items()}
            for item, found in zip(items, outputs, strict=True)
        ]
        given: list[Batch] = [
            {name: a[: item.samples] for name, a in item.inputs.items()} for item in items
        ]
        truths = [item.truth for item in items]
        counts = [item.samples for item in items]
        if _can_be_joined(outputs, counts) and _can_be_joined(truths, counts):
            outputs, truths = [_concat_batches(outputs)], [_concat_batches(truths)]
            given = [_concat_batches(given)] if self._decoder_takes_inputs else given[:1]
        return [self._evaluate(*parts) for parts in zip(outputs, given, truths, strict=True)]

    @property
    def _decoder_takes_inputs(self) -> bool:
        decoder = self.wrapper.output_decoder
        return decoder is not None and decoder.takes_inputs

    def _evaluate(self, outputs: Batch, inputs: Batch, truth: Batch) -> Evaluation:
        decoder = self.wrapper.output_decoder
        outputs = adapt_outputs(outputs, self.model_io, self.session_io)
        outputs = with_inputs(decoder, outputs, inputs, self.model_io, self.session_io)
        decoded = dict(self.wrapper.postprocess(outputs))
        lost = decoded.pop(NOT_FINITE, None)
        predictions = self.dataset.postprocess(decoded)
        if decoder is None:  # the greatest of several numbers, or a selection, may hide NaN
            lost = self.dataset.task.without_answer(outputs, len(next(iter(truth.values()))))
        if lost is not None and lost.any():
            predictions = {**predictions, NOT_FINITE: lost}
        found = self.dataset.judge_predictions(predictions, truth)
        # Thresholds of a decoder change its metrics.
        return (
            found
            if decoder is None
            else replace(found, settings={**found.settings, "decoder": decoder.describe()})
        )


def get_fixed_size(io: IOSpec) -> int | None:
    """Return the fixed batch size of a session, or None if it is free."""
    first = io.inputs[0].shape
    return first[0] if first else None


def iter_chunks(
    items: Iterable[Item], most_bytes: int, output_bytes: int, most_calls: int
) -> Iterator[list[Item]]:
    """Group calls into chunks whose inputs, truth and outputs are not much larger than
    ``most_bytes``.
    """
    chunk: list[Item] = []
    held = 0
    for item in items:
        chunk.append(item)
        held += item.nbytes + output_bytes
        if held >= most_bytes or len(chunk) >= most_calls:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def _pad_batch(array: npt.NDArray[Any], samples: int, size: int) -> npt.NDArray[Any]:
    if not array.ndim or array.shape[0] != samples:
        return array
    return np.concatenate([array, np.repeat(array[-1:], size - samples, axis=0)])


def _remove_padding(array: npt.NDArray[Any], samples: int, size: int) -> npt.NDArray[Any]:
    return array[:samples] if samples < size and array.ndim and array.shape[0] == size else array


def _can_be_joined(batches: Sequence[Batch], counts: Sequence[int]) -> bool:
    shapes = {name: array.shape[1:] for name, array in batches[0].items()}
    return all(
        batch.keys() == shapes.keys()
        and all(
            array.ndim and array.shape == (count, *shapes[name]) for name, array in batch.items()
        )
        for batch, count in zip(batches, counts, strict=True)
    )


def _concat_batches(batches: Sequence[Batch]) -> Batch:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
