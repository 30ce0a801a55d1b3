"""Analysis of an ONNX model: nodes, weights and intermediate values."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, MissingDependency, SpecMismatch
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.messages import format_one_line
from nnpipe.core.native_output import suppress_log_messages
from nnpipe.core.tensors import DTYPES, Batch, IOSpec, TensorSpec, generate_random_batch, show_shape
from nnpipe.formats.onnx import ONNXFile
from nnpipe.frameworks.onnxruntime import open_model
from nnpipe.modelwrappers.files._onnx_primitives import list_primitives
from nnpipe.modelwrappers.frameworks.inspection import check_weights, select_tensors

_NOTHING: Batch = MappingProxyType({})


_SMALL = 1 << 16  # bytes of an external weight that is read with the graph


class ONNXSource:
    """An ONNX model that is read when its content is first needed.

    Attributes
    ----------
    file
        The model file.
    changed
        Whether the model differs from the file: weights have been set, or
        dictionaries of scores have been replaced by tensors.
    """

    def __init__(self, file: ONNXFile) -> None:
        self.file = file
        self.changed = bool(file.zipped)

    @cached_property
    def model(self) -> Any:
        """The ``onnx_ir.Model`` with unique names of nodes and inferred shapes.

        Large external weights stay in their files until weights are asked for.
        """
        ir = _import_module("onnx_ir")
        _import_module("onnx")
        passes = _import_module("onnx_ir.passes.common")
        self.file.check_external()
        try:
            model = (
                _load_without_zipmaps(self.file) if self.file.zipped else ir.load(self.file.path)
            )
            small = [
                value
                for value in _list_external_weights(model)
                if value.const_value.nbytes <= _SMALL
            ]
            _load(small)  # shapes may follow from them
        except Exception as error:  # protobuf, onnx_ir and file errors share no base
            raise ArtifactError(
                f"{self.file.path}: not a usable ONNX model: {format_one_line(error)}"
            ) from None
        # Shapes are optional; without them the model is run to find them.  onnx_ir logs its
        # failures with tracebacks.
        with suppress(Exception), suppress_log_messages("onnx_ir"):
            model = passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(
                model
            ).model
        _make_node_names_unique(model.graph)
        return model

    def _load_weights(self) -> Any:
        """Return the model with all weights in memory."""
        try:
            _load(_list_external_weights(self.model))
        except Exception as error:  # file errors and those of onnx_ir share no base
            raise ArtifactError(
                f"{self.file.path}: not a usable ONNX model: {format_one_line(error)}"
            ) from None
        return self.model

    def serialize(self) -> bytes:
        """Return the content of a file with the model and its present weights."""
        model = self._load_weights()
        try:
            return bytes(_import_module("onnx_ir").to_proto(model).SerializeToString())
        except Exception as error:  # larger than 2 GB, or text that is not valid UTF-8
            raise ArtifactError(
                f"{self.file.path}: cannot be held in one piece: {format_one_line(error)}"
            ) from None

    # -- weights ----------------------------------------------------------------------------------

    def get_weights(self, keys: Iterable[str] | None) -> dict[str, np.ndarray]:
        """Return copies of initialisers by name."""
        own = self._list_weights()
        names = list(own if keys is None else keys)
        check_weights(self.file.path, names, own)
        return {name: np.array(own[name].const_value.numpy()) for name in names}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace initialisers, after a check that all of them fit."""
        own = self._list_weights()
        check_weights(self.file.path, weights, own)
        fresh = {}
        for name, array in weights.items():
            given, present = np.asarray(array), own[name].const_value
            shape, dtype = tuple(present.shape.numpy()), present.numpy().dtype
            if given.shape != shape or (given.dtype != dtype and given.dtype.kind != dtype.kind):
                raise SpecMismatch(
                    f"weight {name!r} is {dtype} {show_shape(shape)}, given: {given.dtype} "
                    f"{show_shape(given.shape)}"
                )
            fresh[name] = np.array(given, dtype)
        ir = _import_module("onnx_ir")
        for name, array in fresh.items():
            own[name].const_value = ir.Tensor(array, dtype=own[name].const_value.dtype, name=name)
        self.changed = self.changed or bool(fresh)

    def _list_weights(self) -> dict[str, Any]:
        found = self._load_weights().graph.initializers
        return {
            name: value for name, value in found.items() if value.const_value.dtype.name != "STRING"
        }

    # -- graph ------------------------------------------------------------------------------------

    def graph(self, io: IOSpec, sized: bool = False) -> Graph:
        """Return the main graph; values other than tensors (sequences, maps) are left out.

        If it is ``sized``, all shapes follow from those of the inputs in ``io``, and none is left
        free.
        """
        graph = (self._with_input_shapes(io) if sized else self.model).graph
        values = {
            value.name: value
            for value in (*graph.inputs, *graph.initializers.values())
            if value.name
        }
        nodes = []
        for node in graph:
            values |= {value.name: value for value in node.outputs if value.name}
            if node.op_type != "Constant":
                nodes.append(node)
        tensors = {
            name: spec for name, value in values.items() if (spec := _read_spec(value)) is not None
        }
        unknown = [
            name for name, value in values.items() if name not in tensors and _may_be_tensor(value)
        ]
        if sized:
            unknown += [name for name, spec in tensors.items() if None in spec.shape]
        if unknown:
            tensors |= self._find_specs_by_run(unknown, io, sized)
        known = {spec.name: spec for spec in (io.inputs if sized else io)}
        tensors |= {name: known[name] for name in tensors if name in known}
        return Graph(
            tuple(_convert_node(node, tensors) for node in nodes),
            tensors,
            tuple(spec.name for spec in io.inputs),
            tuple(spec.name for spec in io.outputs),
            self.model,
        )

    def _with_input_shapes(self, io: IOSpec) -> Any:
        """Return the model with the shapes that follow from the inputs in ``io`` if the file
        leaves some free.
        """
        lengths = {spec.name: spec.shape for spec in io.inputs}
        stated = {value.name: _read_spec(value) for value in self.model.graph.inputs}
        if all(
            spec is not None and spec.shape == lengths[name]
            for name, spec in stated.items()
            if name in lengths
        ):
            return self.model
        ir, passes = _import_module("onnx_ir"), _import_module("onnx_ir.passes.common")
        model = self.model.clone()
        for node in model.graph:
            for value in node.outputs:
                if value.shape is not None and not all(
                    isinstance(length, int) for length in value.shape
                ):
                    value.shape = None
        for value in model.graph.inputs:
            if value.name in lengths:
                value.shape = ir.Shape(lengths[value.name])
        with suppress(Exception):  # what cannot be inferred is found by a run
            return passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(
                model
            ).model
        return model

    def _find_specs_by_run(
        self, names: Sequence[str], io: IOSpec, sized: bool
    ) -> dict[str, TensorSpec]:
        """Return the types and ranks, found by one run, of tensors for which the file does not
        state them.

        If the shapes of the inputs are given (``sized``), those of the tensors are known, too.
        """
        try:
            arrays = self._run_for(names, generate_random_batch(io, 1))
        except (ArtifactError, SpecMismatch):
            return {}
        found = {}
        for name, array in arrays.items():
            dtype = "string" if array.dtype.kind in "OUS" else array.dtype.name
            if dtype in DTYPES:
                found[name] = TensorSpec(
                    name, array.shape if sized else (None,) * array.ndim, dtype
                )
        return found

    # -- running ----------------------------------------------------------------------------------

    def compute_intermediates(
        self, selector: Selector, graph: Graph, batch: Batch, given: Batch
    ) -> dict[str, np.ndarray]:
        """Return the selected values; operations use given values in place of computed ones."""
        return self._run_for(
            select_tensors(self.file.path, selector, graph.operations), batch, given
        )

    def _run_for(
        self, names: Sequence[str], batch: Batch, given: Batch = _NOTHING
    ) -> dict[str, np.ndarray]:
        onnx = _import_module("onnx")
        proto = onnx.load_from_string(self.serialize())
        present = {value.name for value in proto.graph.output}
        proto.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in names if name not in present
        )
        taken = {
            name: _replace_by_input(onnx, proto.graph, name, array) for name, array in given.items()
        }
        native = open_model(self.file, 0, optimisation="none", content=proto.SerializeToString())
        try:
            arrays = native.run(
                list(names), {**batch, **{taken[name]: array for name, array in given.items()}}
            )
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(
                f"{self.file.path}: ONNX Runtime cannot run it: {format_one_line(error)}"
            ) from None
        return {
            name: np.array(array)
            for name, array in zip(names, arrays, strict=True)
            if isinstance(array, np.ndarray)
        }


