"""The translation of operations on tensors, as ONNX defines them, to a graph of layers.

The operators and their arguments are those of https://onnx.ai/onnx/operators;
PyTorch's are translated to them first.  An operation without an equivalent layer
is kept as an unknown layer, and reported as a problem.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.formats.onnx_network import ONNXNode
from nnpipe.layers.graph.graph import network
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.imports.channels_first import Builder, Unsupported, View
from nnpipe.layers.imports.operators.table import HANDLERS
from nnpipe.layers.imports.step import Step, make_plugin_handler
from nnpipe.layers.keras.read_file import Reading
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.layer import Shape


def fuse_gelu(nodes: Sequence[ONNXNode], constants: Mapping[str, np.ndarray]) -> list[ONNXNode]:
    """Return the operations with each ``x (1 + erf(x / sqrt 2)) / 2``, in any order of factors,
    fused to a ``Gelu``.
    """
    known = _GeluMatcher(nodes, constants)
    made = {}
    for node in nodes:
        found = known.match_gelu(node) if node.kind == "Erf" else None
        if found is not None:
            x, last = found
            made[id(last)] = ONNXNode("Gelu", last.name, (x,), last.outputs, {})
    # The operations that were fused are no longer needed, and drop out.
    return [made.get(id(node), node) for node in nodes]


class _GeluMatcher:
    def __init__(self, nodes: Sequence[ONNXNode], constants: Mapping[str, np.ndarray]) -> None:
        self.makers = {output: node for node in nodes for output in node.outputs if output}
        self.users: dict[str, list[ONNXNode]] = defaultdict(list)
        for node in nodes:
            for name in dict.fromkeys(node.inputs):
                self.users[name].append(node)
        self.constants = dict(constants)
        for node in nodes:
            value = node.attributes.get("value", node.attributes.get("value_float"))
            if node.kind == "Constant" and value is not None and node.outputs:
                self.constants[node.outputs[0]] = np.asarray(value)

    def match_gelu(self, erf: ONNXNode) -> tuple[str, ONNXNode] | None:
        """Return the input of the GELU around this ``Erf``, and the operation that gives its
        result, or ``None``.
        """
        before = self.makers.get(erf.get_input(0))
        x = None if before is None else self.times(before, math.sqrt(0.5))
        plus = self.find_only_user(erf, "Add")
        if x is None or plus is None or not any(self.is_number(name, 1.0) for name in plus.inputs):
            return None
        first = self.find_only_user(plus, "Mul")
        if first is None:
            return None
        other = next((name for name in first.inputs if name != plus.outputs[0]), "")
        half = self.makers.get(other)
        if half is not None and self.times(half, 0.5) == x:
            return x, first
        last = self.find_only_user(first, "Mul", "Div")
        if last is None:
            return None
        if self.is_number(other, 0.5) and x in last.inputs and last.kind == "Mul":
            return x, last
        return (x, last) if other == x and self.times(last, 0.5) == first.outputs[0] else None

    def times(self, node: ONNXNode, factor: float) -> str | None:
        """Return the tensor that a node multiplies by ``factor``; ``None`` if it does something
        else.
        """
        if len(node.inputs) != 2:
            return None
        a, b = node.inputs
        if node.kind == "Mul":
            return b if self.is_number(a, factor) else a if self.is_number(b, factor) else None
        return a if node.kind == "Div" and self.is_number(b, 1 / factor) else None

    def find_only_user(self, node: ONNXNode, *kinds: str) -> ONNXNode | None:
        """Return the only operation that takes a result, if it is of one of these kinds."""
        users = self.users[node.outputs[0]] if node.outputs else []
        return users[0] if len(users) == 1 and users[0].kind in kinds and users[0].outputs else None

    def is_number(self, name: str, value: float) -> bool:
        held = self.constants.get(name)
        return (
            held is not None
            and held.size == 1
            and math.isclose(float(held.reshape(-1)[0]), value, rel_tol=1e-4)
        )


_MOST = 1 << 16  # values in a result that is larger than its inputs
# values where one stands for many: states that start from zeros, for any number of samples
_MOST_ALIKE = 1 << 24
_KEEP_ALIKE = frozenset(
    {
        "Constant",
        "Identity",
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Slice",
        "Shape",
        "Size",
        "Expand",
        "ConstantOfShape",
    }
)  # these take no memory for their results
_TYPES = {
    1: "f4",
    2: "u1",
    3: "i1",
    5: "i2",
    6: "i4",
    7: "i8",
    9: "?",
    10: "f2",
    11: "f8",
    12: "u4",
    13: "u8",
}


def fold(node: ONNXNode, given: Sequence[Any], room: int) -> np.ndarray | None:
    """Return the result of an operation on constants; ``None`` if the operation is not supported
    here.

    Parameters
    ----------
    node, given
        The operation and its inputs, ``None`` for inputs that are left out.
    room
        Greatest number of values for which the result may take memory.

    Raises
    ------
    ValueError
        If the operation is used against its definition, or its result would be too large.
    """
    operation = _OPERATIONS.get(node.kind)
    if operation is None or (not given and node.kind != "Constant"):
        return None
    if node.kind not in _KEEP_ALIKE:
        there = [array for array in given if array is not None]
        if sum(a.size for a in there) > room or any(
            a.size > max(_MOST, _count_stored_values(a)) for a in there
        ):
            raise ValueError("a constant that would be very large")
    try:
        with np.errstate(all="ignore"):
            return np.asarray(operation(node, list(given)))
    except AttributeError:  # an input is None or a number instead of an array
        raise ValueError("an input is missing, or an attribute of another kind") from None
    except RuntimeError as error:  # numpy raises it for too many axes
        raise ValueError(str(error)) from None


def count_copied_values(node: ONNXNode, result: np.ndarray) -> int:
    """Return the number of values for which the result of an operation takes memory."""
    return 0 if node.kind in _KEEP_ALIKE else result.size


def _count_stored_values(array: np.ndarray) -> int:
    """Return the number of values that an array really stores; broadcast values count once."""
    return math.prod(
        extent for extent, stride in zip(array.shape, array.strides, strict=True) if stride
    )


def _check_extents(shape: Any, most: int = _MOST) -> tuple[int, ...]:
    extents = tuple(int(extent) for extent in np.asarray(shape).reshape(-1))
    size = 1
    for extent in extents:
        if extent < 0:
            raise ValueError("an extent below zero")
        size *= extent
        if size > most:
            raise ValueError("a constant that would be very large")
    return extents


def _compute_constant(node: ONNXNode, given: list[Any]) -> Any:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if (found := node.attributes.get(name)) is not None:
            kind = np.float32 if "float" in name else np.int64
            return found if isinstance(found, np.ndarray) else np.array(found, kind)
    raise ValueError("a constant without a value")


def _read_axes(node: ONNXNode, given: list[Any]) -> list[int]:
    found = given[1] if len(given) > 1 and given[1] is not None else node.attributes.get("axes")
    return [] if found is None else [int(axis) for axis in np.asarray(found).reshape(-1)]


def _compute_reshape(node: ONNXNode, given: list[Any]) -> Any:
    array, target = given[0], [int(extent) for extent in given[1].reshape(-1)]
    if not node.attributes.get("allowzero"):
        target = [
            array.shape[place] if extent == 0 else extent for place, extent in enumerate(target)
        ]
    return array.reshape(target)


def _compute_unsqueeze(node: ONNXNode, given: list[Any]) -> Any:
    return np.expand_dims(given[0], tuple(_read_axes(node, given)))


def _compute_squeeze(node: ONNXNode, given: list[Any]) -> Any:
    return np.squeeze(given[0], tuple(_read_axes(node, given)) or None)


def _compute_slice(node: ONNXNode, given: list[Any]) -> Any:
    if len(given) < 3:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes") or range(len(starts)), [1] * len(starts)
    else:
        starts, ends = (array.reshape(-1) for array in given[1:3])
        axes = (
            given[3].reshape(-1) if len(given) > 3 and given[3] is not None else range(len(starts))
        )
        steps = (
            given[4].reshape(-1) if len(given) > 4 and given[4] is not None else [1] * len(starts)
        )
    places: list[Any] = [slice(None)] * given[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        places[int(axis)] = slice(int(start), int(end), int(step))
    return given[0][tuple(places)]


def _compute_quotient(a: Any, b: Any) -> Any:
    if a.dtype.kind in "iu":
        return np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b))).astype(a.dtype)
    return a / b


def _make_binary(function: Callable[[Any, Any], Any]) -> Callable[[ONNXNode, list[Any]], Any]:
    def call(node: ONNXNode, given: list[Any]) -> Any:
        a, b = given
        shape = np.broadcast_shapes(a.shape, b.shape)
        if shape not in (a.shape, b.shape):
            _check_extents(shape)
        return function(a, b)

    return call


def _compute_cast(node: ONNXNode, given: list[Any]) -> Any:
    return given[0].astype(_TYPES[node.attributes["to"]])


def _compute_constant_of_shape(node: ONNXNode, given: list[Any]) -> Any:
    value = node.attributes.get("value")
    number = np.float32(0) if value is None else value.reshape(-1)[0]
    return np.broadcast_to(number, _check_extents(given[0], _MOST_ALIKE))


def _compute_expand(node: ONNXNode, given: list[Any]) -> Any:
    shape = np.broadcast_shapes(
        given[0].shape, tuple(int(extent) for extent in given[1].reshape(-1))
    )
    return np.broadcast_to(
        given[0], shape if shape == given[0].shape else _check_extents(shape, _MOST_ALIKE)
    )


def _compute_gather(node: ONNXNode, given: list[Any]) -> Any:
    array, places = given
    axis = node.attributes.get("axis") or 0
    if places.size * array.size > max(_MOST, array.size) * max(array.shape[axis], 1):
        raise ValueError("a constant that would be very large")
    return np.take(array, places, axis)


def _compute_where(node: ONNXNode, given: list[Any]) -> Any:
    _check_extents(np.broadcast_shapes(*(array.shape for array in given)))
    return np.where(*given)


def _compute_transpose(node: ONNXNode, given: list[Any]) -> Any:
    return np.transpose(given[0], node.attributes.get("perm"))


_OPERATIONS: dict[str, Callable[[ONNXNode, list[Any]], Any]] = {
    "Constant": _compute_constant,
    "Identity": lambda node, given: given[0],
    "Reshape": _compute_reshape,
    "Flatten": lambda node, given: given[0].reshape(
        int(np.prod(given[0].shape[: node.attributes.get("axis", 1)])), -1
    ),
    "Transpose": _compute_transpose,
    "Unsqueeze": _compute_unsqueeze,
    "Squeeze": _compute_squeeze,
    "Slice": _compute_slice,
    "Gather": _compute_gather,
    "Concat": lambda node, given: np.concatenate(given, node.attributes["axis"]),
    "Shape": lambda node, given: np.array(given[0].shape, np.int64),
    "Size": lambda node, given: np.array(given[0].size, np.int64),
    "Cast": _compute_cast,
    "ConstantOfShape": _compute_constant_of_shape,
    "Expand": _compute_expand,
    "Add": _make_binary(np.add),
    "Sub": _make_binary(np.subtract),
    "Mul": _make_binary(np.multiply),
    "Div": _make_binary(_compute_quotient),
    "Max": _make_binary(np.maximum),
    "Min": _make_binary(np.minimum),
    "Equal": _make_binary(np.equal),
    "Neg": lambda node, given: -given[0],
    "Sqrt": lambda node, given: np.sqrt(given[0]),
    "Floor": lambda node, given: np.floor(given[0]),
    "Ceil": lambda node, given: np.ceil(given[0]),
    "Where": _compute_where,
}

SAMPLES = 7919
"""Placeholder of the batch size in computations of shapes; a prime that no real network has as
an extent.
"""

# values that may be created for each value of the source; unrolled steps share their weights
_TIMES = 16


@dataclass(frozen=True)
class OperationNetwork:
    """A network of operations.

    Attributes
    ----------
    name, source
        Its name, and the origin of its operations: ``"onnx"`` or ``"torch"``.
    inputs
        Element type and shape by name.
    constants
        Arrays by name.
    nodes
        The operations in topological order.
    outputs
        Names of the outputs.
    opset
        Version of the operator set.
    """

    name: str
    source: str
    inputs: Mapping[str, tuple[str, Shape]]
    constants: Mapping[str, np.ndarray]
    nodes: Sequence[ONNXNode]
    outputs: Sequence[str]
    opset: int = 18


def build(foreign: OperationNetwork) -> Reading:
    """Translate a network of operations to layers as far as possible; faults are problems, and
    nothing is raised.
    """
    return _Translation(foreign).result()


class _Translation:
    def __init__(self, foreign: OperationNetwork) -> None:
        self.foreign, self.builder = foreign, Builder()
        within = (value for node in foreign.nodes for value in node.attributes.values())
        arrays = [
            value
            for value in (*foreign.constants.values(), *within)
            if isinstance(value, np.ndarray)
        ]
        self.builder.room += _TIMES * sum(value.size for value in arrays)
        self.values: dict[str, View] = {}
        self.constants = dict(foreign.constants)
        self.problems: list[NetworkProblem] = []
        self.users: Counter[str] = Counter()
        self.made: dict[str, Any] = {}  # the layer that was created for each value, if one was
        first = {shape[0] for _, shape in foreign.inputs.values() if shape}
        fixed = first.pop() if len(first) == 1 else None
        self.samples = SAMPLES if fixed is None else fixed

    def result(self) -> Reading:
        for name, (dtype, shape) in self.foreign.inputs.items():
            try:
                self.values[name] = self.builder.input(name, dtype, shape)
            except Unsupported as error:
                return Reading(None, {}, (NetworkProblem(error.code, name, str(error)),))
        nodes = self.find_needed_nodes()
        self.users.update(name for node in nodes for name in node.inputs if name)
        self.users.update(self.foreign.outputs)
        for node in nodes:
            self.translate(node)
        missing = [name for name in self.foreign.outputs if name not in self.values]
        for name in missing:
            self.problems.append(
                NetworkProblem("reference", name, "is an output that nothing gives, or a constant")
            )
        if not self.foreign.outputs:
            self.problems.append(
                NetworkProblem("reference", "outputs", "the network has no output")
            )
        if missing or not self.foreign.outputs:
            return Reading(None, {}, tuple(self.problems))
        # Outputs keep the order of axes in the source.
        outputs = tuple(self.materialize_value(name, name).tensor for name in self.foreign.outputs)
        graph = network(tuple(self.builder.inputs), outputs, self.foreign.name)
        held = [n for n in self.builder.weights if n.partition("/")[0] in graph.layers]
        told = {problem.path for problem in self.problems}
        more = [
            p for p in infer(graph).problems if p.code != "unknown-layer" and p.path not in told
        ]
        return Reading(
            graph, {name: self.builder.weights[name] for name in held}, (*self.problems, *more)
        )

    def materialize_value(self, name: str, place: str) -> View:
        """Return a value after pending operations; if they are not supported, report it and
        return it unchanged.
        """
        view = self.values[name]
        if view.own is None:
            return view
        try:
            return self.builder.materialize(view)
        except Unsupported as error:
            self.problems.append(NetworkProblem(error.code, place, str(error)))
            return view

    def find_needed_nodes(self) -> list[ONNXNode]:
        """Return the operations on which the outputs depend."""
        wanted, found = set(self.foreign.outputs), []
        for node in reversed(fuse_gelu(self.foreign.nodes, self.constants)):
            if wanted.intersection(node.outputs):
                wanted.update(node.inputs)
                found.append(node)
        return found[::-1]

    def translate(self, node: ONNXNode) -> None:
        title = node.title or node.kind
        step = Step(
            node,
            builder=self.builder,
            opset=self.foreign.opset,
            samples=self.samples,
            values=self.values,
            constants=self.constants,
            users=self.users,
            made=self.made,
        )
        try:
            if self.fold(node):
                return
            handler = HANDLERS.get(node.kind) or make_plugin_handler(node.kind)
            if handler is None:
                raise Unsupported(f"{node.kind} is not in the vocabulary", code="unknown-layer")
            found = handler(step)
        except Unsupported as error:
            place = f"{title}.{error.argument}" if error.argument else title
            message = str(error) if error.code == "unknown-layer" else f"{node.kind} {error}"
            self.problems.append(NetworkProblem(error.code, place, message))
            self.add_unknown(node, step)
            return
        except (
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            OverflowError,
            ArithmeticError,
        ) as error:
            text = " ".join(f"{node.kind} is not used as it is defined: {error}".split())
            self.problems.append(NetworkProblem("structure", title, text[:200]))
            self.add_unknown(node, step)
            return
        views = found if isinstance(found, Sequence) else [found]
        before = [self.values[name].tensor for name in node.inputs if name in self.values]
        if views[0] is not None and all(views[0].tensor is not tensor for tensor in before):
            self.made[node.outputs[0]] = views[0].tensor
        self.values |= {
            output: view
            for output, view in zip(node.outputs, views, strict=False)
            if view is not None
        }

    def fold(self, node: ONNXNode) -> bool:
        """Compute an operation that depends on constants and shapes alone; return whether it was
        one.
        """
        if node.kind in ("Shape", "Size") and node.get_input(0) in self.values:
            view = self.values[node.get_input(0)]
            shape = view.shape
            if any(extent is None and axis != view.samples for axis, extent in enumerate(shape)):
                raise Unsupported("asks for a shape that is free", code="shape")
            lengths = np.array(
                [self.samples if axis == view.samples else e for axis, e in enumerate(shape)],
                np.int64,
            )
            start, end = node.attributes.get("start") or 0, node.attributes.get("end")
            self.constants[node.outputs[0]] = (
                lengths[start:end] if node.kind == "Shape" else lengths.prod()
            )
            return True
        given = [self.constants.get(name) if name else None for name in node.inputs]
        if any(name and value is None for name, value in zip(node.inputs, given, strict=True)):
            return False
        found = fold(node, given, self.builder.room)
        if found is None:
            return False
        self.builder.reserve_values(count_copied_values(node, found))
        self.constants[node.outputs[0]] = found
        return True

    def add_unknown(self, node: ONNXNode, step: Step) -> None:
        """Keep an operation without an equivalent layer, with its constants."""
        name = step.name()
        given = [
            self.materialize_value(value, node.title or node.kind)
            for value in node.inputs
            if value in self.values
        ]
        held = {value: self.constants[value] for value in node.inputs if value in self.constants}
        plain = {
            key: value
            for key, value in node.attributes.items()
            if not isinstance(value, np.ndarray)
        }
        raw = {"class_name": node.kind, "module": self.foreign.source, "config": plain}
        views = self.builder.add_unknown(name, raw, given, max(len(node.outputs), 1))
        self.values |= {
            output: view for output, view in zip(node.outputs, views, strict=False) if output
        }
        self.builder.weights |= {f"{name}/{key}": value for key, value in held.items()}
