"""What an ONNX file says about itself.

Field numbers are those of ``onnx/onnx.proto3``.  ONNX has no place for the
quantisation of a model's inputs and outputs; it is read off the
``DequantizeLinear`` that an integer input goes into and the
``QuantizeLinear`` that an integer output comes from.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats._errors import Damaged
from nnpipe.formats._onnx_values import first_axis_name, messages, only_element, value_info
from nnpipe.formats._protobuf import Span, fields, spans, text
from nnpipe.formats.file_types import check_there, told

_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 11, 12, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 3, 4, 5, 7
_GRAPH_VALUE, _VALUE_NAME, _ATTRIBUTE_NAME = 13, 1, 1
_MODEL_PROPERTIES = 14
_FUNCTION_NODE, _FUNCTION_ATTRIBUTE = 7, 11
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_SPARSE_TENSORS = (1, 2)
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_DEPTH_LIMIT = 32  # graphs within graphs


@dataclass(frozen=True)
class ONNXFile:
    """What a file takes and gives, and which files beside it hold its weights.

    Parameters
    ----------
    path
        The file.
    inputs, outputs
        Element type and shape by name; ``None`` for what is not stated, or
        is no plain tensor.
    quantisation
        Scale and zero point by name of input or output.
    external
        Files with weights, relative to the file's folder.
    zipped
        Outputs that are dictionaries of scores by class, as converters of
        scikit-learn make them, with the tensor that a ``ZipMap`` makes each of.
    batch_names
        What the first axes of inputs are called where their length is free.
    """

    path: Path
    inputs: dict[str, tuple[str | None, tuple[int | None, ...] | None]]
    outputs: dict[str, tuple[str | None, tuple[int | None, ...] | None]]
    quantisation: dict[str, tuple[float, int]]
    external: tuple[str, ...]
    zipped: Mapping[str, str] = field(default_factory=dict)
    batch_names: frozenset[str] = frozenset()

    def unzipped(self) -> ONNXFile:
        """Return the file as it would be with tensors of scores, ``(n, classes)``, in place of dictionaries."""
        outputs = {
            self.zipped.get(name, name): ("float32", (None, None)) if name in self.zipped else value
            for name, value in self.outputs.items()
        }
        return replace(self, outputs=outputs)

    def io(self, source: IOSpec | None = None) -> IOSpec:
        """Return inputs and outputs.

        Parameters
        ----------
        source
            Those of the model that this one was made from, whose shapes stand
            in for those that the file does not state.

        Raises
        ------
        ArtifactError
            If nothing says of one what it is.
        """
        shapes = {spec.name: spec.shape for spec in source} if source else {}
        return IOSpec(
            tuple(self._spec(name, *value, shapes.get(name)) for name, value in self.inputs.items()),
            tuple(self._spec(name, *value, shapes.get(name)) for name, value in self.outputs.items()),
        )

    def quantised(self, spec: TensorSpec) -> TensorSpec:
        """Return ``spec`` with the file's quantisation of the tensor, if it has one."""
        found = self.quantisation.get(spec.name)
        return TensorSpec(spec.name, spec.shape, spec.dtype, *found) if found else spec

    def check_external(self) -> None:
        """Raise :class:`ArtifactError` if weights lie anywhere but in files of the model's own folder or below."""
        folder = self.path.resolve().parent
        for location in self.external:
            place = (folder / location).resolve()
            if Path(location).is_absolute() or not place.is_relative_to(folder):
                raise ArtifactError(f"{self.path}: its weights are in {location!r}, outside its own folder; refused")
            if not place.is_file():
                raise ArtifactError(f"{self.path}: the file {location!r} with its weights is missing")

    @property
    def bytes_in_all(self) -> int:
        """Bytes of the file and of the files beside it that hold its weights, as far as they are there."""
        places = [self.path, *(self.path.parent / location for location in self.external)]
        return sum(place.stat().st_size for place in places if place.is_file())

    def _spec(
        self,
        name: str,
        dtype: str | None,
        shape: tuple[int | None, ...] | None,
        known: tuple[int | None, ...] | None,
    ) -> TensorSpec:
        shape = known if shape is None else shape
        if name in self.zipped:
            raise ArtifactError(
                f"{self.path}: {name!r} is a dictionary of scores by class, no tensor: convert the model with "
                "options={'zipmap': False}"
            )
        if dtype is None or shape is None:
            raise ArtifactError(f"{self.path}: it does not say what {name!r} is; infer its shapes and save it again")
        return self.quantised(TensorSpec(name, shape, dtype))


