"""The reader of the inputs, outputs and external weights of an ONNX file.

Field numbers are those of ``onnx/onnx.proto3``.  ONNX has no field for the
quantisation of a model's inputs and outputs.  It is taken from the
``DequantizeLinear`` nodes that use an integer input and from the
``QuantizeLinear`` node that computes an integer output.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats._protobuf import Span, iterate_fields, iterate_spans, read_integers, read_text
from nnpipe.formats.file_types import Damaged, check_there, describe_file_type

# Readers of single values in an ONNX file: descriptions of tensors, and constants with one element.
#
# Field numbers are those of ``onnx/onnx.proto3``.

DTYPES = dict(
    enumerate(
        "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 "
        "uint64".split(),
        1,
    )
) | {16: "bfloat16", 21: "uint4", 22: "int4"}
"""Names of element types by their number in ``TensorProto.DataType``."""

_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_FLOATS, _TENSOR_INT32S, _TENSOR_RAW = 1, 2, 4, 5, 9


def read_value_info(
    data: memoryview, span: Span
) -> tuple[str, tuple[str | None, tuple[int | None, ...] | None]]:
    """Return the name of a tensor with its element type and shape, read from a ValueInfoProto.

    The element type is ``None`` if it is not stated or unknown; the shape is ``None`` if it is not
    stated.
    """
    name, dtype, shape = "", None, None
    for number, value in iterate_messages(data, span):
        if number == 1:
            name = read_text(data, value)
        elif number == 2:
            for tensor in iterate_spans(data, value, 1):
                for part, content in iterate_fields(data, tensor):
                    if part == 1 and isinstance(content, int):
                        dtype = DTYPES.get(content)
                    elif part == 2 and not isinstance(content, int):
                        shape = tuple(
                            _read_length(data, axis) for axis in iterate_spans(data, content, 1)
                        )
    return name, (dtype, shape)


def _read_length(data: memoryview, span: Span) -> int | None:
    """Return the length of a dimension; ``None`` for a free one, which has a name or nothing
    instead of a length.
    """
    known = [
        value
        for number, value in iterate_fields(data, span)
        if number == 1 and isinstance(value, int)
    ]
    return known[-1] if known and known[-1] < 1 << 63 else None


def read_first_axis_name(data: memoryview, span: Span) -> str:
    """Return the name of a tensor's first axis, read from a ValueInfoProto.

    The empty string is returned if the axis has a length or no name.
    """
    for kind in iterate_spans(data, span, 2):
        for tensor in iterate_spans(data, kind, 1):
            for shape in iterate_spans(data, tensor, 2):
                for axis in itertools.islice(iterate_spans(data, shape, 1), 1):
                    named = [value for number, value in iterate_fields(data, axis) if number == 2]
                    if (
                        _read_length(data, axis) is None
                        and named
                        and not isinstance(named[-1], int)
                    ):
                        return read_text(data, named[-1])
    return ""


def read_only_element(data: memoryview, span: Span) -> float | None:
    """Return the element of a TensorProto with one element; ``None`` if it has more, or holds no
    number.
    """
    kind, size, raw, plain = "", 1, b"", 0.0
    for number, value in iterate_fields(data, span):
        content = (
            b"" if isinstance(value, int) else bytes(data[value[0] : min(value[1], value[0] + 16)])
        )
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = DTYPES.get(value, "")
        elif number == _TENSOR_DIMS:
            size *= math.prod(read_integers(data, value))
        elif number == _TENSOR_RAW:
            raw = content
        elif number == _TENSOR_FLOATS and len(content) == 4:
            plain = float(np.frombuffer(content, "<f4")[0])
        elif number == _TENSOR_INT32S:
            plain = float(next(iter(read_integers(data, value)), 0))
    if size != 1 or not kind or kind == "string":
        return None
    if raw and kind != "bfloat16" and len(raw) == np.dtype(kind).itemsize:
        return float(np.frombuffer(raw, np.dtype(kind).newbyteorder("<"))[0])
    return plain


def iterate_messages(data: memoryview, span: Span) -> Iterator[tuple[int, Span]]:
    """Yield the number of each field that is not an integer, and the span of its content."""
    for number, value in iterate_fields(data, span):
        if not isinstance(value, int):
            yield number, value


_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 11, 12, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = (
    1,
    2,
    3,
    4,
    5,
    7,
)
_GRAPH_VALUE, _VALUE_NAME, _ATTRIBUTE_NAME = 13, 1, 1
_MODEL_PROPERTIES = 14
_FUNCTION_NAME, _FUNCTION_NODE, _FUNCTION_DOMAIN, _FUNCTION_ATTRIBUTE = 1, 7, 10, 11
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_SPARSE_TENSORS = (1, 2)
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_DEPTH_LIMIT = 32  # levels of nested graphs
# Frameworks put the nodes of a function in the place of each call: a few hundred bytes can stand
# for any number of nodes, and calls within calls exhaust their stack.
_CALL_DEPTH, _MOST_INLINED = 64, 200_000


@dataclass(frozen=True)
class ONNXFile:
    """The inputs and outputs of an ONNX file, and the names of the files with its external weights.

    Parameters
    ----------
    path
        The file.
    inputs, outputs
        Element type and shape by name; ``None`` for each of them that the file
        does not state, and for values that are not tensors.
    quantisation
        Scale and zero point by name of input or output.
    external
        Paths of the files with weights, relative to the file's folder.
    zipped
        Outputs that are dictionaries of scores by class, which converters of
        scikit-learn write, with the name of the tensor that a ``ZipMap`` node
        turns into each dictionary.
    batch_names
        Names of the inputs' first axes whose length is free.
    """

    path: Path
    inputs: dict[str, tuple[str | None, tuple[int | None, ...] | None]]
    outputs: dict[str, tuple[str | None, tuple[int | None, ...] | None]]
    quantisation: dict[str, tuple[float, int]]
    external: tuple[str, ...]
    zipped: Mapping[str, str] = field(default_factory=dict)
    batch_names: frozenset[str] = frozenset()

    def with_score_tensors(self) -> ONNXFile:
        """Return a copy in which tensors of scores, ``(n, classes)``, replace the dictionaries
        of scores.
        """
        outputs = {
            self.zipped.get(name, name): ("float32", (None, None)) if name in self.zipped else value
            for name, value in self.outputs.items()
        }
        return replace(self, outputs=outputs)

    def io(self, source: IOSpec | None = None) -> IOSpec:
        """Return the specifications of the inputs and outputs.

        Parameters
        ----------
        source
            The inputs and outputs of the model that this one was made from; their
            shapes are used where the file does not state a shape.

        Raises
        ------
        ArtifactError
            If the element type or the shape of an input or output is not known,
            if it is a dictionary, or if it has no name.
        """
        shapes = {spec.name: spec.shape for spec in source} if source else {}
        try:
            return IOSpec(
                tuple(
                    self._build_spec(name, *value, shapes.get(name))
                    for name, value in self.inputs.items()
                ),
                tuple(
                    self._build_spec(name, *value, shapes.get(name))
                    for name, value in self.outputs.items()
                ),
            )
        except SpecMismatch as error:
            raise ArtifactError(f"{self.path}: {error}") from None

    def with_quantization(self, spec: TensorSpec) -> TensorSpec:
        """Return ``spec`` with the file's quantisation of the tensor, if it has one."""
        found = self.quantisation.get(spec.name)
        return TensorSpec(spec.name, spec.shape, spec.dtype, *found) if found else spec

    def check_external(self) -> None:
        """Raise :class:`ArtifactError` if a file with weights is missing, or is outside the
        model's folder.
        """
        folder = self.path.resolve().parent
        for location in self.external:
            place = (folder / location).resolve()
            if Path(location).is_absolute() or not place.is_relative_to(folder):
                raise ArtifactError(
                    f"{self.path}: its weights are in {location!r}, outside its own folder; refused"
                )
            if not place.is_file():
                raise ArtifactError(
                    f"{self.path}: the file {location!r} with its weights is missing"
                )

    @property
    def bytes_in_all(self) -> int:
        """Size of the file and of its existing files with weights, in bytes."""
        places = [self.path, *(self.path.parent / location for location in self.external)]
        return sum(place.stat().st_size for place in places if place.is_file())

    def _build_spec(
        self,
        name: str,
        dtype: str | None,
        shape: tuple[int | None, ...] | None,
        known: tuple[int | None, ...] | None,
    ) -> TensorSpec:
        """Return the specification of one input or output; ``known`` replaces a shape that is
        not stated.
        """
        shape = known if shape is None else shape
        if name in self.zipped:
            raise ArtifactError(
                f"{self.path}: {name!r} is a dictionary of scores by class, not a tensor: convert "
                f"the model with "
                "options={'zipmap': False}"
            )
        if dtype is None or shape is None:
            raise ArtifactError(
                f"{self.path}: it does not say what {name!r} is; infer its shapes and save it again"
            )
        return self.with_quantization(TensorSpec(name, shape, dtype))


