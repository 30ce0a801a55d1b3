"""The weights of one model in the form and by the names of another."""

from __future__ import annotations

import numpy as np

from nnpipe.analysis.channel_noise import Array
from nnpipe.analysis.normalisation_folding import along, expected_of, expected_vector, vector_beside
from nnpipe.analysis.weights import Weights, pair_weights


def adopted_weights(source: Weights, other: Weights) -> dict[str, Array]:
    """Return the other model's weights by the source's names; empty if this is not possible for every kernel."""
    found = counterparts(source, other)
    wide = [weight for weight in source.tensors if weight.values.ndim > 1]
    return found if wide and all(weight.name in found for weight in wide) else {}


def counterparts(source: Weights, other: Weights) -> dict[str, Array]:
    """Return the other model's numbers for each weight of the source that has a counterpart, by the source's names.

    Folded normalisations are divided out again.
    """
    pairs = pair_weights(source, other)
    found: dict[str, Array] = {}
    for pair in pairs:
        if pair.source.values.ndim < 2:
            found.setdefault(pair.source.name, pair.other.values)
            continue
        expected = expected_of(pair, source, other)
        found[pair.source.name] = expected.found
        if expected.norm is None:
            continue
        factor = along(expected.norm.factor, expected.found.ndim, expected.axis)
        kept = factor != 0
        found[pair.source.name] = np.where(kept, expected.found / np.where(kept, factor, 1.0), pair.source.values)
        own, bias = vector_beside(pair.source, source), vector_beside(pair.other, other)
        if own is not None:
            found[own.name] = own.values
        beta = next((w for w in source.tensors if w.name == expected.norm.beta_name), None)
        if beta is not None and bias is not None and bias.values.shape == beta.values.shape:
            moved = expected_vector(expected, None if own is None else own.values)[0] - expected.norm.beta
            found[beta.name] = bias.values - moved
    return found
