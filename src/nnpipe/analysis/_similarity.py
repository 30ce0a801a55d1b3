"""Similarity of tensors of two models, by values, names and consumers: which may correspond to
which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.channel_errors import (
    Array,
    apply_axis_order,
    compute_mean_square,
    compute_noise_to_signal,
    iter_axis_orders,
)

# the weight of a similarity up to a factor, since a normalisation changes little more than that
_FACTOR = 0.9
_ERRORS = 3  # standard errors from the part of a bias that is missing to its bounds
_SEEN = 4096  # elements of a tensor that are compared to choose candidates
# kinds of operations that pass values on, rounded or not
_CARRIERS = ("quantize", "cast", "identity", "to_copy")
# but this one passes on integers, whose scale is known only when it has run
_MEASURING = "dynamicquantize"

Values = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class ComputedTensor:
    """A tensor with the operation that computes it; ``inputs`` are the names of that operation's
    input tensors.
    """

    tensor: str
    operation: str
    kind: str
    layer: str
    inputs: tuple[str, ...]


def map_users(places: Sequence[ComputedTensor]) -> dict[str, list[ComputedTensor]]:
    """Return, for each tensor, the computed tensors that directly depend on it."""
    found: dict[str, list[ComputedTensor]] = {}
    for place in places:
        for name in place.inputs:
            found.setdefault(name, []).append(place)
    return found


def find_dependencies(outputs: Iterable[str], places: Sequence[ComputedTensor]) -> set[str]:
    """Return outputs, and the computed tensors on which they depend; all tensors if no output is
    computed.
    """
    by_name = {place.tensor: place for place in places}
    waiting = [name for name in outputs if name in by_name]
    found = set(waiting) or set(by_name)
    while waiting:
        fresh = {name for name in by_name[waiting.pop()].inputs if name in by_name} - found
        found |= fresh
        waiting += fresh
    return found


def find_tensors_before_rounding(places: Sequence[ComputedTensor]) -> set[str]:
    """Return tensors that are only rounded or cast, so that the model continues with the result
    of that.
    """
    found: set[str] = set()
    for tensor, takers in map_users(places).items():
        if all(map(is_rounding, takers)):
            found.add(tensor)
    return found


def is_rounding(place: ComputedTensor) -> bool:
    """Return whether an operation only rounds or casts its input."""
    kind = place.kind.lower()
    return any(word in kind for word in _CARRIERS) and _MEASURING not in kind


def find_unscaled_sums(places: Sequence[ComputedTensor], values: Values) -> set[str]:
    """Return tensors that are integers cast to floats: sums that have not been scaled to real
    numbers yet.
    """
    integers = {name for name, array in values.items() if array.dtype.kind in "iu"}
    return {
        place.tensor
        for place in places
        if "cast" in place.kind.lower() and integers & set(place.inputs)
    }


def has_distinct_numbers(array: npt.NDArray[np.generic]) -> bool:
    """Return whether values are numbers that are distinct enough for a comparison."""
    return array.dtype.kind == "f" and array.size > 1


def sample_indices(size: int) -> npt.NDArray[np.int64]:
    """Return the indices of some elements, the same for all tensors of equal size."""
    return (
        np.arange(size)
        if size <= _SEEN
        else np.random.default_rng(size).choice(size, _SEEN, replace=False)
    )


def compute_similarity(expected: Array, found: Array, channels: npt.NDArray[np.int64]) -> float:
    """Return the similarity of values: 1 if equal up to a constant per channel or one factor, 0
    if unrelated.
    """
    close = 1 - compute_noise_to_signal(expected, found)
    shifted = 1 - compute_noise_to_signal(
        _remove_channel_means(expected, channels), _remove_channel_means(found, channels)
    )
    one, two = expected - expected.mean(), found - found.mean()
    both = float(compute_mean_square(one)) * float(compute_mean_square(two))
    together = float(np.mean(one * two)) ** 2 / both if 0 < both < np.inf else 0.0
    return max(0.0, close, shifted, _FACTOR * together)


def measure_share_of_change(change: Array, expected: Array, found: Array) -> tuple[float, float]:
    """Return how many times a change of the expected values is in the found ones, and the
    standard error of that.
    """
    with np.errstate(all="ignore"):  # masks of attention add the lowest float
        square, difference = float(np.sum(np.square(change))), found - expected
        if not 0 < square < np.inf:
            return 0.0, np.inf
        share = float(np.sum(difference * change)) / square
        error = float(np.sqrt(np.mean(np.square(difference - share * change)) / square))
    return (share, error) if np.isfinite(error) else (0.0, np.inf)


def _remove_channel_means(values: Array, channels: npt.NDArray[np.int64]) -> Array:
    counts = np.maximum(np.bincount(channels), 1)
    return np.asarray(values - (np.bincount(channels, values) / counts)[channels])


def has_matching_name(source: ComputedTensor, other: ComputedTensor) -> bool:
    """Return whether a part of a fused name is the name of the source's tensor, operation or
    layer.
    """
    own = {text for text in (source.tensor, source.operation, source.layer) if text}
    parts = {
        part
        for text in (other.tensor, other.operation)
        for whole in text.split(";")
        for part in whole.split("/")
    }
    return bool(own & ({other.tensor, other.operation} | parts))


def find_descendants(
    tensor: str, users: Mapping[str, Sequence[ComputedTensor]], steps: int | None = None
) -> set[str]:
    """Return the tensors that are computed from one, all or those of a few operations."""
    found: set[str] = set()
    last = {tensor}
    while last and steps != 0:
        last = {user.tensor for name in last for user in users.get(name, ())} - found
        found |= last
        steps = None if steps is None else steps - 1
    return found


def get_sampled_channels(array: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.int64]:
    """Return the channel of each of the :func:`sample_indices` elements of an array."""
    if array.ndim < 2:
        return np.zeros(len(sample_indices(array.size)), np.int64)
    places = np.unravel_index(sample_indices(array.size), array.shape)
    return np.asarray(places[min(axis % array.ndim, array.ndim - 1)])


def compute_missing_bias(
    array: npt.NDArray[np.generic],
    bias: npt.NDArray[np.generic] | None,
    found: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """Return the bounds of the part of a bias that values lack; infinite if nothing tells."""
    expected = np.asarray(array, np.float64)
    if bias is None or bias.shape != expected.shape:
        return -np.inf, np.inf
    share, error = measure_share_of_change(-np.asarray(bias, np.float64), expected, found)
    return share - _ERRORS * error, share + _ERRORS * error


_RESHAPING = ("reshape", "squeeze", "flatten")
_PRODUCTS = ("matmul", "fully_connected", "linear", "gemm", "dense")


class OtherTensors:
    """The tensors of the other model, in an order of computation.

    Parameters
    ----------
    places
        The computed tensors.
    values
        The tensors, as real numbers; those that only carry another one's values are not compared.
    """

    def __init__(self, places: Sequence[ComputedTensor], values: Values) -> None:
        self.places = places
        self.by_name = {place.tensor: place for place in places}
        self.position = {place.tensor: number for number, place in enumerate(places)}
        self.users = map_users(places)
        self.sizes = {name: array.size for name, array in values.items()}
        self._all = values
        carried = find_tensors_before_rounding(places) | find_unscaled_sums(places, values)
        self.values = {
            name: array
            for name, array in values.items()
            if name in self.by_name and name not in carried and has_distinct_numbers(array)
        }
        self.unrounded = {
            place.tensor: np.asarray(values[name]).reshape(self.values[place.tensor].shape)
            for place in places
            for name in place.inputs
            if place.tensor in self.values
            and name in carried & values.keys()
            and is_rounding(place)
            if has_distinct_numbers(values[name])
            and values[name].size == self.values[place.tensor].size
        }

    def get_unrounded_elements(
        self, name: str, order: tuple[int, ...] | None, shape: tuple[int, ...]
    ) -> Array | None:
        """Return the elements that :meth:`iter_candidates` yields, as they were before a tensor was
        rounded, if it was.
        """
        if name not in self.unrounded:
            return None
        array = self.unrounded[name]
        found: Array = apply_axis_order(array, order, shape).ravel()[sample_indices(array.size)]
        return found

    def as_read(self, name: str, sure: float) -> Array:
        """Return a tensor as the operations after it read it: it may be reshaped first, and rounded
        only then.

        Differences above the noise-to-signal ratio ``sure`` are no rounding, and remain visible.
        """
        value = np.asarray(self.values[name], np.float64)
        takers = self.users.get(name, [])
        while len(takers) == 1 and (is_rounding(takers[0]) or _is_reshape(takers[0])):
            array = self._all.get(takers[0].tensor)
            if array is not None and has_distinct_numbers(array) and array.size == value.size:
                read = np.asarray(array, np.float64).reshape(value.shape)
                if compute_noise_to_signal(value, read) >= sure:
                    break
                value = read
            takers = self.users.get(takers[0].tensor, [])
        return value

    def iter_candidates(
        self, array: npt.NDArray[np.generic], least: int
    ) -> Iterable[tuple[str, tuple[int, ...] | None, Array, Array]]:
        """Yield the tensors that may be ``array``: the name, the order of axes, and some elements
        of both.

        The first ``least`` tensors are left out.
        """
        expected = np.asarray(array, np.float64)
        chosen = sample_indices(expected.size)
        some = expected.ravel()[chosen]
        for name, values in self.values.items():
            if values.size != expected.size or self.position[name] < least:
                continue
            for order in iter_axis_orders(values.shape, expected.shape):
                yield (
                    name,
                    order,
                    some,
                    apply_axis_order(values, order, expected.shape).ravel()[chosen],
                )

    def find_intermediates(self, sure: set[str]) -> set[str]:
        """Return the other model's tensors that only lead to certain ones.

        Converters move factors and constants from one operation to the next, so these need no
        counterpart.  A fault in them is visible in the result, unless averaging has removed the
        noise; a product with a smaller matrix does not.
        """
        found: set[str] = set()
        for place in reversed(self.places):
            size, takers = self.sizes.get(place.tensor, 0), self.users.get(place.tensor, ())
            for user in takers:
                kept = self.sizes.get(user.tensor, 0) >= size or any(
                    word in user.kind.lower() for word in _PRODUCTS
                )
                if user.tensor in sure | found and kept:
                    found.add(place.tensor)
        return found


def _is_reshape(place: ComputedTensor) -> bool:
    kind = place.kind.lower()
    return any(word in kind for word in _RESHAPING)


SHARED = 4.0
"""The noise that another candidate may have, as a multiple of the best candidate's."""

