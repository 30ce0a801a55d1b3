"""Costs follow from rules that can be checked by hand, and what has no rule is never 0."""

from __future__ import annotations

import pytest

from nnpipe.analysis.operation_costs import (
    UNKNOWN_KIND,
    Arithmetic,
    compute_arithmetic,
    compute_graph_cost,
)
from nnpipe.analysis.stored_values import count_bytes
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    MatrixProduct,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)
from nnpipe.core.tensors import TensorSpec


@pytest.mark.parametrize(
    ("primitive", "macs"),
    [
        (ConvolutionPrimitive(112 * 112, (3, 3), 3, 32, strides=(2, 2)), 112 * 112 * 9 * 3 * 32),
        (ConvolutionPrimitive(56 * 56, (3, 3), 144, 144, groups=144), 56 * 56 * 9 * 144),
        (ConvolutionPrimitive(10, (5,), 8, 4, transposed=True), 10 * 5 * 8 * 4),
        (ConvolutionPrimitive(6, (2, 2, 2), 4, 8, groups=2), 6 * 8 * 2 * 8),
        (MatrixProduct(2, 3, 4, 5), 120),
        (AttentionPrimitive(8, 10, 20, 64, 32), 8 * 10 * 20 * 96),
        (RecurrentPrimitive("lstm", 2, 7, 5, 3), 2 * 7 * 4 * 3 * (5 + 3)),
        (RecurrentPrimitive("gru", 1, 7, 5, 3, directions=2), 2 * 7 * 3 * 3 * (5 + 3)),
        (RecurrentPrimitive("rnn", 1, 7, 5, 3), 7 * 3 * (5 + 3)),
    ],
)
def test_macs_are_those_of_the_definition(primitive: Primitive, macs: int) -> None:
    found = compute_arithmetic(primitive, (), ())
    assert found is not None
    assert found.macs == macs


@pytest.mark.parametrize(
    ("primitive", "others"),
    [
        (PlainPrimitive("elementwise", "add"), 10),
        (PlainPrimitive("movement", "concat"), 0),
        (PlainPrimitive("reduction", "mean"), 40),
        (PlainPrimitive("resize", "nearest"), 0),
        (PlainPrimitive("resize", "linear", (1, 2)), 10 * 8),
        (PlainPrimitive("quantisation", "quantize"), 20),
        (PoolingPrimitive("max", (3, 3)), 90),
        (PoolingPrimitive("mean"), 40),
    ],
)
def test_other_operations_are_counted_apart(primitive: Primitive, others: int) -> None:
    assert compute_arithmetic(primitive, (40, 10), (10,)) == Arithmetic(0, others)


def test_an_unknown_length_gives_no_number() -> None:
    assert compute_arithmetic(MatrixProduct(None, 3, 4, 5), (), ()) is None
    assert compute_arithmetic(PlainPrimitive("elementwise", "relu"), (None,), (None,)) is None


def plain(kind: PlainKind, function: str) -> tuple[Primitive, ...]:
    return (PlainPrimitive(kind, function),)


def network(*, last: tuple[Primitive, ...] = ()) -> Graph:
    """Return a graph: a dequantised kernel, a convolution, a view, an addition of an older
    value, and ``last``.
    """
    shapes = {
        "image": ((1, 4, 4, 2), "float32"),
        "stored": ((3, 3, 2, 8), "int8"),
        "scale": ((8,), "float32"),
        "kernel": ((3, 3, 2, 8), "float32"),
        "bias": ((8,), "float32"),
        "features": ((1, 4, 4, 8), "float32"),
        "flat": ((1, 128), "float32"),
        "shape": ((2,), "int64"),
        "active": ((1, 128), "float32"),
        "sum": ((1, 128), "float32"),
        "result": ((1, 128), "float32"),
    }
    tensors = {name: TensorSpec(name, shape, dtype) for name, (shape, dtype) in shapes.items()}
    operations = (
        Operation(
            "dq",
            "DequantizeLinear",
            ("stored", "scale"),
            ("kernel",),
            primitives=plain("quantisation", "dq"),
        ),
        Operation(
            "conv",
            "Conv",
            ("image", "kernel", "bias"),
            ("features",),
            primitives=(ConvolutionPrimitive(16, (3, 3), 2, 8), *plain("elementwise", "relu")),
        ),
        Operation(
            "flat", "Reshape", ("features", "shape"), ("flat",), primitives=plain("view", "reshape")
        ),
        Operation("relu", "Relu", ("flat",), ("active",), primitives=plain("elementwise", "relu")),
        Operation(
            "add", "Add", ("flat", "active"), ("sum",), primitives=plain("elementwise", "add")
        ),
        Operation("last", "Odd", ("sum",), ("result",), primitives=last),
    )
    return Graph(operations, tensors, ("image",), ("result",))


