"""Inputs and outputs of the training of a Keras wrapper: batches of a split, outputs, callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.component import overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.tensors import Batch
from nnpipe.core.training import TrainingOptions
from nnpipe.frameworks.source_files import sources_of
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import choose
from nnpipe.training.outputs.array_outputs import GivenClassification, GivenOutput
from nnpipe.training.sequences.dataset import DatasetSequence

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase

OUTPUT = "output"
"""Name of the outputs of a wrapper's model in histories."""

_INPUT, _TRUTH = "input/", "truth/"


def sequence_of(wrapper: TensorFlowBase, dataset: Dataset, split: str, size: int, seed: int | None) -> DatasetSequence:
    """Return the batches of a split, prepared for the model and, with a seed, shuffled and augmented."""

    def prepare(inputs: Batch) -> Batch:
        prepared = wrapper.preprocess(inputs)
        wrapper.io.check_inputs(prepared)
        return prepared

    return DatasetSequence(
        dataset, split, batch=size, shuffle=seed is not None, seed=seed or 0, prepare=prepare,
        augment=None if seed is None else wrapper.augment, prefixes=(_INPUT, _TRUTH),
    )  # fmt: skip


def parts_of(batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs and the targets of a batch by name."""
    inputs, truth = (
        {name.removeprefix(prefix): value for name, value in batch.items() if name.startswith(prefix)}
        for prefix in (_INPUT, _TRUTH)
    )
    return inputs, truth


def is_classifier(wrapper: TensorFlowBase) -> bool:
    """Return whether a wrapper keeps the default loss and score, those of a classifier."""
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase

    return not any(overridden(wrapper, method, TensorFlowBase) for method in ("loss", "score"))


def outputs_of(wrapper: TensorFlowBase, found: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a batch for callbacks; none if the step returns none."""
    if "losses" not in found:
        return {}
    losses = np.asarray(found["losses"])
    arrays = {name: np.asarray(tensor) for name, tensor in found["outputs"].items()}
    if is_classifier(wrapper):
        (chances,), (target,) = arrays.values(), truth.values()
        return {OUTPUT: GivenClassification.of_chances(chances, target, losses)}
    return {OUTPUT: GivenOutput(arrays, dict(truth), given=losses)}


def callbacks_for(wrapper: TensorFlowBase, dataset: Dataset, options: TrainingOptions) -> tuple[Callback, ...]:
    """Return the requested callbacks; none without a folder for their files."""
    if options.run_folder is None:
        return ()
    known = {"classes": dataset.spec.class_names, "folders": sources_of(wrapper, dataset)}
    return choose(options.callbacks, framework="keras", known=known, classes=is_classifier(wrapper))