def read_onnx(path: str | Path) -> ONNXFile:
    """Return the inputs, outputs and files with weights of an ONNX file.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or not ONNX; the message names it.
    """
    path = Path(path)
    check_there(path)
    if path.stat().st_size == 0:
        raise ArtifactError(f"{path}: not an ONNX model (it is empty)")
    with open(path, "rb") as handle:
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        reader = _Reader(data)
        reader.read()
        return reader.result(path)
    except (Damaged, SpecMismatch) as error:
        raise ArtifactError(
            f"{path}: not a usable ONNX model: {error}{describe_file_type(path, 'ONNXModel')}"
        ) from None


@dataclass
class _Reader:
    data: memoryview
    inputs: list[Span] = field(default_factory=list)
    outputs: list[Span] = field(default_factory=list)
    constants: dict[str, Span] = field(default_factory=dict)
    consumers: dict[str, list[tuple[str, list[str]]]] = field(default_factory=dict)
    producers: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    external: dict[str, None] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)  # of the graph or function that is read

    def read(self) -> None:
        """Read the whole model once and collect its inputs, outputs, nodes and constants."""
        whole = (0, len(self.data))
        # protobuf merges the fields of a message that occurs twice, so every graph is read.
        found = False
        for graph in iterate_spans(self.data, whole, _MODEL_GRAPH):
            found = True
            self.graph(graph, 0)
        if not found:
            raise Damaged("it holds no graph")
        main, bodies = self.kinds, {}
        for function in iterate_spans(self.data, whole, _MODEL_FUNCTIONS):
            self.kinds, name, domain = Counter(), "", ""
            for number, value in iterate_messages(self.data, function):
                if number == _FUNCTION_NODE:
                    self.node(value, 1)
                elif number == _FUNCTION_ATTRIBUTE:
                    self.attribute(value, 1)
                elif number == _FUNCTION_NAME:
                    name = read_text(self.data, value)
                elif number == _FUNCTION_DOMAIN:
                    domain = read_text(self.data, value)
            bodies[f"{domain}::{name}"] = self.kinds
        _check_functions(main, bodies)
        for entry in iterate_spans(self.data, whole, _MODEL_PROPERTIES):
            self.check_texts(entry, 1, 2)

    def check_texts(self, span: Span, *wanted: int) -> None:
        """Raise :class:`Damaged` unless the ``wanted`` fields of a message are valid UTF-8."""
        for number, value in iterate_messages(self.data, span):
            if number in wanted:
                read_text(self.data, value)

    def graph(self, span: Span, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise Damaged("graphs are nested too deeply")
        for number, value in iterate_messages(self.data, span):
            if number == _GRAPH_NODE:
                self.node(value, depth)
            elif number == _GRAPH_INITIALIZER:
                self.tensor(value, keep=depth == 0)
            elif number == _GRAPH_SPARSE:
                self.read_sparse_tensor(value)
            elif number == _GRAPH_VALUE:
                self.check_texts(value, _VALUE_NAME)
            elif depth == 0 and number == _GRAPH_INPUT:
                self.inputs.append(value)
            elif depth == 0 and number == _GRAPH_OUTPUT:
                self.outputs.append(value)

    def node(self, span: Span, depth: int) -> None:
        kind, domain, inputs, outputs = "", "", [], []
        for number, value in iterate_messages(self.data, span):
            if number == _NODE_INPUT:
                inputs.append(read_text(self.data, value))
            elif number == _NODE_OUTPUT:
                outputs.append(read_text(self.data, value))
            elif number == _NODE_OP_TYPE:
                kind = read_text(self.data, value)
            elif number == _NODE_DOMAIN:
                domain = read_text(self.data, value)
            elif number == _NODE_NAME:
                read_text(self.data, value)  # frameworks refuse names that are not UTF-8
            elif number == _NODE_ATTRIBUTE:
                self.attribute(value, depth)
        self.kinds[f"{domain}::{kind}"] += 1
        for name in inputs:
            # A graph inside a node may use the tensors of the outer graph.
            self.consumers.setdefault(name, []).append((kind if name == inputs[0] else "", inputs))
        if depth == 0:
            self.producers.update((name, (kind, inputs)) for name in outputs)

    def attribute(self, span: Span, depth: int) -> None:
        for number, value in iterate_messages(self.data, span):
            if number == _ATTRIBUTE_NAME:
                read_text(self.data, value)
            elif number in _ATTRIBUTE_TENSORS:
                self.tensor(value)
            elif number in _ATTRIBUTE_GRAPHS:
                self.graph(value, depth + 1)
            elif number in _ATTRIBUTE_SPARSE:
                self.read_sparse_tensor(value)

    def read_sparse_tensor(self, span: Span) -> None:
        for number, value in iterate_messages(self.data, span):
            if number in _SPARSE_TENSORS:
                self.tensor(value)

    def tensor(self, span: Span, keep: bool = False) -> None:
        for number, value in iterate_messages(self.data, span):
            if number == _TENSOR_EXTERNAL:
                entry = dict.fromkeys((1, 2), "") | {
                    n: read_text(self.data, v) for n, v in iterate_fields(self.data, value)
                }
                if "\0" in entry[2]:
                    raise Damaged(
                        f"its weights are in {entry[2]!r}, which cannot be the name of a file"
                    )
                if entry[1] == "location":
                    self.external[entry[2]] = None
            elif keep and number == _TENSOR_NAME:
                self.constants[read_text(self.data, value)] = span

    def result(self, path: Path) -> ONNXFile:
        """Return the description of the file, made from what was collected."""
        inputs = dict(read_value_info(self.data, span) for span in self.inputs)
        outputs = dict(read_value_info(self.data, span) for span in self.outputs)
        # Old files list their weights among the inputs.
        inputs = {name: value for name, value in inputs.items() if name not in self.constants}
        quantisation = {}
        for name in inputs:
            users = self.consumers.get(name, [])
            if users and all(kind == "DequantizeLinear" for kind, _ in users):
                quantisation[name] = self.parameters(users[0][1])
        for name in outputs:
            kind, operands = self.producers.get(name, ("", []))
            if kind == "QuantizeLinear":
                quantisation[name] = self.parameters(operands)
        known = {name: found for name, found in quantisation.items() if found is not None}
        made = {name: self.producers.get(name, ("", [])) for name in outputs}
        zipped = {
            name: operands[0]
            for name, (kind, operands) in made.items()
            if kind == "ZipMap" and operands
        }
        names = frozenset(read_first_axis_name(self.data, span) for span in self.inputs) - {""}
        return ONNXFile(path, inputs, outputs, known, tuple(self.external), zipped, names)

    def parameters(self, operands: list[str]) -> tuple[float, int] | None:
        """Return the scale and zero point of a quantising or dequantising node.

        ``None`` is returned unless both are single numbers that are stored in the file.
        """
        scale = self._read_constant(operands[1]) if len(operands) > 1 else None
        zero = self._read_constant(operands[2]) if len(operands) > 2 and operands[2] else 0.0
        if scale is None or zero is None or not 0 < scale < math.inf:
            return None
        return scale, int(zero)

    def _read_constant(self, name: str) -> float | None:
        return (
            read_only_element(self.data, self.constants[name]) if name in self.constants else None
        )


def _check_functions(main: Counter[str], bodies: Mapping[str, Counter[str]]) -> None:
    """Raise :class:`Damaged` if a model's functions call themselves, nest too deeply, or stand for
    too many nodes.

    Parameters
    ----------
    main
        The number of nodes of each kind, ``domain::name``, in the main graph.
    bodies
        The same for the body of each function.
    """
    sizes: dict[str, int] = {}  # nodes of a function, with those of the functions that it calls
    depths: dict[str, int] = {}

    def count_total(kinds: Counter[str]) -> int:
        return sum(count * sizes.get(kind, 1) for kind, count in kinds.items())

    for start in bodies:
        calling: dict[str, Iterator[str]] = {start: iter(bodies[start])}
        while calling:
            name = next(reversed(calling))
            inner = next(
                (kind for kind in calling[name] if kind in bodies and kind not in sizes), None
            )
            if inner in calling:
                raise Damaged(f"its function {inner!r} calls itself")
            if inner is not None:
                calling[inner] = iter(bodies[inner])
                continue
            del calling[name]
            depths[name] = 1 + max((depths.get(kind, 0) for kind in bodies[name]), default=0)
            sizes[name] = count_total(bodies[name])
            if depths[name] > _CALL_DEPTH:
                raise Damaged(f"its functions call one another more than {_CALL_DEPTH} levels deep")
            # Sizes can double with each level, so that their digits would fill the memory.
            if sizes[name] > _MOST_INLINED:
                raise Damaged(f"its function {name!r} stands for more than {_MOST_INLINED:,} nodes")
    if bodies and count_total(main) > _MOST_INLINED + main.total():
        raise Damaged(f"its functions stand for more than {_MOST_INLINED:,} nodes")
