"""Ranges of activations from which TensorFlow's converter computes its int8 scales.

TensorFlow's calibrator reads the inputs of an operator again after it has run.  An
operator that computes in place has overwritten its first input by then, so that this
tensor gets the range of the result, too: the branch of a residual connection gets that
of the sum, and a layer's centred values that of the normalised ones
(https://github.com/tensorflow/tensorflow/issues/127842).  Therefore the ranges are measured
again, with a memory plan in which no tensor overwrites another.

The values with which attention hides keys, such as the lowest float, also make scales
useless.  They are moved just below the scores, where their softmax is 0 in int8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.compilers._quantisation import GraphStep

# Parts of transformers in TensorFlow Lite files that stay in floats when the rest becomes int8.
#
# Layer normalisations: the variances of tokens differ by factors of a hundred and more, and 256
# steps of one size leave nothing of the small ones and of their inverse roots.  The sums of
# residual connections: what a layer adds is small beside them.  The scores of attention up to their
# softmax: each operator would round them again.  None of these costs much beside the products of
# matrices, which become int8.

_STATISTICS = (
    "ADD",
    "MEAN",
    "SUM",
    "SQUARED_DIFFERENCE",
    "SQUARE",
    "MUL",
    "SUB",
    "MAXIMUM",
    "CAST",
)
_SCALING = ("MUL", "ADD", "SUB")
# Operators whose rounded result is the result for the rounded input.
PASSING = (
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "MAX_POOL_2D",
    "RESHAPE",
    "TRANSPOSE",
    "SQUEEZE",
    "EXPAND_DIMS",
    "DEPTH_TO_SPACE",
    "SPACE_TO_DEPTH",
    "TILE",
)
_SCORES = ("ADD", "SUB", "MUL", "DIV", "SELECT", "SELECT_V2", "MAXIMUM", "MINIMUM")


def find_float_parts(content: bytes) -> list[str]:
    """Return the names of the tensors that the parts of a model compute which should stay in
    floats.
    """
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    graph = _Operators(model)
    places: set[int] = set()
    for number, kind in enumerate(graph.kinds):
        if kind == "RSQRT":
            places |= graph.find_normalization(number)
        elif kind == "SOFTMAX" and not graph.results.intersection(graph.outputs[number]):
            places |= {number} | graph.find_producers(number, _SCORES)
    tensors = model.subgraphs[0].tensors
    return sorted(
        {tensors[out].name.decode() for number in places for out in graph.outputs[number]}
    )


def list_tflite_steps(content: bytes) -> list[GraphStep]:
    """Return the operators of a model's main graph, as far as they compute anything."""
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    names = [tensor.name.decode() for tensor in model.subgraphs[0].tensors]
    graph = _Operators(model)
    return [
        GraphStep(
            str(number),
            tuple(names[place] for place in graph.inputs[number] if place not in graph.constant),
            tuple(names[place] for place in graph.outputs[number]),
            kind in PASSING,
        )
        for number, kind in enumerate(graph.kinds)
    ]


