"""Analysis of a TensorFlow Lite model: operators, constants and intermediate values."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, random_batch, show_shape
from nnpipe.formats.tflite import read_tflite
from nnpipe.formats.tflite_graph import TFLiteGraph, TFLiteNode, read_graph
from nnpipe.frameworks.litert import LiteRTSession, open_interpreter
from nnpipe.modelwrappers.files._tflite_cutting import cut
from nnpipe.modelwrappers.files._tflite_primitives import primitives_of
from nnpipe.modelwrappers.frameworks.inspection import check_weights, selected

# Modules with the names of operators; tflite_runtime has none.
_SCHEMAS = ("ai_edge_litert.schema_py_generated", "tensorflow.lite.python.schema_py_generated")


class TFLiteSource:
    """A TensorFlow Lite model.

    Attributes
    ----------
    path
        The model file.
    content
        The content of the file with replaced weights; ``None`` while it is unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: bytearray | None = None

    @cached_property
    def file_graph(self) -> TFLiteGraph:
        """The first graph of the file; replacing weights does not change it."""
        return read_graph(self.path)

    # -- weights ----------------------------------------------------------------------------------

    def get_weights(self, keys: Iterable[str] | None) -> dict[str, np.ndarray]:
        """Return copies of constant tensors by name."""
        own = self._weights()
        names = list(own if keys is None else keys)
        check_weights(self.path, names, own)
        data = self.path.read_bytes() if self.content is None else bytes(self.content)
        return {name: self._view(data, own[name]).copy() for name in names}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace constant tensors, after a check that all of them fit."""
        own = self._weights()
        check_weights(self.path, weights, own)
        fresh = {}
        for name, array in weights.items():
            spec, given = self.file_graph.tensors[own[name]], np.asarray(array)
            dtype = np.dtype(spec.dtype)
            if given.shape != spec.shape or given.dtype.kind != dtype.kind:
                raise SpecMismatch(
                    f"weight {name!r} is {spec.dtype} {show_shape(spec.shape)}, "
                    f"given: {given.dtype} {show_shape(given.shape)}"
                )
            fresh[own[name]] = np.ascontiguousarray(given, dtype.newbyteorder("<")).tobytes()
        if fresh and self.content is None:
            self.content = bytearray(self.path.read_bytes())
        for number, data in fresh.items():
            start = self.file_graph.constants[number]
            assert self.content is not None
            self.content[start : start + len(data)] = data

    def _weights(self) -> dict[str, int]:
        return {self.file_graph.names[number]: number for number in self.file_graph.constants}

    def _view(self, data: bytes, number: int) -> np.ndarray:
        spec = self.file_graph.tensors[number]
        shape = tuple(int(n or 0) for n in spec.shape)
        dtype = np.dtype(spec.dtype)
        array = np.frombuffer(data, dtype.newbyteorder("<"), math.prod(shape), self.file_graph.constants[number])
        return array.reshape(shape).astype(dtype)

    # -- graph ------------------------------------------------------------------------------------

    def graph(self, io: IOSpec, sized: bool = False) -> Graph:
        """Return the operators; tensors of types that numpy lacks are left out.

        If it is ``sized``, all shapes follow from those of the inputs in ``io``, and none is left free.
        """
        file = self.file_graph
        kinds = _kinds()
        computed = {number for node in file.nodes for number in node.outputs}
        free = any(None in spec.shape for spec in io.inputs)
        tensors = {
            number: _freed(spec) if free and number in computed & file.fixed else spec
            for number, spec in file.tensors.items()
        }
        if sized and any(None in spec.shape for spec in tensors.values()):
            lengths = self._lengths(io)
            tensors = {n: replace(spec, shape=lengths.get(n, spec.shape)) for n, spec in tensors.items()}

        def named(numbers: Iterable[int]) -> tuple[str, ...]:
            return tuple(file.names[number] for number in numbers if number in tensors)

        def shapes(numbers: Iterable[int]) -> list[tuple[int | None, ...] | None]:
            return [tensors[number].shape if number in tensors else None for number in numbers]

        operations = tuple(
            Operation(
                f"{_kind(node, kinds)}_{number}",
                _kind(node, kinds),
                named(node.inputs),
                named(node.outputs),
                file.names[node.outputs[0]].rpartition("/")[0] if node.outputs else "",
                number,
                primitives_of(_kind(node, kinds), node.options, shapes(node.inputs), shapes(node.outputs)),
                sum(used not in tensors for used in (*node.inputs, *node.outputs)),
            )
            for number, node in enumerate(file.nodes)
        )
        return Graph(
            operations,
            {spec.name: spec for spec in tensors.values()},
            named(file.inputs[spec.name] for spec in io.inputs),
            named(file.outputs[spec.name] for spec in io.outputs),
            file,
        )

    def _lengths(self, io: IOSpec) -> dict[int, tuple[int, ...]]:
        """Return the shape of each tensor after a run on random inputs with the shapes in ``io``."""
        content = None if self.content is None else bytes(self.content)
        interpreter = open_interpreter(
            self.path, 0, resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES", content=content, keep_all=True
        )
        with LiteRTSession(interpreter, io, read_tflite(self.path), self.path) as session:
            session.put(random_batch(io, 1))
            session.run()
            found = interpreter.get_tensor_details()
        return {int(each["index"]): tuple(int(length) for length in each["shape"]) for each in found}

    def intermediates(self, selector: Selector, io: IOSpec, batch: Batch, given: Batch) -> dict[str, np.ndarray]:
        """Return the selected values; operators use given values in place of computed ones."""
        wanted = selected(self.path, selector, self.graph(io).operations)
        numbers = {name: number for number, name in enumerate(self.file_graph.names)}
        content = None if self.content is None else bytes(self.content)
        inputs: dict[int, int] = {}
        if given:
            content, inputs = cut(content or self.path.read_bytes(), [numbers[name] for name in given])
        # XNNPACK fuses operators, and does not expose the values between them.
        interpreter = open_interpreter(
            self.path, 0, resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES", content=content, keep_all=True
        )
        with LiteRTSession(interpreter, io, read_tflite(self.path), self.path) as session:
            for name, array in given.items():
                interpreter.resize_tensor_input(inputs[numbers[name]], array.shape)
            session.put(batch)
            for name, array in given.items():
                interpreter.set_tensor(inputs[numbers[name]], np.ascontiguousarray(array))
            session.run()
            try:
                return {name: np.array(interpreter.get_tensor(numbers[name])) for name in wanted}
            except ValueError as error:
                text = " ".join(str(error).split())
                raise ArtifactError(f"{self.path}: LiteRT shows no value of a chosen tensor: {text}") from None


def _freed(spec: TensorSpec) -> TensorSpec:
    """Return the spec with a first axis of length 1 as a free batch axis, for files that do not state it."""
    return replace(spec, shape=tuple(None if length == 1 else length for length in spec.shape))


def _kinds() -> dict[int, str]:
    """Return the names of operators by number, from the first installed package that has them."""
    for name in _SCHEMAS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return {number: kind for kind, number in vars(module.BuiltinOperator).items() if isinstance(number, int)}
    return {}


def _kind(node: TFLiteNode, kinds: Mapping[int, str]) -> str:
    return node.custom or kinds.get(node.code, f"OPERATOR_{node.code}")
