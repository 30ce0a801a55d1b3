"""Finding out whether a suspect is the cause of a difference: it is undone in the other model,
which then runs again.

Where a suspect's values are, the other model gets those that the source computes from the other's
own values.  If its outputs are the source's then, the suspect is the cause.  If they are as far
away as before, it is not.  In between, it is only the most suspect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import Agreement, Tolerances, compare
from nnpipe.analysis.channel_errors import (
    Array,
    apply_axis_order,
    compute_mean_square,
    compute_noise_to_signal,
)
from nnpipe.analysis.suspect_operations import (
    Effect,
    Level,
    Suspect,
    get_sure_threshold,
    has_no_effect,
    has_no_effect_in,
    is_lost,
)
from nnpipe.analysis.tensor_pairing import Pair
from nnpipe.analysis.weight_changes import WeightChange, WeightComparison
from nnpipe.analysis.weights import Weights
from nnpipe.core.artifact import INTEGERS, Claim, get_lowest_precision
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import Graph, Operation
from nnpipe.workflows.verification.binding import find_varying_tensors
from nnpipe.workflows.verification.first_difference import (
    Divergence,
    PairedValues,
    find_weighted_operations,
)
from nnpipe.workflows.verification.model_weights import convert_to_source_types


def sort_by_weights(
    where: Divergence, source: Graph, other: Graph, weights: WeightComparison
) -> Divergence:
    """Return a divergence whose suspects begin with the operations that have wrong weights.

    A fault changes the values of later operations, too, sometimes more than its own (before a
    normalisation).  Wrong weights show its exact place.

    Parameters
    ----------
    where
        The comparison of values.
    source, other
        The graphs of the two models.
    weights
        The comparison of weights, by the names of these graphs.

    Returns
    -------
    Divergence
        Each operation with wrong weights once, the most changed first, then the other suspects in
        their order.
    """
    by_values = {suspect.name: suspect for suspect in where.suspects}
    found: dict[str, Suspect] = {}
    here_live, there_live = find_varying_tensors(source), find_varying_tensors(other)
    for change in weights.wrong:
        there = tuple(
            operation.name for operation in find_weight_users(other, there_live, change.other)
        )
        for operation in find_weight_users(source, here_live, change.name):
            known = found.get(operation.name) or by_values.get(operation.name)
            if known is None:
                level = Level(
                    operation.outputs[0],
                    operation.name,
                    operation.kind,
                    operation.layer,
                    "",
                    0,
                    0,
                    0,
                    0,
                )
                found[operation.name] = Suspect(
                    operation.name, level, (operation.name,), there, change.wrong
                )
            else:
                told = f"{known.told}; {change.wrong}"
                found[operation.name] = replace(
                    known, there=tuple({*known.there, *there}), told=told
                )
    rest = tuple(suspect for suspect in where.suspects if suspect.name not in found)
    return replace(where, suspects=(*found.values(), *rest))


def find_weight_users(graph: Graph, live: set[str], weight: str) -> list[Operation]:
    """Return the operations that compute with a weight, also after its conversion or reshaping
    by others.
    """
    waiting, found = [weight], []
    while waiting:
        name = waiting.pop()
        for operation in graph.operations:
            if name in operation.inputs:
                if live.issuperset(operation.outputs):
                    found.append(operation)
                else:
                    waiting += operation.outputs
    return found


_MADE_UP_FOR = "other numbers, for which another operation makes up, as the values show"
_HARMLESS = "other numbers, with which the outputs are the same"
_LOST = "other numbers, whose difference is lost in the rounding of what they are added to"
_PICKING = ("gather", "embedding", "take")  # operations that use only some of the numbers


def ignore_unused_differences(
    weighed: WeightComparison,
    values: PairedValues,
    here: Weights,
    theirs: Mapping[str, Array],
    outputs_are_same: bool,
) -> WeightComparison:
    """Return a comparison of weights in which differences that have no effect are remarks, not
    faults.

    A difference is excused if the source's values, recomputed with the other model's numbers, show
    that the other model does not compute with them as the source would.  A kernel must also be the
    source's up to a factor and a constant for each channel, so that no number without an effect on
    these samples is excused with the others.

    Parameters
    ----------
    weighed
        The comparison of weights.
    values
        The corresponding tensors of the two models.
    here
        The weights of the source.
    theirs
        The other model's numbers for these, see
        :func:`~nnpipe.analysis.weight_changes.find_counterparts`.
    outputs_are_same
        Whether the outputs differ by rounding only.  Then other factors of channels and other
        vectors have no effect either, such as another epsilon where a variance is 0.
    """
    if not weighed.wrong:
        return weighed
    candidates = []
    for change, name in iter_adoptable_weights(weighed, values, here, theirs):
        if change.rescaled or theirs[name].ndim == 1:
            pair = _find_first_pair(values, name, weighed.claims)
            if pair is not None:
                candidates.append(_Candidate(change, name, theirs[name], pair))
    found = {}
    for together in _iter_rounds(candidates):
        for candidate, adopted in _compute_adopted(together, values):
            if remark := candidate.explain_harmless(adopted, values.source.wrapper.channel_axis):
                found[candidate.change.name] = replace(candidate.change, wrong="", remark=remark)
    tensors = [found.get(change.name, change) for change in weighed.tensors]
    if outputs_are_same:
        tensors = [_check_harmless(change, here, values) for change in tensors]
    return replace(weighed, tensors=tuple(tensors))


def iter_adoptable_weights(
    weighed: WeightComparison, values: PairedValues, here: Weights, theirs: Mapping[str, Array]
) -> Iterator[tuple[WeightChange, str]]:
    """Yield wrong weights that the source can be given as the other model has them, with their
    names in the source.
    """
    betas = {norm.name: norm.beta_name for norm in here.normalised.values()}
    own = {weight.name: weight.values for weight in here.tensors}
    held = values.source.get_weights()
    for change in weighed.wrong:
        name = change.name if change.name in own else betas.get(change.folded, "")
        if name in theirs and name in own and _is_reshaped(held.get(name), own[name]):
            yield change, name


def _check_harmless(change: WeightChange, here: Weights, values: PairedValues) -> WeightChange:
    """Return a change as a remark, if it is one of factors of channels, or of a vector of which
    each number is used.
    """
    ranks = {weight.name: weight.values.ndim for weight in here.tensors}
    if not change.wrong or not (change.rescaled or ranks.get(change.name, 1) == 1):
        return change
    users = find_weight_users(values.graph, find_varying_tensors(values.graph), change.name)
    picked = any(word in user.kind.lower() for user in users for word in _PICKING)
    return change if picked else replace(change, wrong="", remark=_HARMLESS)


@dataclass(frozen=True)
class _Candidate:
    """A weight with other numbers, and the first pair of tensors that is computed with it."""

    change: WeightChange
    name: str
    numbers: Array
    pair: Pair

    def explain_harmless(self, adopted: Array, axis: int) -> str:
        """Return why the difference is no fault; an empty string if it may be one."""
        expected, found = self.pair.expected, self.pair.found
        if self.numbers.ndim != 1:
            return _MADE_UP_FOR if has_no_effect(expected, adopted, found, axis) else ""
        channels, count = self.change.channels, self.numbers.size
        # neutral, and part of a later operation
        if np.ptp(self.numbers) == 0 and count not in expected.shape[1:]:
            return _MADE_UP_FOR if has_no_effect(expected, adopted, found, axis) else ""
        if is_lost(expected, adopted, channels, count):
            return _LOST
        return _MADE_UP_FOR if has_no_effect_in(expected, adopted, found, channels, count) else ""


def _find_first_pair(values: PairedValues, name: str, claims: Iterable[Claim]) -> Pair | None:
    """Return the first pair that is computed with a weight, if there is exactly one, from and to
    certain pairs.
    """
    pairs = {pair.source.tensor: pair for pair in values.pairs}
    operations = values.graph.operations
    following: dict[str, list[str]] = {}
    for operation in operations:
        for taken in operation.inputs:
            following.setdefault(taken, []).extend(operation.outputs)
    starts = [
        t
        for each in find_weight_users(values.graph, find_varying_tensors(values.graph), name)
        for t in each.outputs
    ]
    found = _find_walk_ends(pairs, starts, following)
    if len(found) != 1:
        return None
    (last,) = found
    before = {tensor: operation.inputs for operation in operations for tensor in operation.outputs}
    least = get_sure_threshold(claims)
    certain = {
        tensor
        for tensor, pair in pairs.items()
        if pair.sure
        or (tensor in values.outputs and compute_noise_to_signal(pair.expected, pair.found) < least)
    }
    return (
        pairs[last]
        if certain.issuperset(found | _find_walk_ends(pairs, before.get(last, ()), before))
        else None
    )


def _find_walk_ends(
    pairs: Container[str], starts: Iterable[str], following: Mapping[str, Iterable[str]]
) -> set[str]:
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


def _iter_rounds(candidates: Sequence[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield candidates together that do not change the same tensor, so that one run is enough
    for them.
    """
    waiting = list(candidates)
    while waiting:
        first = {candidate.pair.source.tensor: candidate for candidate in reversed(waiting)}
        yield list(first.values())
        waiting = [candidate for candidate in waiting if candidate not in first.values()]