class _Operators:
    """The operators of the main graph by their numbers, and the tensors between them."""

    def __init__(self, model: Any) -> None:
        graph = model.subgraphs[0]
        self.kinds = [get_operator_name(model, operator) for operator in graph.operators]
        self.inputs = [
            [int(place) for place in operator.inputs if place >= 0] for operator in graph.operators
        ]
        self.outputs = [[int(place) for place in operator.outputs] for operator in graph.operators]
        self.results = {int(place) for place in graph.outputs}
        self.maker = {
            place: number for number, places in enumerate(self.outputs) for place in places
        }
        self.users: dict[int, list[int]] = {}
        for number, places in enumerate(self.inputs):
            for place in places:
                self.users.setdefault(place, []).append(number)
        self.constant = {
            place
            for place, tensor in enumerate(graph.tensors)
            if place not in self.maker and place not in set(map(int, graph.inputs))
        }

    def find_normalization(self, root: int) -> set[int]:
        """Return the operators of the normalisation that has this reciprocal root, and of the
        sum it normalises.
        """
        found, given = self._find_statistics(root)
        if not any(self.kinds[number] in ("MEAN", "SUM") for number in found):
            return set()  # a root of something else
        known = (
            given | self.constant | {place for number in found for place in self.outputs[number]}
        )
        waiting = sorted(found)
        while waiting:
            for place in self.outputs[waiting.pop()]:
                for user in self.users.get(place, ()):
                    if (
                        user not in found
                        and self.kinds[user] in _SCALING
                        and known.issuperset(self.inputs[user])
                    ):
                        found.add(user)
                        known |= set(self.outputs[user])
                        waiting.append(user)
        sums = {
            self.maker[place]
            for place in given
            if place in self.maker and self.kinds[self.maker[place]] == "ADD"
        }
        return found.union(sums, *(self.find_producers(number, ("ADD",)) for number in sums))

    def find_producers(self, number: int, kinds: tuple[str, ...]) -> set[int]:
        """Return the operators of some kinds that compute the inputs of one, and those that
        compute theirs.
        """
        found: set[int] = set()
        waiting = [number]
        while waiting:
            for place in self.inputs[waiting.pop()]:
                maker = self.maker.get(place)
                if maker is not None and maker not in found and self.kinds[maker] in kinds:
                    found.add(maker)
                    waiting.append(maker)
        return found

    def _find_statistics(self, root: int) -> tuple[set[int], set[int]]:
        """Return the operators that compute mean and variance with the root itself, and the
        normalised tensors.
        """
        found, given, squared = {root}, set(), set()
        waiting = [root]
        while waiting:
            number = waiting.pop()
            for place in self.inputs[number]:
                maker = self.maker.get(place)
                if self.kinds[number] in ("SQUARED_DIFFERENCE", "SQUARE") or _is_square(
                    self.inputs[number]
                ):
                    squared.add(place)
                elif maker is not None and self.kinds[maker] in _STATISTICS and maker not in found:
                    found.add(maker)
                    waiting.append(maker)
        for place in squared:
            given |= self._find_centre(place, found)
        return found, given

    def _find_centre(self, place: int, found: set[int]) -> set[int]:
        """Add the operators that subtract the mean before the square; return the tensor that has
        it.
        """
        maker = self.maker.get(place)
        if maker is None:
            return {place}
        if self.kinds[maker] == "MEAN":
            found.add(maker)
            return set(self.inputs[maker])
        means = [self.maker.get(each) for each in self.inputs[maker]]
        if self.kinds[maker] == "SUB" and any(
            one is not None and self.kinds[one] == "MEAN" for one in means
        ):
            found |= {
                maker,
                *(one for one in means if one is not None and self.kinds[one] == "MEAN"),
            }
            return set(self.inputs[maker])
        return {place}


def _is_square(inputs: list[int]) -> bool:
    return len(inputs) == 2 and inputs[0] == inputs[1]


def get_operator_name(model: Any, operator: Any) -> str:
    """Return the name of a builtin operator in the schema."""
    from tensorflow.lite.tools import flatbuffer_utils

    return str(flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) or "")


HIDING = -1e4
"""Numbers before a softmax that are not above this one are taken for a mask; scores are far
above it.
"""

# distance of a hidden score from the lowest score: exp(-12) is 0 in int8, even for hundreds of keys
_BELOW = 12.0
# Operators between the mask and the softmax, by their names in the schema.
_PASSING = (
    "ADD",
    "SUB",
    "MUL",
    "SELECT",
    "SELECT_V2",
    "WHERE",
    "MAXIMUM",
    "MINIMUM",
    "RESHAPE",
    "TRANSPOSE",
    "CAST",
    "EXPAND_DIMS",
    "SQUEEZE",
    "BROADCAST_TO",
    "SLICE",
    "STRIDED_SLICE",
    "GATHER",
    "TILE",
    "CONCATENATION",
)


@dataclass
class _Range:
    """The least and greatest value of a tensor, and the least that hides nothing."""

    low: float = np.inf
    high: float = -np.inf
    seen: float = np.inf

    def add(self, values: np.ndarray) -> None:
        """Extend the range by further values; those that are not finite are left out."""
        finite = values[np.isfinite(values)]
        if finite.size:
            self.low, self.high = (
                min(self.low, float(finite.min())),
                max(self.high, float(finite.max())),
            )
            seen = finite[finite > HIDING]
            self.seen = min(self.seen, float(seen.min())) if seen.size else self.seen