_BEHIND = 2  # operations that may add a bias and round the sum
_HALF = 0.5  # of a bias, between there and missing

Candidate = tuple[float, str, tuple[int, ...] | None]
"""The noise-to-signal ratio, the tensor, and the order of axes."""


class NearestTensor:
    """Chooses among the tensors of the other model.

    Parameters
    ----------
    other
        Its tensors.
    sure
        The noise-to-signal ratio below which two tensors certainly correspond.
    at_rest
        The source's tensors if all inputs of each operation are 0, which are its biases.
    """

    def __init__(self, other: OtherTensors, sure: float, at_rest: Values) -> None:
        self._other, self._sure, self._at_rest = other, sure, at_rest

    def find(
        self, place: ComputedTensor, array: npt.NDArray[np.generic], least: int
    ) -> Candidate | None:
        """Return the candidate for a tensor of the source; ``None`` if none is near enough.

        Parameters
        ----------
        place, array
            The tensor and its values.
        least
            The first position in the other model that it may have.
        """
        levels = [
            (level, name, order)
            for name, order, expected, found in self._other.iter_candidates(array, least)
            if (level := self._compute_noise(name, order, expected, found, array.shape))
            < self._sure
        ]
        best = min((level for level, _, _ in levels), default=0.0)
        # Where rounding hides a small bias, values do not tell a tensor from the one after it, but
        # names may.
        named = [
            each
            for each in levels
            if each[0] <= SHARED * best and has_matching_name(place, self._other.by_name[each[1]])
        ]
        nearest = min(named or levels, key=lambda each: each[0], default=None)
        if nearest is None or self._compute_missing_bias(place, array, nearest)[0] < _HALF:
            return nearest
        behind = find_descendants(nearest[1], self._other.users, _BEHIND)
        added = [
            each
            for each in levels
            if each[1] in behind and self._compute_missing_bias(place, array, each)[1] < _HALF
        ]
        return min(added, key=lambda each: each[0], default=nearest)

    def _compute_noise(
        self,
        name: str,
        order: tuple[int, ...] | None,
        expected: Array,
        found: Array,
        shape: tuple[int, ...],
    ) -> float:
        """Return the noise of a candidate, without that of its own rounding, which the tensor
        before it lacks.
        """
        before = self._other.get_unrounded_elements(name, order, shape)
        level = compute_noise_to_signal(expected, found)
        return (
            level
            if before is None or level >= self._sure
            else min(level, compute_noise_to_signal(expected, before))
        )

    def _compute_missing_bias(
        self, place: ComputedTensor, array: npt.NDArray[np.generic], candidate: Candidate
    ) -> tuple[float, float]:
        """Return the bounds of the part of the source's bias that a candidate lacks; infinite if
        nothing tells.
        """
        _, name, order = candidate
        return compute_missing_bias(
            array,
            self._at_rest.get(place.tensor),
            apply_axis_order(self._other.values[name], order, array.shape),
        )
