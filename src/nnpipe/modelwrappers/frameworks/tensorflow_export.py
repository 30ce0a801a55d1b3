"""Writing a Keras model: as Keras does, and as ONNX."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConversionError, MissingDependency
from nnpipe.core.log_levels import quiet_loggers
from nnpipe.core.messages import one_line
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.keras import copying_variables, import_keras, named_call

OPSET = 18


def write_keras(model: Any, path: Path, owner: str) -> None:
    """Write a ``.keras`` file; raises :class:`ConversionError` if Keras cannot."""
    named = path.with_name(path.name + ".keras")  # Keras goes by the ending
    try:
        with copying_variables():
            model.save(named)
        os.replace(named, path)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConversionError(f"{owner} cannot be saved: {one_line(error)}") from None
    finally:
        named.unlink(missing_ok=True)


def write_onnx(model: Any, io: IOSpec, path: Path, owner: str) -> None:
    """Convert a Keras model with tf2onnx; tensors keep the names of ``io`` and a free first axis stays free.

    Raises
    ------
    MissingDependency
        If tf2onnx or onnx is not installed.
    ConversionError
        If an operation has no equivalent in ONNX, or the model is too large for one file.
    """
    try:
        import onnx
        import tf2onnx
    except ImportError as error:
        raise MissingDependency(
            f"exporting {owner} as onnx needs {error.name}, which is not installed: pip install 'nnpipe[tensorflow]'"
        ) from None
    tensorflow, _ = import_keras()
    call = named_call(model, io)
    names = [spec.name for spec in io.inputs]

    def infer(*tensors: Any) -> tuple[Any, ...]:
        outputs = call(dict(zip(names, tensors, strict=True)))
        return tuple(tensorflow.identity(outputs[spec.name]) for spec in io.outputs)

    signature = [tensorflow.TensorSpec(s.shape, s.dtype, name=f"in{i}") for i, s in enumerate(io.inputs)]
    function = tensorflow.function(infer, autograph=False)
    try:
        captures = function.get_concrete_function(*signature).graph.captures
        with quiet_loggers("tf2onnx", level=logging.ERROR):  # it reports every attempted rewriting
            found, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=OPSET)
        _store_constants(found.graph, captures)
        _rename(found.graph, io)
        onnx.checker.check_model(found)
        content = found.SerializeToString()
    except Exception as error:  # tf2onnx, TensorFlow and protobuf each raise their own errors
        raise ConversionError(f"{owner} cannot be exported as onnx: {one_line(error)}") from None
    path.write_bytes(content)


def _store_constants(graph: Any, captures: Iterable[tuple[Any, Any]]) -> None:
    """Store tensors that the model holds beside its variables, such as the mean of a ``Normalization`` layer.

    tf2onnx makes them inputs of the graph, even those that no node takes any more.
    """
    from onnx import numpy_helper

    constants = {inner.name: outer for outer, inner in captures if outer.dtype.name != "resource"}
    used = {name for node in graph.node for name in node.input}
    for value in [value for value in graph.input if value.name in constants]:
        graph.input.remove(value)
        if value.name in used:
            graph.initializer.append(numpy_helper.from_array(constants[value.name].numpy(), value.name))


def _rename(graph: Any, io: IOSpec) -> None:
    """Give inputs and outputs the names of ``io``, and their free first axes one name."""
    final = {}
    for values, specs in ((graph.input, io.inputs), (graph.output, io.outputs)):
        for value, spec in zip(values, specs, strict=True):
            final[value.name] = spec.name
    used = {name for node in graph.node for name in (*node.input, *node.output)} | {i.name for i in graph.initializer}
    for name in set(final.values()) & (used - set(final)):
        final[name] = name + "/inner"  # an inner tensor has the name of an input or output
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = final.get(name, name)
    for value in (*graph.initializer, *graph.value_info):
        value.name = final.get(value.name, value.name)
    for values, specs in ((graph.input, io.inputs), (graph.output, io.outputs)):
        for value, spec in zip(values, specs, strict=True):
            value.name = spec.name
            for axis, length in zip(value.type.tensor_type.shape.dim, spec.shape, strict=True):
                if length is not None:
                    axis.dim_value = length
            if spec.shape and spec.shape[0] is None:
                value.type.tensor_type.shape.dim[0].dim_param = "batch"