def test_a_graph_has_the_figures_that_follow_by_hand() -> None:
    cost = compute_graph_cost(network(last=plain("elementwise", "odd")))
    rows = {each.name: each for each in cost.operations}
    assert cost.folded == ("dq",)
    assert rows["conv"].arithmetic == Arithmetic(16 * 9 * 2 * 8, 128)
    assert rows["conv"].parameters == 144 + 8 == cost.parameters
    # The picture, the kernel as the file stores it in 8 bits, and the bias.
    assert (rows["conv"].bytes_read, rows["conv"].bytes_written) == (4 * 32 + 144 + 4 * 8, 512)
    assert (rows["flat"].bytes_read, rows["flat"].bytes_written, rows["flat"].intensity) == (
        0,
        0,
        None,
    )
    assert rows["add"].intensity == pytest.approx(128 / (3 * 512))
    assert not cost.unknown


def test_a_value_is_live_from_its_operation_to_its_last_use() -> None:
    live = {each.name: each.live_bytes for each in compute_graph_cost(network()).operations}
    # The view shares the memory of the features, which the addition reads last.
    assert live == {"conv": 128 + 512, "flat": 512, "relu": 1024, "add": 1536, "last": 1024}
    peak = compute_graph_cost(network()).peak
    assert peak is not None
    assert peak.name == "add"


def test_an_operation_without_a_rule_is_named() -> None:
    cost = compute_graph_cost(network())
    (unknown,) = cost.unknown
    assert (unknown.kind, unknown.primitive, unknown.arithmetic, unknown.traffic) == (
        "Odd",
        UNKNOWN_KIND,
        None,
        None,
    )


def test_a_hidden_tensor_leaves_the_traffic_unknown() -> None:
    tensors = {name: TensorSpec(name, (2,), "float32") for name in "xy"}
    operation = Operation(
        "a", "Add", ("x",), ("y",), primitives=plain("elementwise", "add"), unlisted=1
    )
    (found,) = compute_graph_cost(Graph((operation,), tensors, ("x",), ("y",))).operations
    assert found.traffic is None


def test_scales_beside_quantised_weights_are_no_parameters() -> None:
    shapes = {
        "x": ((1, 3), "uint8"),
        "s": ((), "float32"),
        "z": ((), "uint8"),
        "w": ((3, 4), "int8"),
        "ws": ((4,), "float32"),
        "wz": ((4,), "int8"),
        "b": ((4,), "int32"),
        "y": ((1, 4), "uint8"),
    }
    tensors = {name: TensorSpec(name, shape, dtype) for name, (shape, dtype) in shapes.items()}
    operation = Operation(
        "q", "QGemm", (*tuple("xszwb"), "ws", "wz"), ("y",), primitives=(MatrixProduct(1, 1, 3, 4),)
    )
    assert compute_graph_cost(Graph((operation,), tensors, ("x",), ("y",))).parameters == 12 + 4


def test_sizes_in_bytes_follow_from_element_types() -> None:
    assert count_bytes(TensorSpec("a", (3, 2), "bfloat16")) == 12
    assert count_bytes(TensorSpec("a", (), "int64")) == 8
    assert count_bytes(TensorSpec("a", (None, 2), "int8")) is None
