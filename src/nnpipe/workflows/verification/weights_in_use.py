"""Excusing weights that differ from the source's, where the values that are computed with them do not."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import Array, noise_to_signal
from nnpipe.analysis.suspect_operations import sure_for
from nnpipe.analysis.tensor_pairing import Pair
from nnpipe.analysis.weight_changes import Weighing, WeightChange
from nnpipe.analysis.weights import Weights
from nnpipe.analysis.weights_in_use import has_no_effect, has_no_effect_in, is_lost
from nnpipe.core.claims import Claim
from nnpipe.workflows.verification.first_difference import PairedValues
from nnpipe.workflows.verification.graph_order import varying
from nnpipe.workflows.verification.model_weights import source_types
from nnpipe.workflows.verification.weight_suspects import computing_with

_MADE_UP_FOR = "other numbers, for which another operation makes up, as the values show"
_HARMLESS = "other numbers, with which the outputs are the same"
_LOST = "other numbers, whose difference is lost in the rounding of what they are added to"
_PICKING = ("gather", "embedding", "take")  # operations that use only some of the numbers


def ignore_unused_differences(
    weighed: Weighing, values: PairedValues, here: Weights, theirs: Mapping[str, Array], outputs_are_same: bool
) -> Weighing:
    """Return a comparison of weights in which differences that have no effect are remarks, not faults.

    A difference is excused if the source's values, recomputed with the other model's numbers, show that the other model
    does not compute with them as the source would.  A kernel must also be the source's up to a factor and a constant
    for each channel, so that no number without an effect on these samples is excused with the others.

    Parameters
    ----------
    weighed
        The comparison of weights.
    values
        The corresponding tensors of the two models.
    here
        The weights of the source.
    theirs
        The other model's numbers for these, see :func:`~nnpipe.analysis.adopted_weights.counterparts`.
    outputs_are_same
        Whether the outputs differ by rounding only.  Then other factors of channels and other vectors have no effect
        either, such as another epsilon where a variance is 0.
    """
    if not weighed.wrong:
        return weighed
    candidates = []
    for change, name in numbers_to_adopt(weighed, values, here, theirs):
        if change.rescaled or theirs[name].ndim == 1:
            pair = _first_after(values, name, weighed.claims)
            if pair is not None:
                candidates.append(_Candidate(change, name, theirs[name], pair))
    found = {}
    for together in _rounds(candidates):
        for candidate, adopted in _adopting(together, values):
            if remark := candidate.excuse(adopted, values.source.wrapper.channel_axis):
                found[candidate.change.name] = replace(candidate.change, wrong="", remark=remark)
    tensors = [found.get(change.name, change) for change in weighed.tensors]
    if outputs_are_same:
        tensors = [_harmless(change, here, values) for change in tensors]
    return replace(weighed, tensors=tuple(tensors))


def numbers_to_adopt(
    weighed: Weighing, values: PairedValues, here: Weights, theirs: Mapping[str, Array]
) -> Iterator[tuple[WeightChange, str]]:
    """Yield wrong weights that the source can be given as the other model has them, with their names in the source."""
    betas = {norm.name: norm.beta_name for norm in here.normalised.values()}
    own = {weight.name: weight.values for weight in here.tensors}
    held = values.source.get_weights()
    for change in weighed.wrong:
        name = change.name if change.name in own else betas.get(change.folded, "")
        if name in theirs and name in own and _is_reshaped(held.get(name), own[name]):
            yield change, name


def _harmless(change: WeightChange, here: Weights, values: PairedValues) -> WeightChange:
    """Return a change as a remark, if it is one of factors of channels, or of a vector of which each number is used."""
    ranks = {weight.name: weight.values.ndim for weight in here.tensors}
    if not change.wrong or not (change.rescaled or ranks.get(change.name, 1) == 1):
        return change
    users = computing_with(values.graph, varying(values.graph), change.name)
    picked = any(word in user.kind.lower() for user in users for word in _PICKING)
    return change if picked else replace(change, wrong="", remark=_HARMLESS)


@dataclass(frozen=True)
class _Candidate:
    """A weight with other numbers, and the first pair of tensors that is computed with it."""

    change: WeightChange
    name: str
    numbers: Array
    pair: Pair

    def excuse(self, adopted: Array, axis: int) -> str:
        """Return why the difference is no fault; an empty string if it may be one."""
        expected, found = self.pair.expected, self.pair.found
        if self.numbers.ndim != 1:
            return _MADE_UP_FOR if has_no_effect(expected, adopted, found, axis) else ""
        channels, count = self.change.channels, self.numbers.size
        if np.ptp(self.numbers) == 0 and count not in expected.shape[1:]:  # neutral, and part of a later operation
            return _MADE_UP_FOR if has_no_effect(expected, adopted, found, axis) else ""
        if is_lost(expected, adopted, channels, count):
            return _LOST
        return _MADE_UP_FOR if has_no_effect_in(expected, adopted, found, channels, count) else ""


def _first_after(values: PairedValues, name: str, claims: Iterable[Claim]) -> Pair | None:
    """Return the first pair that is computed with a weight, if there is exactly one, from and to certain pairs."""
    pairs = {pair.source.tensor: pair for pair in values.pairs}
    operations = values.graph.operations
    following: dict[str, list[str]] = {}
    for operation in operations:
        for taken in operation.inputs:
            following.setdefault(taken, []).extend(operation.outputs)
    starts = [t for each in computing_with(values.graph, varying(values.graph), name) for t in each.outputs]
    found = _until(pairs, starts, following)
    if len(found) != 1:
        return None
    (last,) = found
    before = {tensor: operation.inputs for operation in operations for tensor in operation.outputs}
    least = sure_for(claims)
    certain = {
        tensor
        for tensor, pair in pairs.items()
        if pair.sure or (tensor in values.outputs and noise_to_signal(pair.expected, pair.found) < least)
    }
    return pairs[last] if certain.issuperset(found | _until(pairs, before.get(last, ()), before)) else None


def _until(pairs: Container[str], starts: Iterable[str], following: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the paired tensors at which a walk from some tensors ends."""
    waiting, seen, found = list(starts), set(), set()
    while waiting:
        tensor = waiting.pop()
        if tensor in pairs:
            found.add(tensor)
        elif tensor not in seen:
            seen.add(tensor)
            waiting += following.get(tensor, ())
    return found


