"""Parts of transformers in TensorFlow Lite files that stay in floats when the rest becomes int8.

Layer normalisations: the variances of tokens differ by factors of a hundred and more, and
256 steps of one size leave nothing of the small ones and of their inverse roots.  The sums of
residual connections: what a layer adds is small beside them.  The scores of attention up to
their softmax: each operator would round them again.  None of these costs much beside the
products of matrices, which become int8.
"""

from __future__ import annotations

from typing import Any

from nnpipe.compilers._float_tensors import GraphStep

_STATISTICS = ("ADD", "MEAN", "SUM", "SQUARED_DIFFERENCE", "SQUARE", "MUL", "SUB", "MAXIMUM", "CAST")
_SCALING = ("MUL", "ADD", "SUB")
# Operators whose rounded result is the result for the rounded input.
PASSING = (
    "RELU", "RELU6", "RELU_N1_TO_1", "MAX_POOL_2D", "RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "DEPTH_TO_SPACE",
    "SPACE_TO_DEPTH", "TILE",
)  # fmt: skip
_SCORES = ("ADD", "SUB", "MUL", "DIV", "SELECT", "SELECT_V2", "MAXIMUM", "MINIMUM")


def float_parts(content: bytes) -> list[str]:
    """Return the names of the tensors that the parts of a model compute which should stay in floats."""
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    graph = _Operators(model)
    places: set[int] = set()
    for number, kind in enumerate(graph.kinds):
        if kind == "RSQRT":
            places |= graph.normalisation(number)
        elif kind == "SOFTMAX" and not graph.results.intersection(graph.outputs[number]):
            places |= {number} | graph.before(number, _SCORES)
    tensors = model.subgraphs[0].tensors
    return sorted({tensors[out].name.decode() for number in places for out in graph.outputs[number]})


def steps_of(content: bytes) -> list[GraphStep]:
    """Return the operators of a model's main graph, as far as they compute anything."""
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    names = [tensor.name.decode() for tensor in model.subgraphs[0].tensors]
    graph = _Operators(model)
    return [
        GraphStep(str(number), tuple(names[place] for place in graph.inputs[number] if place not in graph.constant),
             tuple(names[place] for place in graph.outputs[number]), kind in PASSING)
        for number, kind in enumerate(graph.kinds)
    ]  # fmt: skip


class _Operators:
    """The operators of the main graph by their numbers, and the tensors between them."""

    def __init__(self, model: Any) -> None:
        graph = model.subgraphs[0]
        self.kinds = [operator_kind(model, operator) for operator in graph.operators]
        self.inputs = [[int(place) for place in operator.inputs if place >= 0] for operator in graph.operators]
        self.outputs = [[int(place) for place in operator.outputs] for operator in graph.operators]
        self.results = {int(place) for place in graph.outputs}
        self.maker = {place: number for number, places in enumerate(self.outputs) for place in places}
        self.users: dict[int, list[int]] = {}
        for number, places in enumerate(self.inputs):
            for place in places:
                self.users.setdefault(place, []).append(number)
        self.constant = {
            place
            for place, tensor in enumerate(graph.tensors)
            if place not in self.maker and place not in set(map(int, graph.inputs))
        }

    def normalisation(self, root: int) -> set[int]:
        """Return the operators of the normalisation that has this reciprocal root, and of the sum it normalises."""
        found, given = self._statistics(root)
        if not any(self.kinds[number] in ("MEAN", "SUM") for number in found):
            return set()  # a root of something else
        known = given | self.constant | {place for number in found for place in self.outputs[number]}
        waiting = sorted(found)
        while waiting:
            for place in self.outputs[waiting.pop()]:
                for user in self.users.get(place, ()):
                    if user not in found and self.kinds[user] in _SCALING and known.issuperset(self.inputs[user]):
                        found.add(user)
                        known |= set(self.outputs[user])
                        waiting.append(user)
        sums = {self.maker[place] for place in given if place in self.maker and self.kinds[self.maker[place]] == "ADD"}
        return found.union(sums, *(self.before(number, ("ADD",)) for number in sums))

    def before(self, number: int, kinds: tuple[str, ...]) -> set[int]:
        """Return the operators of some kinds that compute the inputs of one, and those that compute theirs."""
        found: set[int] = set()
        waiting = [number]
        while waiting:
            for place in self.inputs[waiting.pop()]:
                maker = self.maker.get(place)
                if maker is not None and maker not in found and self.kinds[maker] in kinds:
                    found.add(maker)
                    waiting.append(maker)
        return found

    def _statistics(self, root: int) -> tuple[set[int], set[int]]:
        """Return the operators that compute mean and variance with the root itself, and the normalised tensors."""
        found, given, squared = {root}, set(), set()
        waiting = [root]
        while waiting:
            number = waiting.pop()
            for place in self.inputs[number]:
                maker = self.maker.get(place)
                if self.kinds[number] in ("SQUARED_DIFFERENCE", "SQUARE") or _squares(self.inputs[number]):
                    squared.add(place)
                elif maker is not None and self.kinds[maker] in _STATISTICS and maker not in found:
                    found.add(maker)
                    waiting.append(maker)
        for place in squared:
            given |= self._centre(place, found)
        return found, given

    def _centre(self, place: int, found: set[int]) -> set[int]:
        """Add the operators that subtract the mean before the square; return the tensor that has it."""
        maker = self.maker.get(place)
        if maker is None:
            return {place}
        if self.kinds[maker] == "MEAN":
            found.add(maker)
            return set(self.inputs[maker])
        means = [self.maker.get(each) for each in self.inputs[maker]]
        if self.kinds[maker] == "SUB" and any(one is not None and self.kinds[one] == "MEAN" for one in means):
            found |= {maker, *(one for one in means if one is not None and self.kinds[one] == "MEAN")}
            return set(self.inputs[maker])
        return {place}


def _squares(inputs: list[int]) -> bool:
    return len(inputs) == 2 and inputs[0] == inputs[1]


def operator_kind(model: Any, operator: Any) -> str:
    """Return the name of a builtin operator in the schema."""
    from tensorflow.lite.tools import flatbuffer_utils

    return str(flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) or "")
