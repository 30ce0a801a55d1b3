"""Find which tensor of one model corresponds to which of another, by their values.

Conversions and fused operations lose names, but not values: on the same samples, a
correct conversion computes the same values as its source.
A fault, however, changes all values after it.  So each operation of the source
is computed from the *other* model's values, if they are known, and the result is
compared with the other model's value.  Then a fault is visible only at its own
position, and the tensors after it can still be paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from nnpipe.analysis._similarity import (
    SHARED,
    Candidate,
    ComputedTensor,
    NearestTensor,
    OtherTensors,
    Values,
    compute_similarity,
    find_dependencies,
    find_descendants,
    get_sampled_channels,
    has_distinct_numbers,
    has_matching_name,
    map_users,
)
from nnpipe.analysis.channel_errors import (
    Array,
    apply_axis_order,
    compute_noise_to_signal,
    iter_axis_orders,
)

__all__ = ["ComputedTensor", "Pair", "TensorPairing", "has_distinct_numbers"]

_ROUNDS = 24
_ALIKE = 0.25  # noise-to-signal ratio below which a damaged tensor can be recognised by its values
_AHEAD = 6  # operations that a faulty one may be fused with


@dataclass(frozen=True)
class Pair:
    """Two corresponding tensors.

    Parameters
    ----------
    source, other
        The tensor of each model with its operation.
    expected
        The result of the source's operations for the other model's values.
    found
        The other model's value, in the source's order of axes.
    sure
        Whether the values prove that the tensors correspond.
    order
        The order in which the other model's axes are the source's; ``None`` if it is reshaped.
    """

    source: ComputedTensor
    other: ComputedTensor
    expected: Array
    found: Array
    sure: bool
    order: tuple[int, ...] | None = None


class TensorPairing:
    """Pairs the tensors of two models.

    Parameters
    ----------
    source, other
        The computed tensors, in an order of computation; converters remove those of the source that
        lead to no output.
    values
        The other model's tensors, as real numbers.
    recompute
        Runs the source, whose operations use the values given for some tensors,
        and returns all computed tensors.
    outputs
        The other model's output for each output of the source.
    sure
        The noise-to-signal ratio below which two tensors certainly correspond.
    axis
        The axis of channels in the source.
    at_rest
        The source's tensors if all inputs of each operation are 0, which are its biases.
    """

    def __init__(
        self,
        source: Sequence[ComputedTensor],
        other: Sequence[ComputedTensor],
        values: Values,
        recompute: Callable[[dict[str, Array]], Values],
        outputs: Mapping[str, str],
        sure: float,
        axis: int = 1,
        at_rest: Values = MappingProxyType({}),
    ) -> None:
        self.sure, self.axis, self.at_rest = sure, axis, at_rest
        self.withdrawn: set[tuple[str, str]] = set()
        needed = find_dependencies(outputs, source)
        self.source = [place for place in source if place.tensor in needed]
        self.other, self.recompute, self.outputs = OtherTensors(other, values), recompute, outputs
        self.nearest = NearestTensor(self.other, sure, at_rest)
        self.users = map_users(self.source)
        self.found: dict[str, tuple[str, tuple[int, ...] | None, bool]] = {}
        # The noise-to-signal ratio of the best candidate for each tensor of the other model.
        self.least: dict[str, float] = {}

    def find_pairs(self) -> list[Pair]:
        """Return all pairs, in the order of the source."""
        computed: Values = {}
        for _ in range(_ROUNDS):
            computed = self.recompute(self._get_other_values(computed))
            fresh = (
                self._match_certain(computed)
                or self._confirm(computed)
                or self._match_damaged(computed)
            )
            if not (fresh or self._match_most_similar(computed) or self._remove_contradictions()):
                break
        return [
            self._build_pair(place, computed) for place in self.source if place.tensor in self.found
        ]

    # -- one round
    # ----------------------------------------------------------------------------------

    def _get_other_values(self, computed: Values) -> dict[str, Array]:
        return {
            tensor: apply_axis_order(
                self.other.as_read(name, self.sure), order, computed[tensor].shape
            )
            for tensor, (name, order, _) in self.found.items()
            if tensor not in self.outputs
        }

    def _match_certain(self, computed: Values) -> bool:
        """Pair tensors that certainly correspond; return whether there are new pairs."""
        nearest: dict[str, Candidate] = {}
        fresh = {}
        for place in self.source:
            if (
                place.tensor in self.found
                or place.tensor not in computed
                or not has_distinct_numbers(computed[place.tensor])
            ):
                continue
            if place.tensor in self.outputs:
                if (output := self._match_output(place.tensor, computed[place.tensor])) is not None:
                    fresh[place.tensor] = output
            elif (
                found := self.nearest.find(
                    place, computed[place.tensor], self._find_least_position(place)
                )
            ) is not None:
                nearest[place.tensor] = found
        bound = set(self.outputs.values())
        for level, name, _ in nearest.values():  # also beside pairs of an earlier round
            self.least[name] = min(level, self.least.get(name, np.inf))
        for place in self.source:
            level, name, order = nearest.get(place.tensor, (np.inf, "", None))
            # With a small bias, the tensors before and after it are very similar.
            shared = name and level <= SHARED * self.least[name] and name not in bound
            if shared and not self._is_sum(place, name, nearest):
                fresh[place.tensor] = (name, order, True)
        self.found |= fresh
        return bool(fresh)

    def _confirm(self, computed: Values) -> bool:
        """Confirm supposed pairs whose values operations now compute; return whether there are
        any.
        """
        fresh = {}
        for tensor, (name, order, certain) in self.found.items():
            if not certain and tensor not in self.outputs and tensor in computed:
                expected = np.asarray(computed[tensor], np.float64)
                if (
                    compute_noise_to_signal(
                        expected, apply_axis_order(self.other.values[name], order, expected.shape)
                    )
                    < self.sure
                ):
                    fresh[tensor] = (name, order, True)
        self.found |= fresh
        return bool(fresh)

    def _match_output(
        self, tensor: str, array: npt.NDArray[np.generic]
    ) -> tuple[str, tuple[int, ...] | None, bool] | None:
        name = self.outputs[tensor]
        if name not in self.other.values:
            return None
        expected = np.asarray(array, np.float64)
        orders = list(iter_axis_orders(self.other.values[name].shape, expected.shape))
        if not orders:
            return None
        levels = [
            (
                compute_noise_to_signal(
                    expected, apply_axis_order(self.other.values[name], o, expected.shape)
                ),
                o,
            )
            for o in orders
        ]
        level, order = min(levels, key=lambda pair: pair[0])
        return name, order, level < self.sure

    def _is_sum(self, place: ComputedTensor, name: str, nearest: Mapping[str, Candidate]) -> bool:
        """Return whether a tensor is rather what the source computes next, by adding a bias to this
        one.

        If it belonged to both, the sum would be computed from the sum, and the bias would seem to
        be missing.
        """
        for user in self.users.get(place.tensor, ()):
            other = (
                nearest[user.tensor][1]
                if user.tensor in nearest
                else self.found.get(user.tensor, ("",))[0]
            )
            if other == name and np.any(self.at_rest.get(user.tensor, 0)):
                return True
        return False

    def _find_least_position(self, place: ComputedTensor) -> int:
        """Return the first position in the other model that is after all inputs of the source's
        operation.
        """
        taken = [
            self.other.position[self.found[name][0]] for name in place.inputs if name in self.found
        ]
        return max(taken, default=-1)

    def _match_damaged(self, computed: Values) -> bool:
        """Pair damaged tensors that are still similar to one tensor only; return whether there are
        new pairs.

        After a tensor without a counterpart, values may be similar by chance.
        """
        nearby = {place.tensor for place in self._find_unpaired(computed)[:_AHEAD]}
        taken = {name for name, _, _ in self.found.values()} | set(self.outputs.values())
        sure = {name for name, _, certain in self.found.values() if certain}
        taken |= self.other.find_intermediates(sure)
        best: dict[str, tuple[float, ComputedTensor, tuple[int, ...] | None]] = {}
        for place in self.source:
            if place.tensor not in computed or not has_distinct_numbers(computed[place.tensor]):
                continue
            for name, order, expected, found in self.other.iter_candidates(
                computed[place.tensor], self._find_least_position(place)
            ):
                level = compute_noise_to_signal(expected, found)
                free = name not in taken and (place.tensor, name) not in self.withdrawn
                if free and level < min(_ALIKE, best[name][0] if name in best else _ALIKE):
                    best[name] = (level, place, order)
        fresh = {}
        for name, (_, place, order) in sorted(best.items(), key=lambda item: -item[1][0]):
            # A tensor whose best candidate is already paired is an intermediate result before it.
            if (
                place.tensor in self.found
                or place.tensor in self.outputs
                or (nearby and place.tensor not in nearby)
            ):
                continue
            fresh[place.tensor] = (name, order, False)
        self.found |= fresh
        return bool(fresh)

    # -- where values no longer tell
    # ----------------------------------------------------------------

    def _match_most_similar(self, computed: Values) -> bool:
        """Pair the first tensor without a counterpart with the most similar one."""
        open_places = self._find_unpaired(computed)
        if not open_places:
            return False
        taken = {name for name, _, _ in self.found.values()}
        best: tuple[float, str, str, tuple[int, ...] | None] | None = None
        for ahead, place in enumerate(open_places[:_AHEAD]):
            if place.tensor in self.outputs:
                break
            for name, order, expected, found in self.other.iter_candidates(
                computed[place.tensor], self._find_least_position(place)
            ):
                if name in taken or (place.tensor, name) in self.withdrawn:
                    continue
                distance = abs(self.other.position[name] - self._find_least_position(place) - 1)
                score = (
                    compute_similarity(
                        expected, found, get_sampled_channels(computed[place.tensor], self.axis)
                    )
                    - 0.02 * distance
                    - 0.01 * ahead
                )
                score += 0.3 * has_matching_name(place, self.other.by_name[name])
                if (expected.min() < 0) != (found.min() < 0):
                    score -= 0.3
                if best is None or score > best[0]:
                    best = (score, place.tensor, name, order)
        if best is None:
            return False
        _, tensor, name, order = best
        self.found[tensor] = (name, order, False)
        return True

    def _remove_contradictions(self) -> bool:
        """Remove supposed pairs that contradict the order of certain ones; return whether there
        are any.
        """
        gone = []
        for tensor, (name, _, certain) in self.found.items():
            if certain or tensor in self.outputs:
                continue
            behind = {
                self.found[t][0]
                for t in find_descendants(tensor, self.users)
                if t in self.found and self.found[t][2]
            }
            if any(self.other.position[other] < self.other.position[name] for other in behind):
                gone.append((tensor, name))
        for tensor, name in gone:
            del self.found[tensor]
            self.withdrawn.add((tensor, name))
        return bool(gone)

    def _find_unpaired(self, computed: Values) -> list[ComputedTensor]:
        """Return the tensors without a pair, except for intermediate results before certain
        pairs.
        """
        accounted: set[str] = set()
        found = []
        for place in reversed(self.source):
            users = self.users.get(place.tensor, ())
            sure = [u.tensor in self.found and self.found[u.tensor][2] for u in users]
            if place.tensor in self.found or any(sure) or any(u.tensor in accounted for u in users):
                if place.tensor not in self.found:
                    accounted.add(place.tensor)
            elif place.tensor in computed and has_distinct_numbers(computed[place.tensor]):
                found.append(place)
        return found[::-1]

    def _build_pair(self, place: ComputedTensor, computed: Values) -> Pair:
        name, order, sure = self.found[place.tensor]
        expected = np.asarray(computed[place.tensor], np.float64)
        return Pair(
            place,
            self.other.by_name[name],
            expected,
            apply_axis_order(self.other.values[name], order, expected.shape),
            sure,
            order,
        )