def with_measured_ranges(content: bytes, samples: Iterable[Mapping[str, np.ndarray]]) -> bytes:
    """Return a calibrated model with the true ranges of its activations.

    Parameters
    ----------
    content
        A model in floats, whose tensors have the ranges of TensorFlow's calibrator.
    samples
        The samples with which it was calibrated, by the names of the signature's inputs.

    Returns
    -------
    bytes
        The model with other ranges, and with finite masks of attention.  Tensors of the bodies of
        loops keep their ranges, and so do states.
    """
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    graph = model.subgraphs[0]
    calibrated = {
        place
        for place in _list_computed_tensors(graph)
        if (found := graph.tensors[place].quantization) is not None
        and found.min is not None
        and len(found.min) == 1
    }
    ranges = _measure_ranges(content, calibrated, samples)
    for place, measured in ranges.items():
        _set(graph.tensors[place], measured.low, measured.high)
    _lift_masks(model, ranges)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _list_computed_tensors(graph: Any) -> set[int]:
    """Return the inputs of a graph and the results of its operators, without states."""
    found = {int(place) for operator in graph.operators for place in operator.outputs} | set(
        map(int, graph.inputs)
    )
    return {place for place in found if place >= 0 and not graph.tensors[place].isVariable}


def _measure_ranges(
    content: bytes, places: Iterable[int], samples: Iterable[Mapping[str, np.ndarray]]
) -> dict[int, _Range]:
    from tensorflow.lite.python.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=content,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    # The runner of a signature must not live on: the interpreter refuses to run while it is
    # referenced.
    inputs = {
        name: dict(told)
        for name, told in interpreter.get_signature_runner().get_input_details().items()
    }
    ranges = {place: _Range() for place in places}
    shapes: dict[str, tuple[int, ...]] = {}
    for sample in samples:
        if shapes != (wanted := {name: sample[name].shape for name in inputs}):
            for name, told in inputs.items():
                interpreter.resize_tensor_input(told["index"], wanted[name])
            interpreter.allocate_tensors()
            shapes = wanted
        for name, told in inputs.items():
            interpreter.set_tensor(told["index"], sample[name].astype(told["dtype"]))
        interpreter.invoke()
        for place, found in ranges.items():
            try:
                found.add(np.asarray(interpreter.get_tensor(place)))
            except ValueError:  # it holds no values
                continue
    return {place: found for place, found in ranges.items() if found.low <= found.high}


def _set(tensor: Any, low: float, high: float) -> None:
    tensor.quantization.min, tensor.quantization.max = [low], [high]


def _lift_masks(model: Any, ranges: Mapping[int, _Range]) -> None:
    """Raise the numbers that hide keys, in constants and ranges, to just below the scores."""
    graph = model.subgraphs[0]
    before = _find_softmax_operands(model)
    hidden = {
        place: found for place, found in ranges.items() if place in before and found.low <= HIDING
    }
    # One mask serves several layers, so it has to hide the keys of all of them.
    scores = [
        found
        for place, found in ranges.items()
        if place in before and HIDING < found.seen <= found.high
    ]
    if not scores:
        return
    lowest = min(found.seen - max(found.high, 0.0) for found in scores) - _BELOW
    for place, found in hidden.items():
        only_mask = not HIDING < found.seen < 0 < found.high
        low = lowest if only_mask else found.seen - _BELOW
        _set(graph.tensors[place], low, max(found.high, low))
    for place in before - set(ranges):
        _lift_constant(model, graph.tensors[place], lowest)


def _lift_constant(model: Any, tensor: Any, lowest: float) -> None:
    from tensorflow.lite.python import schema_py_generated as schema

    data = model.buffers[tensor.buffer].data
    if tensor.type != schema.TensorType.FLOAT32 or data is None or not len(data):
        return
    values = np.frombuffer(np.asarray(data, np.uint8).tobytes(), "<f4")
    if values.min() <= HIDING:
        lifted = np.where(values <= HIDING, np.float32(lowest), values).astype("<f4")
        model.buffers[tensor.buffer].data = np.frombuffer(lifted.tobytes(), np.uint8)


def _find_softmax_operands(model: Any) -> set[int]:
    """Return the tensors from which the operands of softmaxes are computed by adding, selecting
    and moving values.
    """
    graph = model.subgraphs[0]
    makers = {int(place): operator for operator in graph.operators for place in operator.outputs}
    waiting = [
        int(place)
        for operator in graph.operators
        if get_operator_name(model, operator) == "SOFTMAX"
        for place in operator.inputs
    ]
    found: set[int] = set()
    while waiting:
        place = waiting.pop()
        if place < 0 or place in found:
            continue
        found.add(place)
        maker = makers.get(place)
        if maker is not None and get_operator_name(model, maker) in _PASSING:
            waiting += map(int, maker.inputs)
    return found
