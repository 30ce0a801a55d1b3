"""Finding out whether a suspect is the cause of a difference: it is undone in the other model, which then runs again.

Where a suspect's values are, the other model gets those that the source computes from the other's own values.  If its
outputs are the source's then, the suspect is the cause.  If they are as far away as before, it is not.  In between, it
is only the most suspect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nnpipe.analysis.agreement import Agreement, Tolerances, compare
from nnpipe.analysis.channel_noise import Array, arranged, power
from nnpipe.analysis.suspect_operations import Effect, Suspect
from nnpipe.analysis.tensor_pairing import Pair
from nnpipe.analysis.weights_in_use import has_no_effect
from nnpipe.core.claims import INTEGERS, Claim, numbers_of
from nnpipe.core.errors import NNPipeError
from nnpipe.workflows.verification.first_difference import PairedValues, weighted_within
from nnpipe.workflows.verification.graph_order import varying
from nnpipe.workflows.verification.weight_suspects import computing_with
from nnpipe.workflows.verification.weights_in_use import with_numbers

_ORDER: tuple[Effect, ...] = ("all", "", "none")
_TRIED = 3  # suspects that are shown
# The greatest share of the difference that may remain if its cause is undone: half of what is allowed, since other
# samples leave a little more or less.
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

    def outputs_are_same(self) -> bool:
        """Return whether the outputs differ by rounding only."""
        return bool(self._outputs) and self._agreement(self._found).max_relative <= Tolerances().same_tolerance

    def undo_suspects(self, suspects: Collection[Suspect]) -> tuple[Suspect, ...]:
        """Return suspects with the effect of undoing the first of them: causes come first, others without one last."""
        first = [self._with_effect(each) for each in list(suspects)[:_TRIED]]
        return (*sorted(first, key=lambda each: _ORDER.index(each.effect)), *list(suspects)[_TRIED:])

    @cached_property
    def _outputs(self) -> tuple[Pair, ...]:
        """The pairs of the outputs; none if one output has no pair."""
        found = tuple(pair for pair in self.values.pairs if pair.source.tensor in self.values.outputs)
        return found if len(found) == len(self.values.outputs) else ()

    @cached_property
    def _own(self) -> Mapping[str, Array]:
        computed = self.values.recompute({})
        return {pair.source.tensor: np.asarray(computed[pair.source.tensor], np.float64) for pair in self._outputs}

    @cached_property
    def _found(self) -> Mapping[str, Array]:
        return {pair.source.tensor: pair.found for pair in self._outputs}

    def _agreement(self, found: Mapping[str, Array]) -> Agreement:
        """Compare outputs with the source's, sample by sample."""
        sides = (self._own, found)
        count = len(next(iter(self._own.values())))
        ours, theirs = ([{t: a[n : n + 1] for t, a in side.items()} for n in range(count)] for side in sides)
        return compare(ours, theirs)

    def _with_effect(self, suspect: Suspect) -> Suspect:
        within = weighted_within(self.values)
        wanted = {tensor for tensor, names in within.items() if not set(suspect.within).isdisjoint(names)}
        pairs = [p for p in self.values.pairs if p.source.tensor in {suspect.level.tensor, *wanted}]
        if not self._outputs:
            return suspect
        ways: tuple[Callable[[], dict[str, Array]], ...] = (
            lambda: self._undone(pairs), lambda: self._without(self._wrong_in(suspect)),
        )  # fmt: skip
        found: list[tuple[Effect, float]] = []
        for undo in ways:
            try:
                undone = undo()
            except NNPipeError:
                continue
            found += [self._effect(undone)] if undone else []
        if not found:
            return suspect
        effect, left = min(found, key=lambda each: (_ORDER.index(each[0]), each[1]))
        return replace(suspect, effect=effect, left=left)

    def _wrong_in(self, suspect: Suspect) -> dict[str, Array]:
        """Return the other model's numbers for the wrong weights of a suspect."""
        graph, live = self.values.graph, varying(self.values.graph)
        return {
            name: numbers
            for name, numbers in self.wrong.items()
            if any(operation.name in suspect.within for operation in computing_with(graph, live, name))
        }

    def _without(self, numbers: Mapping[str, Array]) -> dict[str, Array]:
        """Return the other model's outputs without what its numbers for some weights change in the source's outputs."""
        if not numbers:
            return {}
        spoilt = with_numbers(numbers, self.values)
        return {tensor: own - (spoilt[tensor] - self._found[tensor]) for tensor, own in self._own.items()}

    def _undone(self, pairs: Collection[Pair]) -> dict[str, Array]:
        """Return the other model's outputs if it continues with the source's results at some pairs."""
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
                found[pair.source.tensor] = arranged(computed, pair.order, pair.expected.shape)
        return found

    def _as_other(self, pair: Pair) -> Array:
        """Return what the source computes, in the other model's order of axes."""
        if pair.order is None:
            found: Array = pair.expected.reshape(self.values.other_shapes[pair.other.tensor])
            return found
        return np.transpose(pair.expected, tuple(map(int, np.argsort(pair.order))))

    def _effect(self, undone: Mapping[str, Array]) -> tuple[Effect, float]:
        """Return what undoing a suspect does to the outputs, and the share of their difference that is left."""
        before = self._distance(self._found)
        left = self._distance(undone) / before if before else 0.0
        if self.outputs_are_same():
            return "none", left
        verdict, _ = self._agreement(undone).verdict(Tolerances(), (numbers_of(self.claims),))
        limit = _LEFT_BY_INTEGERS if numbers_of(self.claims) in INTEGERS else _LEFT
        if verdict != "different" and left <= limit:
            return "all", left
        triples = ((own, undone[tensor], self._found[tensor]) for tensor, own in self._own.items())
        none = all(has_no_effect(own, own + found - new, found, -1) for own, new, found in triples)
        return ("none" if none else ""), left

    def _distance(self, found: Mapping[str, Array]) -> float:
        """Return the power of the difference of outputs from the source's, relative to that of the source's."""
        off = {tensor: float(power((found[tensor] - own).ravel())) for tensor, own in self._own.items()}
        return sum(off[tensor] / (float(power(own.ravel())) or 1.0) for tensor, own in self._own.items())
