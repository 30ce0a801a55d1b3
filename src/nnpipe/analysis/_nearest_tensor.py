"""Find the tensor of another model whose values are nearest to those of one of the source."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.analysis._other_tensors import OtherTensors
from nnpipe.analysis._similarity import ComputedTensor, Values, following, missing_bias, named_alike
from nnpipe.analysis.channel_noise import Array, arranged, noise_to_signal

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

    def of(self, place: ComputedTensor, array: npt.NDArray[np.generic], least: int) -> Candidate | None:
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
            for name, order, expected, found in self._other.candidates(array, least)
            if (level := self._level(name, order, expected, found, array.shape)) < self._sure
        ]
        best = min((level for level, _, _ in levels), default=0.0)
        # Where rounding hides a small bias, values do not tell a tensor from the one after it, but names may.
        named = [
            each for each in levels if each[0] <= SHARED * best and named_alike(place, self._other.by_name[each[1]])
        ]
        nearest = min(named or levels, key=lambda each: each[0], default=None)
        if nearest is None or self._missing_bias(place, array, nearest)[0] < _HALF:
            return nearest
        behind = following(nearest[1], self._other.users, _BEHIND)
        added = [each for each in levels if each[1] in behind and self._missing_bias(place, array, each)[1] < _HALF]
        return min(added, key=lambda each: each[0], default=nearest)

    def _level(
        self, name: str, order: tuple[int, ...] | None, expected: Array, found: Array, shape: tuple[int, ...]
    ) -> float:
        """Return the noise of a candidate, without that of its own rounding, which the tensor before it lacks."""
        before = self._other.before_rounding(name, order, shape)
        level = noise_to_signal(expected, found)
        return level if before is None or level >= self._sure else min(level, noise_to_signal(expected, before))

    def _missing_bias(
        self, place: ComputedTensor, array: npt.NDArray[np.generic], candidate: Candidate
    ) -> tuple[float, float]:
        """Return the bounds of the part of the source's bias that a candidate lacks; infinite if nothing tells."""
        _, name, order = candidate
        return missing_bias(
            array, self._at_rest.get(place.tensor), arranged(self._other.values[name], order, array.shape)
        )