def _is_reshaped(held: np.ndarray[Any, Any] | None, used: Array) -> bool:
    """Return whether the source computes with all of a weight, in its order."""
    return (
        held is not None and held.size == used.size and bool(np.all(held.ravel() == used.ravel()))
    )


def _compute_adopted(
    together: Sequence[_Candidate], values: PairedValues
) -> Iterator[tuple[_Candidate, Array]]:
    """Yield candidates with the tensors that the source computes with their numbers."""
    computed = with_numbers(
        {candidate.name: candidate.numbers for candidate in together},
        values,
        values.get_replacements(),
    )
    for candidate in together:
        yield candidate, np.asarray(computed[candidate.pair.source.tensor], np.float64)


def with_numbers(
    numbers: Mapping[str, Array],
    values: PairedValues,
    given: Mapping[str, Array] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return all tensors that the source computes with other numbers in some weights, and
    restore its own.
    """
    source = values.source
    before = source.get_weights(numbers)
    changed = {name: array.reshape(before[name].shape) for name, array in numbers.items()}
    source.set_weights(convert_to_source_types(source, changed))
    try:
        return values.recompute(given)
    finally:
        source.set_weights(before)


_ORDER: tuple[Effect, ...] = ("all", "", "none")
_TRIED = 3  # suspects that are shown
# The greatest share of the difference that may remain if its cause is undone: half of what is
# allowed, since other samples leave a little more or less.
_LEFT, _LEFT_BY_INTEGERS = 0.005, 0.05


@dataclass(frozen=True)
class Undoing:
    """The other model with single suspects undone.

    Parameters
    ----------
    values
        The corresponding tensors of the two models.
    claims
        The claims of the conversion.
    wrong
        The other model's numbers for weights that are not as they should be, by the source's names.
    """

    values: PairedValues
    claims: tuple[Claim, ...]
    wrong: Mapping[str, Array] = field(default_factory=dict)

    def has_same_outputs(self) -> bool:
        """Return whether the outputs differ by rounding only."""
        return (
            bool(self._outputs)
            and self._compare_outputs(self._found).max_relative <= Tolerances().same_tolerance
        )

    def undo_suspects(self, suspects: Collection[Suspect]) -> tuple[Suspect, ...]:
        """Return suspects with the effect of undoing the first of them: causes come first,
        others without one last.
        """
        first = [self._with_effect(each) for each in list(suspects)[:_TRIED]]
        return (
            *sorted(first, key=lambda each: _ORDER.index(each.effect)),
            *list(suspects)[_TRIED:],
        )

    @cached_property
    def _outputs(self) -> tuple[Pair, ...]:
        """The pairs of the outputs; none if one output has no pair."""
        found = tuple(
            pair for pair in self.values.pairs if pair.source.tensor in self.values.outputs
        )
        return found if len(found) == len(self.values.outputs) else ()

    @cached_property
    def _own(self) -> Mapping[str, Array]:
        computed = self.values.recompute({})
        return {
            pair.source.tensor: np.asarray(computed[pair.source.tensor], np.float64)
            for pair in self._outputs
        }

    @cached_property
    def _found(self) -> Mapping[str, Array]:
        return {pair.source.tensor: pair.found for pair in self._outputs}

    def _compare_outputs(self, found: Mapping[str, Array]) -> Agreement:
        """Compare outputs with the source's, sample by sample."""
        sides = (self._own, found)
        count = len(next(iter(self._own.values())))
        ours, theirs = (
            [{t: a[n : n + 1] for t, a in side.items()} for n in range(count)] for side in sides
        )
        return compare(ours, theirs)

    def _with_effect(self, suspect: Suspect) -> Suspect:
        within = find_weighted_operations(self.values)
        wanted = {
            tensor for tensor, names in within.items() if not set(suspect.within).isdisjoint(names)
        }
        pairs = [p for p in self.values.pairs if p.source.tensor in {suspect.level.tensor, *wanted}]
        if not self._outputs:
            return suspect
        ways: tuple[Callable[[], dict[str, Array]], ...] = (
            lambda: self._compute_undone(pairs),
            lambda: self._compute_without(self._get_wrong_weights(suspect)),
        )
        found: list[tuple[Effect, float]] = []
        for undo in ways:
            try:
                undone = undo()
            except NNPipeError:
                continue
            found += [self._compute_effect(undone)] if undone else []
        if not found:
            return suspect
        effect, left = min(found, key=lambda each: (_ORDER.index(each[0]), each[1]))
        return replace(suspect, effect=effect, left=left)

    def _get_wrong_weights(self, suspect: Suspect) -> dict[str, Array]:
        """Return the other model's numbers for the wrong weights of a suspect."""
        graph, live = self.values.graph, find_varying_tensors(self.values.graph)
        return {
            name: numbers
            for name, numbers in self.wrong.items()
            if any(
                operation.name in suspect.within
                for operation in find_weight_users(graph, live, name)
            )
        }

    def _compute_without(self, numbers: Mapping[str, Array]) -> dict[str, Array]:
        """Return the other model's outputs without what its numbers for some weights change in
        the source's outputs.
        """
        if not numbers:
            return {}
        spoilt = with_numbers(numbers, self.values)
        return {
            tensor: own - (spoilt[tensor] - self._found[tensor])
            for tensor, own in self._own.items()
        }

    def _compute_undone(self, pairs: Collection[Pair]) -> dict[str, Array]:
        """Return the other model's outputs if it continues with the source's results at some
        pairs.
        """
        if not pairs:
            return {}
        given = {pair.other.tensor: self._as_other(pair) for pair in pairs}
        results = {pair.source.tensor: pair.expected for pair in pairs}
        found = {}
        for pair in self._outputs:
            tensor = pair.other.tensor
            if pair.source.tensor in results:
                found[pair.source.tensor] = results[pair.source.tensor]
            else:
                computed = self.values.other_rerun(given, tensor)[tensor]
                found[pair.source.tensor] = apply_axis_order(
                    computed, pair.order, pair.expected.shape
                )
        return found

    def _as_other(self, pair: Pair) -> Array:
        """Return what the source computes, in the other model's order of axes."""
        if pair.order is None:
            found: Array = pair.expected.reshape(self.values.other_shapes[pair.other.tensor])
            return found
        return np.transpose(pair.expected, tuple(map(int, np.argsort(pair.order))))

    def _compute_effect(self, undone: Mapping[str, Array]) -> tuple[Effect, float]:
        """Return what undoing a suspect does to the outputs, and the share of their difference
        that is left.
        """
        before = self._compute_distance(self._found)
        left = self._compute_distance(undone) / before if before else 0.0
        if self.has_same_outputs():
            return "none", left
        verdict, _ = self._compare_outputs(undone).verdict(
            Tolerances(), (get_lowest_precision(self.claims),)
        )
        limit = _LEFT_BY_INTEGERS if get_lowest_precision(self.claims) in INTEGERS else _LEFT
        if verdict != "different" and left <= limit:
            return "all", left
        triples = ((own, undone[tensor], self._found[tensor]) for tensor, own in self._own.items())
        none = all(has_no_effect(own, own + found - new, found, -1) for own, new, found in triples)
        return ("none" if none else ""), left

    def _compute_distance(self, found: Mapping[str, Array]) -> float:
        """Return the power of the difference of outputs from the source's, relative to that of
        the source's.
        """
        off = {
            tensor: float(compute_mean_square((found[tensor] - own).ravel()))
            for tensor, own in self._own.items()
        }
        return sum(
            off[tensor] / (float(compute_mean_square(own.ravel())) or 1.0)
            for tensor, own in self._own.items()
        )
