"""The numeric error of each layer of a model against its source, on samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import Array, ErrorSums, TensorError, apply_axis_order
from nnpipe.analysis.suspect_operations import Suspect
from nnpipe.analysis.tensor_pairing import Pair
from nnpipe.core.artifact import Claim
from nnpipe.core.graph import Graph, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.quantization import adapt
from nnpipe.core.tensors import Batch
from nnpipe.workflows.verification.binding import Binding
from nnpipe.workflows.verification.first_difference import (
    Rerun,
    build_batches,
    find_divergence,
    find_weighted_operations,
    join_values,
    match_values,
)

_VALUES_TOGETHER = 4_000_000
"""The most values of one model's tensors that are compared at a time, to find out which tensors
correspond.
"""
_MOST = 4  # samples
_EVERYTHING = Selector(tensor="*")


@dataclass(frozen=True)
class LayerErrors:
    """What a model's numbers lose, layer by layer.

    Parameters
    ----------
    errors
        The error of each tensor that corresponds to one of the source.
    suspects
        Operations that compute something else than the conversion claims, the worst first.
    samples
        The number of samples.
    """

    errors: tuple[TensorError, ...]
    suspects: tuple[Suspect, ...]
    samples: int

    def to_json(self) -> dict[str, Any]:
        """Return all errors as JSON can hold them."""
        return {
            "samples": self.samples,
            "tensors": [each.to_json() for each in self.errors],
            "suspects": [each.to_json() for each in self.suspects],
        }


def compute_layer_errors(
    source: LiveModel,
    other: LiveModel,
    binding: Binding,
    samples: Sequence[Batch],
    claims: tuple[Claim, ...],
) -> LayerErrors:
    """Return the error of each operation of a model alone, without what it inherits from those
    before it.

    The source's operation is computed from the model's values, and compared with the model's
    result.  Which tensors correspond is found on the first samples; then one sample is in memory at
    a time.

    Parameters
    ----------
    source, other
        The source and the model.
    binding
        The correspondence of their inputs and outputs.
    samples
        Inputs of the source, one in each batch.
    claims
        The claims of the conversion.

    Raises
    ------
    NotSupported
        If one of them does not show intermediate values, or no tensors correspond.
    """
    other_graph = other.get_inference_graph()
    together = max(
        1, min(_MOST, _VALUES_TOGETHER // max(1, _count_values(other.get_sized_graph({}))))
    )
    values = match_values(source, other, binding, samples[:together], claims)
    found = find_divergence(values, claims)
    sums = [ErrorSums() for _ in values.pairs]
    taken, axis = binding.to_other_specs(source.io.inputs), source.wrapper.channel_axis
    for start in range(0, len(samples), together):
        batches = build_batches((source, other), samples[start : start + together])
        theirs = join_values(
            [
                other.get_intermediates(
                    _EVERYTHING, adapt(binding.to_other(batch), taken, other.io.inputs)
                )
                for batch in batches
            ],
            other_graph,
        )
        given = {
            pair.source.tensor: _transpose_to_source(pair, theirs[pair.other.tensor])
            for pair in values.pairs
        }
        del theirs
        rerun = Rerun(source, values.graph, batches)
        expected = rerun(
            {name: array for name, array in given.items() if name not in values.outputs}
        )
        for pair, total in zip(values.pairs, sums, strict=True):
            total.add(
                np.asarray(expected[pair.source.tensor], np.float64),
                given[pair.source.tensor],
                axis,
            )
    within = find_weighted_operations(values)
    errors = tuple(
        total.error(
            pair.other.operation,
            pair.other.tensor,
            pair.source.operation,
            pair.source.kind,
            within[pair.source.tensor],
        )
        for pair, total in zip(values.pairs, sums, strict=True)
    )
    return LayerErrors(errors, found.suspects, len(samples))


def _transpose_to_source(pair: Pair, array: Array) -> Array:
    """Return a tensor of the other model in the source's order of axes."""
    return apply_axis_order(array, pair.order, (array.shape[0], *pair.expected.shape[1:]))


def _count_values(graph: Graph) -> int:
    """Return the number of values of all computed tensors."""
    specs = (graph.tensors[name] for operation in graph.operations for name in operation.outputs)
    return sum(math.prod(length or 1 for length in spec.shape) for spec in specs)
