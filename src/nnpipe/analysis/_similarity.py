"""Similarity of tensors of two models, by values, names and consumers: which may correspond to which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.channel_noise import Array, noise_to_signal, power

_FACTOR = 0.9  # the weight of a similarity up to a factor, since a normalisation changes little more than that
_ERRORS = 3  # standard errors from the part of a bias that is missing to its bounds
_SEEN = 4096  # elements of a tensor that are compared to choose candidates
_CARRIERS = ("quantize", "cast", "identity", "to_copy")  # kinds of operations that pass values on, rounded or not
_MEASURING = "dynamicquantize"  # but this one passes on integers, whose scale is known only when it has run

Values = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class ComputedTensor:
    """A tensor with the operation that computes it; ``inputs`` are the names of that operation's input tensors."""

    tensor: str
    operation: str
    kind: str
    layer: str
    inputs: tuple[str, ...]


def users(places: Sequence[ComputedTensor]) -> dict[str, list[ComputedTensor]]:
    """Return, for each tensor, the computed tensors that directly depend on it."""
    found: dict[str, list[ComputedTensor]] = {}
    for place in places:
        for name in place.inputs:
            found.setdefault(name, []).append(place)
    return found


def leading_to(outputs: Iterable[str], places: Sequence[ComputedTensor]) -> set[str]:
    """Return outputs, and the computed tensors on which they depend; all tensors if no output is computed."""
    by_name = {place.tensor: place for place in places}
    waiting = [name for name in outputs if name in by_name]
    found = set(waiting) or set(by_name)
    while waiting:
        fresh = {name for name in by_name[waiting.pop()].inputs if name in by_name} - found
        found |= fresh
        waiting += fresh
    return found


def handed_on(places: Sequence[ComputedTensor]) -> set[str]:
    """Return tensors that are only rounded or cast, so that the model continues with the result of that."""
    found: set[str] = set()
    for tensor, takers in users(places).items():
        if all(map(is_rounding, takers)):
            found.add(tensor)
    return found


def is_rounding(place: ComputedTensor) -> bool:
    """Return whether an operation only rounds or casts its input."""
    kind = place.kind.lower()
    return any(word in kind for word in _CARRIERS) and _MEASURING not in kind


def counted(places: Sequence[ComputedTensor], values: Values) -> set[str]:
    """Return tensors that are integers cast to floats: sums that have not been scaled to real numbers yet."""
    integers = {name for name, array in values.items() if array.dtype.kind in "iu"}
    return {place.tensor for place in places if "cast" in place.kind.lower() and integers & set(place.inputs)}


def comparable(array: npt.NDArray[np.generic]) -> bool:
    """Return whether values are numbers that are distinct enough for a comparison."""
    return array.dtype.kind == "f" and array.size > 1


def sampled(size: int) -> npt.NDArray[np.int64]:
    """Return the indices of some elements, the same for all tensors of equal size."""
    return np.arange(size) if size <= _SEEN else np.random.default_rng(size).choice(size, _SEEN, replace=False)


def likeness(expected: Array, found: Array, channels: npt.NDArray[np.int64]) -> float:
    """Return the similarity of values: 1 if equal up to a constant per channel or one factor, 0 if unrelated."""
    close = 1 - noise_to_signal(expected, found)
    shifted = 1 - noise_to_signal(_centred(expected, channels), _centred(found, channels))
    one, two = expected - expected.mean(), found - found.mean()
    both = float(power(one)) * float(power(two))
    together = float(np.mean(one * two)) ** 2 / both if 0 < both < np.inf else 0.0
    return max(0.0, close, shifted, _FACTOR * together)


def share_of(change: Array, expected: Array, found: Array) -> tuple[float, float]:
    """Return how many times a change of the expected values is in the found ones, and the standard error of that."""
    with np.errstate(all="ignore"):  # masks of attention add the lowest float
        square, difference = float(np.sum(np.square(change))), found - expected
        if not 0 < square < np.inf:
            return 0.0, np.inf
        share = float(np.sum(difference * change)) / square
        error = float(np.sqrt(np.mean(np.square(difference - share * change)) / square))
    return (share, error) if np.isfinite(error) else (0.0, np.inf)


def _centred(values: Array, channels: npt.NDArray[np.int64]) -> Array:
    counts = np.maximum(np.bincount(channels), 1)
    return np.asarray(values - (np.bincount(channels, values) / counts)[channels])


def named_alike(source: ComputedTensor, other: ComputedTensor) -> bool:
    """Return whether a part of a fused name is the name of the source's tensor, operation or layer."""
    own = {text for text in (source.tensor, source.operation, source.layer) if text}
    parts = {part for text in (other.tensor, other.operation) for whole in text.split(";") for part in whole.split("/")}
    return bool(own & ({other.tensor, other.operation} | parts))


def following(tensor: str, users: Mapping[str, Sequence[ComputedTensor]], steps: int | None = None) -> set[str]:
    """Return the tensors that are computed from one, all or those of a few operations."""
    found: set[str] = set()
    last = {tensor}
    while last and steps != 0:
        last = {user.tensor for name in last for user in users.get(name, ())} - found
        found |= last
        steps = None if steps is None else steps - 1
    return found


def channels_of(array: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.int64]:
    """Return the channel of each of the :func:`sampled` elements of an array."""
    if array.ndim < 2:
        return np.zeros(len(sampled(array.size)), np.int64)
    places = np.unravel_index(sampled(array.size), array.shape)
    return np.asarray(places[min(axis % array.ndim, array.ndim - 1)])


def missing_bias(
    array: npt.NDArray[np.generic], bias: npt.NDArray[np.generic] | None, found: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """Return the bounds of the part of a bias that values lack; infinite if nothing tells."""
    expected = np.asarray(array, np.float64)
    if bias is None or bias.shape != expected.shape:
        return -np.inf, np.inf
    share, error = share_of(-np.asarray(bias, np.float64), expected, found)
    return share - _ERRORS * error, share + _ERRORS * error