def _replace_by_input(onnx: Any, graph: Any, name: str, array: np.ndarray) -> str:
    """Replace all uses of a tensor by a new input of the model, and return the input's name."""
    fresh = f"{name}:given"
    for node in graph.node:
        for place, taken in enumerate(node.input):
            if taken == name:
                node.input[place] = fresh
    graph.input.append(
        onnx.helper.make_tensor_value_info(
            fresh, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), None
        )
    )
    return fresh


def _load_without_zipmaps(file: ONNXFile) -> Any:
    """Load a model with each ``ZipMap``, whose dictionaries of scores onnx_ir rejects, replaced
    by its tensor.
    """
    ir, onnx = _import_module("onnx_ir"), _import_module("onnx")
    proto = onnx.load(file.path, load_external_data=False)
    for index, output in enumerate(proto.graph.output):
        if output.name in file.zipped:
            scores = file.zipped[output.name]
            proto.graph.output[index].CopyFrom(
                onnx.helper.make_tensor_value_info(scores, onnx.TensorProto.FLOAT, [None, None])
            )
    kept = [node for node in proto.graph.node if not set(node.output) <= file.zipped.keys()]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    model = ir.from_proto(proto)
    ir.external_data.set_base_dir(model.graph, file.path.parent)
    return model


def _list_external_weights(model: Any) -> list[Any]:
    """Return the weights of a model, and of graphs within its nodes, that are still in files
    beside it.
    """
    ir = _import_module("onnx_ir")
    weights = [value for graph in model.graphs() for value in graph.initializers.values()]
    return [value for value in weights if isinstance(value.const_value, ir.ExternalTensor)]


