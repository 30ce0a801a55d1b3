"""ONNX networks that compute as much as graphs of other frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import NotSupported
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    ConvolutionPrimitive,
    MatrixProduct,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
)
from nnpipe.core.tensors import TensorSpec
from nnpipe.frameworks.onnx_of_graph import build_onnx_of_graph

needs("onnx", "onnxruntime")

RELU = PlainPrimitive("elementwise", "relu")


def graph(
    tensors: dict[str, tuple[Any, ...]], *operations: tuple[str, str, tuple[Primitive, ...]]
) -> Graph:
    """Return a graph that ends with its last operation; each tensor is a shape, perhaps with a
    type behind it.
    """
    specs = {
        name: TensorSpec(
            name, tuple(n for n in each if n != "int8"), "int8" if "int8" in each else "float32"
        )
        for name, each in tensors.items()
    }
    made = tuple(
        Operation(to, "Op", tuple(given.split()), (to,), primitives=what)
        for given, to, what in operations
    )
    return Graph(made, specs, ("x",), (operations[-1][1],))


def written(given: Graph) -> Any:
    """Return the ONNX model of a graph, which ONNX Runtime has run."""
    import onnx
    import onnxruntime

    content = build_onnx_of_graph(given, np.random.default_rng(0))
    session = onnxruntime.InferenceSession(content)
    feeds = {
        each.name: np.ones(each.shape, np.int8 if each.type == "tensor(int8)" else np.float32)
        for each in session.get_inputs()
    }
    (found,) = session.run(None, feeds)
    last = given.tensors[given.outputs[0]].shape
    assert sorted(found.shape) == sorted(last)
    return onnx.load_from_string(content)


def kinds(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_channels_that_were_last_come_first_and_fewer_axes_are_fitted_to_them() -> None:
    convolution = ConvolutionPrimitive(25, (3, 3), 4, 6, strides=(1, 1), dilations=(1, 1))
    model = written(
        graph(
            {
                "x": (1, 5, 5, 4),
                "w": (6, 3, 3, 4),
                "b": (6,),
                "y": (1, 5, 5, 6),
                "z": (1, 5, 5, 6),
                "o": (1, 1, 1, 6),
            },
            ("x w b", "y", (convolution, RELU)),
            ("y b", "z", (PlainPrimitive("elementwise", "add"),)),
            ("z", "o", (PoolingPrimitive("mean"),)),
        )
    )
    assert kinds(model) == ["Conv", "Relu", "Add", "GlobalAveragePool"]
    assert [length.dim_value for length in model.graph.input[0].type.tensor_type.shape.dim] == [
        1,
        4,
        5,
        5,
    ]


def test_views_cost_nothing_and_transpositions_are_moved() -> None:
    model = written(
        graph(
            {"x": (1, 4, 6), "y": (2, 2, 6), "z": (6, 2, 2), "w": (2, 3), "o": (6, 2, 3)},
            ("x", "y", (PlainPrimitive("view", "reshape"),)),
            ("y", "z", (PlainPrimitive("movement", "transpose"),)),
            ("z w", "o", (MatrixProduct(1, 12, 2, 3),)),
        )
    )
    assert kinds(model) == ["Reshape", "Transpose", "MatMul"]


def test_views_of_a_part_and_expanded_ones_keep_what_is_computed_before_them() -> None:
    model = written(
        graph(
            {
                "x": (1, 4, 6),
                "w": (6, 8),
                "y": (1, 4, 8),
                "part": (1, 4, 2),
                "row": (4, 2),
                "o": (3, 4, 2),
            },
            ("x w", "y", (MatrixProduct(1, 4, 6, 8),)),
            ("y", "part", (PlainPrimitive("view", "split"),)),
            ("part", "row", (PlainPrimitive("view", "select"),)),
            ("row", "o", (PlainPrimitive("view", "expand"),)),
        )
    )
    read = {name for node in model.graph.node for name in node.input}
    assert "MatMul" in kinds(model)
    assert read >= {name for node in model.graph.node[:-1] for name in node.output}


def test_numbers_of_8_bits_stay_so_between_conversions_that_runtimes_fuse() -> None:
    product = MatrixProduct(1, 1, 4, 6)
    model = written(
        graph(
            {"x": (1, 4, "int8"), "w": (6, 4, "int8"), "y": (1, 6, "int8")},
            ("x w", "y", (product, RELU)),
        )
    )
    assert kinds(model) == [
        "DequantizeLinear",
        "DequantizeLinear",
        "MatMul",
        "Relu",
        "QuantizeLinear",
    ]
    import onnx

    constants = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    assert constants[model.graph.node[-1].input[2]] == -128, "otherwise the activation is not fused"


def test_what_has_no_rule_is_named_with_its_number() -> None:
    given = graph({"x": (1, 4), "y": (1, 4), "z": (1, 4)}, ("x", "y", ()), ("y", "z", ()))
    with pytest.raises(NotSupported, match=r"without a rule: 2 Op$"):
        build_onnx_of_graph(given, np.random.default_rng(0))