def _rounds(candidates: Sequence[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield candidates together that do not change the same tensor, so that one run is enough for them."""
    waiting = list(candidates)
    while waiting:
        first = {candidate.pair.source.tensor: candidate for candidate in reversed(waiting)}
        yield list(first.values())
        waiting = [candidate for candidate in waiting if candidate not in first.values()]


def _is_reshaped(held: np.ndarray[Any, Any] | None, used: Array) -> bool:
    """Return whether the source computes with all of a weight, in its order."""
    return held is not None and held.size == used.size and bool(np.all(held.ravel() == used.ravel()))


def _adopting(together: Sequence[_Candidate], values: PairedValues) -> Iterator[tuple[_Candidate, Array]]:
    """Yield candidates with the tensors that the source computes with their numbers."""
    computed = with_numbers({candidate.name: candidate.numbers for candidate in together}, values, values.given())
    for candidate in together:
        yield candidate, np.asarray(computed[candidate.pair.source.tensor], np.float64)


def with_numbers(
    numbers: Mapping[str, Array], values: PairedValues, given: Mapping[str, Array] = MappingProxyType({})
) -> dict[str, Any]:
    """Return all tensors that the source computes with other numbers in some weights, and restore its own."""
    source = values.source
    before = source.get_weights(numbers)
    changed = {name: array.reshape(before[name].shape) for name, array in numbers.items()}
    source.set_weights(source_types(source, changed))
    try:
        return values.recompute(given)
    finally:
        source.set_weights(before)
