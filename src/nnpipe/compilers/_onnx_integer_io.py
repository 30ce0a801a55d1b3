"""Change a quantised ONNX model to integer inputs and outputs.

In QDQ form, a ``QuantizeLinear`` follows each input, and a ``DequantizeLinear`` precedes each
output.  An integer input equals the result of the former; a ``DequantizeLinear`` of the same scale
is inserted after it, and a ``QuantizeLinear`` of the same scale before an integer output.  ONNX
Runtime removes pairs that cancel out.  If activations have the other integer type, the zero point
is shifted by the difference of the two types, so that the represented values stay the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.errors import CompileError

if TYPE_CHECKING:
    from onnx import GraphProto


def set_integer_inputs(graph: GraphProto, dtype: str) -> None:
    """Change the element type of a model's floating-point inputs.

    Parameters
    ----------
    graph
        The main graph of a model in QDQ form; it is changed.
    dtype
        ``"int8"`` or ``"uint8"``.

    Raises
    ------
    CompileError
        If an input is used without being quantised.
    """
    from onnx import TensorProto, helper

    for value in [
        value for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT
    ]:
        name, real = value.name, _make_unused_name(graph, f"{value.name}_real")
        quantisers = [
            node
            for node in graph.node
            if node.op_type == "QuantizeLinear" and node.input[0] == name
        ]
        if not quantisers:
            raise CompileError(
                f"input {name!r} is not quantised, so it cannot be {dtype}; leave it float32"
            )
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        scale, zero = _add_parameters(graph, quantisers[0], name, dtype)
        _rename(graph, name, real)
        graph.node.insert(
            0,
            helper.make_node(
                "DequantizeLinear", [name, scale, zero], [real], name=f"{name}_dequantise"
            ),
        )


def set_integer_outputs(graph: GraphProto, dtype: str) -> None:
    """Change the element type of a model's floating-point outputs; see
    :func:`set_integer_inputs`.
    """
    from onnx import TensorProto, helper

    for value in [
        value for value in graph.output if value.type.tensor_type.elem_type == TensorProto.FLOAT
    ]:
        name, real = value.name, _make_unused_name(graph, f"{value.name}_real")
        makers = [node for node in graph.node if name in node.output]
        if not makers or makers[0].op_type != "DequantizeLinear":
            raise CompileError(
                f"output {name!r} is not quantised, so it cannot be {dtype}; leave it float32"
            )
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        _rename(graph, name, real)
        scale, zero = _add_parameters(graph, makers[0], name, dtype)
        graph.node.append(
            helper.make_node("QuantizeLinear", [real, scale, zero], [name], name=f"{name}_quantise")
        )


def _add_parameters(graph: GraphProto, node: Any, name: str, dtype: str) -> tuple[str, str]:
    """Add the scale and zero point of a tensor in another integer type; return the names of the
    two constants.
    """
    from onnx import numpy_helper

    constants = {constant.name: constant for constant in graph.initializer}
    if any(operand not in constants for operand in node.input[1:]):
        raise CompileError(
            f"the scale of {name!r} is computed, so it cannot be {dtype}; leave it float32"
        )
    scale = numpy_helper.to_array(constants[node.input[1]])
    zero = (
        numpy_helper.to_array(constants[node.input[2]])
        if len(node.input) > 2
        else np.zeros(scale.shape, np.uint8)
    )
    shift = np.iinfo(dtype).min - np.iinfo(zero.dtype).min
    if scale.size != 1 or zero.dtype.itemsize != 1:
        raise CompileError(
            f"{name!r} is not quantised to 8 bits with one scale, so it cannot be {dtype}"
        )
    names = (
        _make_unused_name(graph, f"{name}_{dtype}_scale"),
        _make_unused_name(graph, f"{name}_{dtype}_zero_point"),
    )
    moved = (zero.astype(np.int32) + shift).astype(dtype)
    graph.initializer.append(numpy_helper.from_array(scale.reshape(()), names[0]))
    graph.initializer.append(numpy_helper.from_array(moved.reshape(()), names[1]))
    return names


def _make_unused_name(graph: GraphProto, name: str) -> str:
    taken = {constant.name for constant in graph.initializer}
    taken.update(*(node.input for node in graph.node), *(node.output for node in graph.node))
    while name in taken:
        name += "_"
    return name


def _rename(graph: GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name == old:
                    names[position] = new