def read_onnx(path: str | Path) -> ONNXFile:
    """Read what an ONNX file takes and gives.

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
        raise ArtifactError(f"{path}: not a usable ONNX model: {error}{told(path, 'ONNXModel')}") from None


@dataclass
class _Reader:
    data: memoryview
    inputs: list[Span] = field(default_factory=list)
    outputs: list[Span] = field(default_factory=list)
    constants: dict[str, Span] = field(default_factory=dict)
    consumers: dict[str, list[tuple[str, list[str]]]] = field(default_factory=dict)
    producers: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    external: dict[str, None] = field(default_factory=dict)

    def read(self) -> None:
        """Go through the whole model once."""
        whole = (0, len(self.data))
        # A message that stands twice is one whose fields are merged; graphs are therefore looked at in turn.
        found = False
        for graph in spans(self.data, whole, _MODEL_GRAPH):
            found = True
            self.graph(graph, 0)
        if not found:
            raise Damaged("it holds no graph")
        for function in spans(self.data, whole, _MODEL_FUNCTIONS):
            for number, value in messages(self.data, function):
                if number == _FUNCTION_NODE:
                    self.node(value, 1)
                elif number == _FUNCTION_ATTRIBUTE:
                    self.attribute(value, 1)

        for entry in spans(self.data, whole, _MODEL_PROPERTIES):
            self.texts(entry, 1, 2)

    def texts(self, span: Span, *wanted: int) -> None:
        """Check that some fields of a message are texts."""
        for number, value in messages(self.data, span):
            if number in wanted:
                text(self.data, value)

    def graph(self, span: Span, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise Damaged("graphs are nested too deeply")
        for number, value in messages(self.data, span):
            if number == _GRAPH_NODE:
                self.node(value, depth)
            elif number == _GRAPH_INITIALIZER:
                self.tensor(value, keep=depth == 0)
            elif number == _GRAPH_SPARSE:
                self.sparse(value)
            elif number == _GRAPH_VALUE:
                self.texts(value, _VALUE_NAME)
            elif depth == 0 and number == _GRAPH_INPUT:
                self.inputs.append(value)
            elif depth == 0 and number == _GRAPH_OUTPUT:
                self.outputs.append(value)

    def node(self, span: Span, depth: int) -> None:
        kind, inputs, outputs = "", [], []
        for number, value in messages(self.data, span):
            if number == _NODE_INPUT:
                inputs.append(text(self.data, value))
            elif number == _NODE_OUTPUT:
                outputs.append(text(self.data, value))
            elif number == _NODE_OP_TYPE:
                kind = text(self.data, value)
            elif number in (_NODE_NAME, _NODE_DOMAIN):
                text(self.data, value)  # which no framework takes that is none
            elif number == _NODE_ATTRIBUTE:
                self.attribute(value, depth)
        for name in inputs:
            # A graph within a node may use the tensors around it.
            self.consumers.setdefault(name, []).append((kind if name == inputs[0] else "", inputs))
        if depth == 0:
            self.producers.update((name, (kind, inputs)) for name in outputs)

    def attribute(self, span: Span, depth: int) -> None:
        for number, value in messages(self.data, span):
            if number == _ATTRIBUTE_NAME:
                text(self.data, value)
            elif number in _ATTRIBUTE_TENSORS:
                self.tensor(value)
            elif number in _ATTRIBUTE_GRAPHS:
                self.graph(value, depth + 1)
            elif number in _ATTRIBUTE_SPARSE:
                self.sparse(value)

    def sparse(self, span: Span) -> None:
        for number, value in messages(self.data, span):
            if number in _SPARSE_TENSORS:
                self.tensor(value)

    def tensor(self, span: Span, keep: bool = False) -> None:
        for number, value in messages(self.data, span):
            if number == _TENSOR_EXTERNAL:
                entry = dict.fromkeys((1, 2), "") | {n: text(self.data, v) for n, v in fields(self.data, value)}
                if entry[1] == "location":
                    self.external[entry[2]] = None
            elif keep and number == _TENSOR_NAME:
                self.constants[text(self.data, value)] = span

    def result(self, path: Path) -> ONNXFile:
        """Put together what was found."""
        inputs = dict(value_info(self.data, span) for span in self.inputs)
        outputs = dict(value_info(self.data, span) for span in self.outputs)
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
        zipped = {name: operands[0] for name, (kind, operands) in made.items() if kind == "ZipMap" and operands}
        names = frozenset(first_axis_name(self.data, span) for span in self.inputs) - {""}
        return ONNXFile(path, inputs, outputs, known, tuple(self.external), zipped, names)

    def parameters(self, operands: list[str]) -> tuple[float, int] | None:
        """Scale and zero point of a (de)quantising node, if they are single numbers stored in the file."""
        scale = self._number(operands[1]) if len(operands) > 1 else None
        zero = self._number(operands[2]) if len(operands) > 2 and operands[2] else 0.0
        if scale is None or zero is None or not 0 < scale < math.inf:
            return None
        return scale, int(zero)

    def _number(self, name: str) -> float | None:
        return only_element(self.data, self.constants[name]) if name in self.constants else None
