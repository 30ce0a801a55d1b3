"""The tensors of the model whose counterparts are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.analysis._similarity import (
    ComputedTensor,
    Values,
    comparable,
    counted,
    handed_on,
    is_rounding,
    sampled,
    users,
)
from nnpipe.analysis.channel_noise import Array, arranged, arrangements, noise_to_signal

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
        self.users = users(places)
        self.sizes = {name: array.size for name, array in values.items()}
        self._all = values
        carried = handed_on(places) | counted(places, values)
        self.values = {
            name: array
            for name, array in values.items()
            if name in self.by_name and name not in carried and comparable(array)
        }
        self.unrounded = {
            place.tensor: np.asarray(values[name]).reshape(self.values[place.tensor].shape)
            for place in places
            for name in place.inputs
            if place.tensor in self.values and name in carried & values.keys() and is_rounding(place)
            if comparable(values[name]) and values[name].size == self.values[place.tensor].size
        }

    def before_rounding(self, name: str, order: tuple[int, ...] | None, shape: tuple[int, ...]) -> Array | None:
        """Return the elements that :meth:`candidates` yields, as they were before a tensor was rounded, if it was."""
        if name not in self.unrounded:
            return None
        array = self.unrounded[name]
        found: Array = arranged(array, order, shape).ravel()[sampled(array.size)]
        return found

    def as_read(self, name: str, sure: float) -> Array:
        """Return a tensor as the operations after it read it: it may be reshaped first, and rounded only then.

        Differences above the noise-to-signal ratio ``sure`` are no rounding, and remain visible.
        """
        value = np.asarray(self.values[name], np.float64)
        takers = self.users.get(name, [])
        while len(takers) == 1 and (is_rounding(takers[0]) or _reshapes(takers[0])):
            array = self._all.get(takers[0].tensor)
            if array is not None and comparable(array) and array.size == value.size:
                read = np.asarray(array, np.float64).reshape(value.shape)
                if noise_to_signal(value, read) >= sure:
                    break
                value = read
            takers = self.users.get(takers[0].tensor, [])
        return value

    def candidates(
        self, array: npt.NDArray[np.generic], least: int
    ) -> Iterable[tuple[str, tuple[int, ...] | None, Array, Array]]:
        """Yield the tensors that may be ``array``: the name, the order of axes, and some elements of both.

        The first ``least`` tensors are left out.
        """
        expected = np.asarray(array, np.float64)
        chosen = sampled(expected.size)
        some = expected.ravel()[chosen]
        for name, values in self.values.items():
            if values.size != expected.size or self.position[name] < least:
                continue
            for order in arrangements(values.shape, expected.shape):
                yield name, order, some, arranged(values, order, expected.shape).ravel()[chosen]

    def intermediate(self, sure: set[str]) -> set[str]:
        """Return the other model's tensors that only lead to certain ones.

        Converters move factors and constants from one operation to the next, so these need no counterpart.  A fault in
        them is visible in the result, unless averaging has removed the noise; a product with a smaller matrix does not.
        """
        found: set[str] = set()
        for place in reversed(self.places):
            size, takers = self.sizes.get(place.tensor, 0), self.users.get(place.tensor, ())
            for user in takers:
                kept = self.sizes.get(user.tensor, 0) >= size or any(word in user.kind.lower() for word in _PRODUCTS)
                if user.tensor in sure | found and kept:
                    found.add(place.tensor)
        return found


def _reshapes(place: ComputedTensor) -> bool:
    kind = place.kind.lower()
    return any(word in kind for word in _RESHAPING)
