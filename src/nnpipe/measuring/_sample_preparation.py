"""The record of sample preparation in a run: what determined it, and the values at the model's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.preparation import Preparation
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.measuring.input_ranges import input_ranges
from nnpipe.measuring.normalisation_check import first_normalisation
from nnpipe.measuring.rescaling_check import first_rescaling
from nnpipe.measuring.sample_route import fixed_size

_SAMPLES, _CALLS = 32, 4


def sample_preparation(
    preparation: Preparation,
    dataset: Dataset,
    wrapper: ModelWrapper,
    model: LiveModel | None,
    session_io: IOSpec,
    indices: npt.NDArray[Any],
) -> dict[str, Any]:
    """Return how samples were prepared, and statistics of the prepared values, in the form of result files."""
    found = {**preparation.to_json(), "arrived": input_ranges(dataset, wrapper, session_io, indices)}
    found["read"] = [*dataset.reading_notes, *wrapper.fitting_notes(dataset.spec)]
    # A preparation given by a wrapper or a description needs no check, and a runtime does not show intermediate values.
    if model is not None and (preparation.source in ("unknown", "options") or preparation.overridden):
        found |= _inside(model, dataset, indices)
    return found


def _inside(model: LiveModel, dataset: Dataset, indices: npt.NDArray[Any]) -> dict[str, Any]:
    """Return statistics of some samples at the first operations of a model, if it shows intermediate values."""
    if not model.wrapper.offers("get_inference_graph", "get_intermediates"):
        return {}
    batches = _some_batches(dataset, model.wrapper, indices)
    try:
        graph = model.get_inference_graph()
    except Exception:  # a failure of any framework here must not stop the measurement
        return {}
    return {
        "first_normalisation": first_normalisation(model, graph, batches),
        "first_rescaling": first_rescaling(model, graph, batches),
    }


def _some_batches(dataset: Dataset, wrapper: ModelWrapper, indices: npt.NDArray[Any]) -> list[Batch]:
    """Return batches of a few prepared samples, spread over the measured ones."""
    fixed = fixed_size(wrapper.io)
    size, most = (_SAMPLES, _SAMPLES) if fixed is None else (fixed, _CALLS * fixed)
    chosen = np.unique(indices[np.linspace(0, len(indices) - 1, min(len(indices), most)).astype(np.int64)])
    batches = dataset.batches(chosen[: max(len(chosen) // size, 1) * size], size)
    return [wrapper.preprocess(samples) for samples, _ in batches]
