"""Find which channels of a model remain after whole channels were pruned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnpipe.analysis.channel_noise import Array
from nnpipe.analysis.weights import Normalisation, Weight, Weights


def thinned(source: Weights, other: Weights) -> Weights:
    """Return the source with only those channels that the other model has kept, in the source's order.

    Kept channels are found by their numbers, in operations with equal names and orders of axes.  Tensors whose
    channels cannot be found are returned unchanged.
    """
    there = {(weight.operation, weight.kind, weight.place): weight for weight in other.tensors}
    kept: dict[str, Array] = {}
    tensors: list[Weight] = []
    for weight in source.tensors:
        theirs = there.get((weight.operation, weight.kind, weight.place))
        if weight.values.ndim > 1 and theirs is not None and _smaller(weight.values, theirs.values):
            found = _kept(weight.values, theirs.values)
            if found is not None:
                rows, columns = found
                weight = replace(weight, values=weight.values[rows][:, columns])
                kept[weight.operation] = rows
                norm = source.normalised.get(weight.result)
                if norm is not None:
                    kept[norm.name] = rows
        tensors.append(weight)
    for number, weight in enumerate(tensors):
        chosen = kept.get(weight.operation)
        if weight.values.ndim == 1 and chosen is not None and chosen.max() < weight.values.size:
            tensors[number] = replace(weight, values=weight.values[chosen])
    normalised = {result: _of(norm, kept.get(norm.name)) for result, norm in source.normalised.items()}
    return Weights(tuple(tensors), source.layout, normalised)


def _of(norm: Normalisation, rows: Array | None) -> Normalisation:
    if rows is None:
        return norm
    gamma, beta, mean, variance = (array[rows] for array in (norm.gamma, norm.beta, norm.mean, norm.variance))
    return replace(norm, gamma=gamma, beta=beta, mean=mean, variance=variance)


def _smaller(values: Array, theirs: Array) -> bool:
    pairs = list(zip(values.shape, theirs.shape, strict=False))
    return values.ndim == theirs.ndim and values.shape != theirs.shape and all(one >= two for one, two in pairs)


def _kept(values: Array, theirs: Array) -> tuple[Array, Array] | None:
    """Return the rows and the columns of a tensor that another tensor contains."""
    if values.shape[2:] != theirs.shape[2:]:
        return None
    size = int(np.prod(values.shape[2:]))
    mine, other = values.reshape(-1, size), theirs.reshape(-1, size)
    places: dict[bytes, int] = {row.tobytes(): number for number, row in enumerate(mine)}
    at = np.array([places.get(row.tobytes(), -1) for row in other]).reshape(theirs.shape[:2])
    rows = [_most(line[line >= 0] // values.shape[1]) for line in at]
    columns = [_most(line[line >= 0] % values.shape[1]) for line in at.T]
    if -1 in rows or -1 in columns or len({*rows}) < len(rows) or len({*columns}) < len(columns):
        return None
    return np.sort(rows), np.sort(columns)


def _most(numbers: Array) -> int:
    return int(np.bincount(numbers).argmax()) if numbers.size else -1
