"""Which operations of a graph a runtime computes in one step, by what it was seen to do with other graphs.

A runtime fuses chains: a convolution with the normalisation, the addition and the activation behind it.  Where its
steps were recorded, each chain is a pattern, and the same pattern in another graph is taken as fused there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import PlainPrimitive, PoolingPrimitive

LONGEST = 16
"""Patterns of more operations are not kept: they are sequences of chains whose origin the runtime did not tell."""
_SAME = {
    "relu6": "clip", "hardtanh": "clip", "relu_n1_to_1": "clip", "hard_swish": "hardswish", "silu": "swish",
    "logistic": "sigmoid", "leaky_relu": "leakyrelu", "hard_sigmoid": "hardsigmoid", "concatenation": "concat",
    "cat": "concat", "permute": "transpose", "addv2": "add", "sum": "add", "truediv": "div", "identity": "view",
}  # fmt: skip


@dataclass(frozen=True)
class FusionPattern:
    """A chain of operations that are computed in one step.

    Parameters
    ----------
    words
        What each operation computes, see :func:`word_of`.
    reads
        For each operation the places of those in the pattern whose results it reads.

    Examples
    --------
    >>> FusionPattern(("convolution", "relu"), ((), (0,))).to_json()
    [['convolution', []], ['relu', [0]]]
    """

    words: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]

    def to_json(self) -> list[Any]:
        """Return the object in its JSON form."""
        return [[word, list(read)] for word, read in zip(self.words, self.reads, strict=True)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> FusionPattern:
        """Make the object from the output of :meth:`to_json`."""
        return cls(tuple(str(word) for word, _ in data), tuple(tuple(map(int, read)) for _, read in data))


def word_of(operation: Operation) -> str:
    """Return what an operation computes, in a word that is alike for all frameworks; empty if it is not known."""
    found = []
    for each in operation.primitives:
        word = each.kind
        if isinstance(each, PlainPrimitive) and each.plain != "view":
            word = _SAME.get(each.function.lower(), each.function.lower()) or each.kind
        elif isinstance(each, PoolingPrimitive):
            word = f"{each.function} {'pooling' if each.kernel else 'over all'}"
        found.append("convolution" if word in ("pointwise convolution", "depthwise convolution") else word)
    return " + ".join(found)


def grouped(graph: Graph, patterns: Sequence[FusionPattern], folded: Iterable[str] = ()) -> tuple[tuple[str, ...], ...]:
    """Return the names of the operations of each step, as far as the patterns tell; the others are steps alone.

    Parameters
    ----------
    graph
        The graph.
    patterns
        What the runtime fuses.  Where several match, the longest does.
    folded
        Operations that are computed when the model is loaded; they are left out.
    """
    view = _View(graph, folded)
    starting: dict[str, list[FusionPattern]] = {}
    for pattern in sorted(patterns, key=lambda each: -len(each.words)):
        starting.setdefault(pattern.words[0], []).append(pattern)
    taken: set[str] = set()
    found = []
    for operation in view.operations:
        if operation.name in taken:
            continue
        chain: Sequence[str] = (operation.name,)
        for pattern in starting.get(view.words[operation.name], ()):
            match = view.match(operation.name, pattern, taken)
            if match:
                chain = match
                break
        taken.update(chain)
        found.append(tuple(chain))
    return tuple(found)


def fusion_patterns(
    seen: Sequence[tuple[Graph, Sequence[Sequence[str]], Iterable[str]]],
) -> tuple[FusionPattern, ...]:
    """Return the patterns that a runtime fuses in most places where they occur.

    Parameters
    ----------
    seen
        Graphs, each with the names of the operations of every step that was recorded, and of folded operations.
    """
    views = [_View(graph, folded) for graph, _, folded in seen]
    chains = [[view.chain(names) for names in steps] for view, (_, steps, _) in zip(views, seen, strict=True)]
    patterns = {
        pattern
        for view, found in zip(views, chains, strict=True)
        for names in found
        if (pattern := view.pattern(names))
    }
    kept = []
    for pattern in patterns:
        places = fused = 0
        for view, found in zip(views, chains, strict=True):
            owner = {name: set(names) for names in found for name in names}
            # Either of two convolutions may be fused with their sum, so places are told apart by their ends.
            ends: dict[str, bool] = {}
            inside: set[str] = set()
            for operation in view.operations:
                match = view.match(operation.name, pattern, set())
                steps = {frozenset(owner.get(name, ())) for name in match}
                if any(set(match) < each for each in steps):
                    inside.add(match[-1])  # a part of a longer chain tells nothing
                elif match:
                    ends[match[-1]] = ends.get(match[-1], False) or steps == {frozenset(match)}
            told = [fits for end, fits in ends.items() if end not in inside]
            places, fused = places + len(told), fused + sum(told)
        if 2 * fused > places:
            kept.append(pattern)
    return tuple(sorted(kept, key=lambda each: (-len(each.words), each.words)))


class _View:
    """A graph with what matching asks of it."""

    def __init__(self, graph: Graph, folded: Iterable[str]) -> None:
        left_out = set(folded)
        self.operations = [each for each in graph.operations if each.name not in left_out]
        self.words = {each.name: self._word(graph, each) for each in self.operations}
        self._by_name = {each.name: each for each in self.operations}
        maker = {tensor: each.name for each in self.operations for tensor in each.outputs}
        self._reads: Mapping[str, set[str]] = {
            each.name: {maker[tensor] for tensor in each.inputs if tensor in maker} for each in self.operations
        }
        self._users: dict[str, list[str]] = {each.name: [] for each in self.operations}
        for name, read in self._reads.items():
            for origin in read:
                self._users[origin].append(name)
        self._ends = {maker[tensor] for tensor in graph.outputs if tensor in maker}

    @staticmethod
    def _word(graph: Graph, operation: Operation) -> str:
        """Return the word of an operation; products of matrices with an axis of samples are fused with less."""
        word = word_of(operation)
        flat = len(graph.tensors[operation.outputs[0]].shape) < 3 if operation.outputs else False
        return f"{word} of two axes" if word == "matrix product" and flat else word

    def chain(self, names: Sequence[str]) -> list[str]:
        """Return the operations of a step in the order of the graph, without views if it computes anything."""
        inside = set(names)
        ordered = [each.name for each in self.operations if each.name in inside]
        return [name for name in ordered if self.words[name] != "view"] or ordered

    def pattern(self, names: Sequence[str]) -> FusionPattern | None:
        """Return the pattern of some operations; ``None`` unless they are one chain whose last result alone leaves."""
        inside, ordered = set(names), list(names)
        if not 1 < len(ordered) <= LONGEST or not all(self.words[name] for name in ordered):
            return None
        place = {name: number for number, name in enumerate(ordered)}
        reads = tuple(tuple(sorted(place[each] for each in self._reads[name] & inside)) for name in ordered)
        if not all(reads[1:]) or not self._is_closed(ordered):
            return None
        return FusionPattern(tuple(self.words[name] for name in ordered), reads)

    def match(self, start: str, pattern: FusionPattern, taken: set[str]) -> list[str]:
        """Return the operations that match a pattern from a first one on; none if they do not."""
        if self.words[start] != pattern.words[0]:
            return []
        chain = [start]
        for word, read in zip(pattern.words[1:], pattern.reads[1:], strict=True):
            needed = {chain[place] for place in read}
            fitting = (
                each
                for each in self._users[chain[read[0]]]
                if self.words[each] == word and each not in chain and each not in taken
                and self._reads[each] & set(chain) == needed
            )  # fmt: skip
            found = next(fitting, None)
            if found is None:
                return []
            chain.append(found)
        return chain if self._is_closed(chain) else []

    def _is_closed(self, chain: Sequence[str]) -> bool:
        """Return whether nothing but the last operation is read from outside."""
        inside = set(chain)
        return all(set(self._users[name]) <= inside and name not in self._ends for name in chain[:-1])