def _load(weights: Sequence[Any]) -> None:
    """Read weights from their files into memory."""
    ir = _import_module("onnx_ir")
    loaded = ir.external_data.convert_tensors_from_external(
        [value.const_value for value in weights]
    )
    for value, tensor in zip(weights, loaded, strict=True):
        value.const_value = tensor


def _make_node_names_unique(graph: Any) -> None:
    """Make the names of the main graph's nodes unique; names that already are stay."""
    taken = set()
    for number, node in enumerate(graph):
        name = node.name or f"{node.op_type}_{number}"
        while name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        node.name = name


def _convert_node(node: Any, tensors: Mapping[str, TensorSpec]) -> Operation:
    """Return a node with those of its tensors whose types numpy has."""
    kind = _get_kind(node)
    # A tensor that is left out has no name.
    sides = [
        ["" if value is None else str(value.name or "") for value in side]
        for side in (node.inputs, node.outputs)
    ]
    shapes = [[tensors[name].shape if name in tensors else None for name in side] for side in sides]
    attributes = {
        name: attribute.value
        for name, attribute in node.attributes.items()
        if attribute.type.name not in _UNREAD
    }
    return Operation(
        node.name,
        kind,
        tuple(name for name in sides[0] if name in tensors),
        tuple(name for name in sides[1] if name in tensors),
        node.name.strip("/").rpartition("/")[0],
        node,
        list_primitives(kind, attributes, *shapes),
        sum(bool(name) and name not in tensors for side in sides for name in side),
    )


def _get_kind(node: Any) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


_UNREAD = set(
    "TENSOR TENSORS GRAPH GRAPHS SPARSE_TENSOR SPARSE_TENSORS TYPE_PROTO TYPE_PROTOS".split()
)


_DTYPES = {"FLOAT": "float32", "DOUBLE": "float64"}


def _read_spec(value: Any) -> TensorSpec | None:
    """Return the spec of a value, if it is known to be a tensor of a type that numpy has."""
    constant = value.const_value
    dtype = constant.dtype if constant is not None else value.dtype
    shape = constant.shape if constant is not None else value.shape
    if dtype is None or shape is None:
        return None
    name = _DTYPES.get(dtype.name, dtype.name.lower())
    if name not in DTYPES:
        return None
    return TensorSpec(value.name, tuple(n if isinstance(n, int) else None for n in shape), name)


def _may_be_tensor(value: Any) -> bool:
    """Return whether a value may be a tensor: not known as a sequence, a map, or of a type that
    numpy lacks.
    """
    kind = type(value.type).__name__
    return value.type is None or (
        kind == "TensorType" and (value.dtype is None or value.shape is None)
    )


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = "onnx-ir" if name.startswith("onnx_ir") else "onnx"
        raise MissingDependency(
            f"looking into an ONNX model needs {package}, which cannot be imported ({error}): pip "
            f"install {package}"
        ) from None
