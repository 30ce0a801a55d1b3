"""Running a model again on the same batches, with other values in place of some tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import Array
from nnpipe.core.graph import Graph, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.quantization import quantize_linear
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.workflows.verification.compare_outputs import real


@dataclass(frozen=True)
class Rerun:
    """Runs a model repeatedly on the same batches, with given values in place of some tensors."""

    source: LiveModel
    graph: Graph
    batches: Sequence[Batch]

    def __call__(self, given: Mapping[str, Array], tensor: str = "*", resting: bool = False) -> dict[str, Any]:
        """Return the requested tensors as floating point; if ``resting``, all inputs are 0."""
        lengths = [len(next(iter(batch.values()))) for batch in self.batches]
        stored = {name: _stored(array, self.graph.tensors.get(name)) for name, array in given.items()}
        parts = {name: _parted(array, lengths) for name, array in stored.items()}
        found = []
        for n, batch in enumerate(self.batches):
            taken = {name: np.zeros_like(array) for name, array in batch.items()} if resting else batch
            own = {name: part[n] for name, part in parts.items()}
            found.append(self.source.get_intermediates(Selector(tensor=tensor), taken, own))
        return joined_values(found, self.graph)


def batches_of(models: Sequence[LiveModel], samples: Sequence[Batch]) -> list[Batch]:
    """Return samples as one batch if all models take any number, else one batch each."""
    if all(spec.shape[:1] == (None,) for model in models for spec in model.io.inputs):
        return [{name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}]
    return list(samples)


def joined_values(parts: Sequence[Mapping[str, Any]], graph: Graph) -> dict[str, Any]:
    """Join values of several batches as floating point; leave out tensors whose shapes differ."""
    found = {}
    for name, first in parts[0].items():
        arrays = [part[name] for part in parts]
        if first.dtype.name == "bfloat16":  # a package adds this type to NumPy
            arrays = [array.astype(np.float32) for array in arrays]
        if arrays[0].dtype.kind in "biuf" and all(
            array.ndim and array.shape[1:] == first.shape[1:] for array in arrays
        ):
            whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            spec = graph.tensors.get(name)
            found[name] = whole if spec is None else real(whole, spec)
    return found


def _parted(array: Any, lengths: Sequence[int]) -> list[Any]:
    """Return joined values split into batches again."""
    return [array] if len(lengths) == 1 else np.split(array, len(lengths))


def _stored(array: Array, spec: TensorSpec | None) -> Any:
    """Return real numbers in the form in which the model stores them."""
    if spec is None or spec.scale is None:
        return array.astype("float32" if spec is None or spec.dtype == "bfloat16" else spec.dtype)
    return quantize_linear(array, spec.scale, spec.zero_point, spec.dtype, spec.axis)
