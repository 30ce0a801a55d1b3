"""ONNX files become programs of PyTorch that compute the same, operator by operator and as whole
networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers._onnx_torch.call import OperatorCall
from nnpipe.compilers._onnx_torch.graph import build_module, build_operator_table, find_untranslated
from nnpipe.compilers.onnx_to_torch import ONNXToTorch
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_network import ONNXNode, read_onnx_network
from nnpipe.formats.pt2 import read_program
from nnpipe.runtimes.pytorch import PyTorchRuntime

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
TYPES = {"f": onnx.TensorProto.FLOAT, "i": onnx.TensorProto.INT64, "b": onnx.TensorProto.BOOL}

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 4, 6, 6)).astype("f")
POSITIVE = np.abs(X) + 0.1
INSIDE = np.tanh(X)
IMAGE_WEIGHTS = RANDOM.standard_normal((8, 2, 3, 3)).astype("f")
VECTOR = RANDOM.standard_normal(4).astype("f")
PLACES = np.array([[0, 3], [1, -1]])
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
CORNERS = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}


@pytest.mark.slow
class TestONNXToTorch(ONNXNetworkContract):
    @pytest.fixture
    def compiler(self) -> ONNXToTorch:
        return ONNXToTorch()

    @pytest.fixture
    def runtime(self) -> PyTorchRuntime:
        return PyTorchRuntime()


def written(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any],
    outputs: int,
    opset: int,
) -> Path:
    """Write nodes as a file whose first axis is free; outputs are those of the last node."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(
                name, TYPES[array.dtype.kind], ["n", *array.shape[1:]] if array.ndim else []
            )
            for name, array in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output[:outputs]],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def both(path: Path, inputs: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
        None, dict(inputs)
    )
    module = build_module(read_onnx_network(path))
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in inputs.items()}
    found = None
    with torch.no_grad():
        for _ in range(2):  # all lengths count as free in the first call
            found = list(module(tensors).values())
    assert found is not None
    return [np.asarray(tensor) for tensor in found], expected


# operator, inputs, constants, attributes, version
CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int]] = [
    *[
        (kind, {"x": X}, {}, {}, 18)
        for kind in (
            "Abs",
            "Neg",
            "Exp",
            "Floor",
            "Ceil",
            "Sign",
            "Erf",
            "Sin",
            "Cos",
            "Tan",
            "Atan",
            "Sinh",
            "Cosh",
            "Asinh",
            "Tanh",
            "Sigmoid",
            "Relu",
            "Identity",
            "IsNaN",
            "Softplus",
            "Softsign",
            "HardSwish",
            "Mish",
            "Elu",
            "LeakyRelu",
            "Celu",
            "Selu",
            "HardSigmoid",
            "Round",
            "Reciprocal",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "LogSoftmax",
            "ReduceMax",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceSumSquare",
            "Flatten",
            "Transpose",
        )
    ],
    *[
        (kind, {"x": POSITIVE}, {}, {}, 18)
        for kind in ("Log", "Sqrt", "ReduceLogSum", "ReduceProd")
    ],
    *[(kind, {"x": INSIDE}, {}, {}, 18) for kind in ("Asin", "Acos", "Atanh")],
    ("Acosh", {"x": POSITIVE + 1}, {}, {}, 18),
    ("Gelu", {"x": X}, {}, {}, 20),
    ("Gelu", {"x": X}, {}, {"approximate": "tanh"}, 20),
    *[
        (kind, {"x": X, "y": POSITIVE}, {}, {}, 18)
        for kind in (
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Max",
            "Min",
            "Sum",
            "Mean",
            "Equal",
            "Greater",
            "Less",
            "GreaterOrEqual",
            "LessOrEqual",
        )
    ],
    *[(kind, {"x": X > 0, "y": X > 1}, {}, {}, 18) for kind in ("And", "Or", "Xor")],
    ("Not", {"x": X > 0}, {}, {}, 18),
    ("BitwiseAnd", {"x": PLACES + 4, "y": PLACES + 5}, {}, {}, 18),
    ("BitwiseOr", {"x": PLACES + 4, "y": PLACES + 5}, {}, {}, 18),
    ("Div", {"x": PLACES * 7 - 5, "y": PLACES + 4}, {}, {}, 18),
    ("Mod", {"x": PLACES * 7 - 5, "y": PLACES + 4}, {}, {}, 18),
    ("Mod", {"x": X, "y": POSITIVE}, {}, {"fmod": 1}, 18),
    ("Pow", {"x": POSITIVE, "y": X}, {}, {}, 18),
    ("Pow", {"x": X}, {"p": np.float32(3)}, {}, 18),
    ("Where", {"c": X > 0, "x": X, "y": POSITIVE}, {}, {}, 18),
    ("PRelu", {"x": X}, {"s": VECTOR.reshape(4, 1, 1)}, {}, 18),
    ("Clip", {"x": X}, {"a": np.float32(-0.5), "b": np.float32(0.5)}, {}, 18),
    ("Cast", {"x": X}, {}, {"to": 7}, 18),
    ("CastLike", {"x": PLACES, "y": X}, {}, {}, 18),
    ("Dropout", {"x": X}, {}, {}, 18),
    ("ReduceMean", {"x": X}, {}, {"axes": [1, -1], "keepdims": 0}, 13),
    ("ReduceMean", {"x": X}, {"axes": np.array([2, 3])}, {}, 18),
    ("ReduceMin", {"x": X}, {"axes": np.array([-1])}, {"keepdims": 0}, 18),
    ("ReduceSum", {"x": X}, {"axes": np.array([1])}, {}, 18),
    ("ReduceSum", {"x": PLACES}, {}, {}, 18),
    ("Softmax", {"x": X}, {}, {"axis": 1}, 18),
    ("Softmax", {"x": X}, {}, {}, 11),
    ("ArgMax", {"x": X}, {}, {"axis": 1, "keepdims": 0}, 18),
    ("ArgMin", {"x": X}, {}, {"axis": -1}, 18),
    ("CumSum", {"x": X}, {"axis": np.array(1)}, {"reverse": 1, "exclusive": 1}, 18),
    ("TopK", {"x": X}, {"k": np.array([3])}, {}, 18),
    ("Reshape", {"x": X}, {"to": np.array([0, 2, -1])}, {}, 18),
    ("Squeeze", {"x": X[:, :1]}, {"axes": np.array([1])}, {}, 18),
    ("Unsqueeze", {"x": X}, {"axes": np.array([0, -1])}, {}, 18),
    ("Concat", {"x": X, "y": POSITIVE}, {}, {"axis": 1}, 18),
    ("Split", {"x": X}, {"parts": np.array([1, 3])}, {"axis": 1}, 18),
    (
        "Slice",
        {"x": X},
        {
            "a": np.array([1, -1]),
            "b": np.array([1 << 62, -9]),
            "axes": np.array([1, 3]),
            "by": np.array([2, -2]),
        },
        {},
        18,
    ),
    ("Expand", {"x": X[:, :1]}, {"to": np.array([3, 1, 4, 1, 6])}, {}, 18),
    ("Tile", {"x": X}, {"by": np.array([1, 2, 1, 3])}, {}, 18),
    ("Pad", {"x": X}, {"by": np.array([0, 1, 0, 2, 0, 0, 1, 0]), "v": np.float32(2)}, {}, 18),
    ("Pad", {"x": X}, {"by": np.array([0, 0, 1, 2, 0, 0, 2, 1])}, {"mode": "reflect"}, 18),
    ("Pad", {"x": X}, {"by": np.array([0, 0, 1, 2, 0, 0, 2, 1])}, {"mode": "edge"}, 18),
    ("DepthToSpace", {"x": X}, {}, {"blocksize": 2}, 18),
    ("DepthToSpace", {"x": X}, {}, {"blocksize": 2, "mode": "CRD"}, 18),
    ("SpaceToDepth", {"x": X}, {}, {"blocksize": 3}, 18),
    ("Trilu", {"x": X}, {}, {"upper": 0}, 18),
    ("Trilu", {"x": X}, {"k": np.array(1)}, {}, 18),
    ("Gather", {"x": X}, {"at": np.array([-1, 0])}, {"axis": 1}, 18),
    ("Gather", {"x": X}, {"at": np.array(-2)}, {"axis": 2}, 18),
    ("Gather", {"x": X, "at": PLACES}, {}, {"axis": 1}, 18),
    ("GatherElements", {"x": X[:, :, 0, 0], "at": PLACES}, {}, {"axis": 1}, 18),
    ("GatherND", {"x": X, "at": np.array([[0, 3], [1, 2]])}, {}, {}, 18),
    ("GatherND", {"x": X, "at": np.array([[3], [2]])}, {}, {"batch_dims": 1}, 18),
    (
        "ScatterND",
        {"x": X[:, :, 0, 0], "at": np.array([[0, 3], [1, 2]]), "v": VECTOR[:2]},
        {},
        {},
        18,
    ),
    (
        "ScatterElements",
        {"x": X[:, :, 0, 0], "at": PLACES, "v": X[:, :2, 1, 1]},
        {},
        {"axis": 1},
        18,
    ),
    ("OneHot", {"x": PLACES}, {"depth": np.array(4), "v": np.array([0, 1], "f")}, {"axis": 1}, 18),
    ("MatMul", {"x": X, "y": POSITIVE}, {}, {}, 18),
    ("MatMul", {"x": X}, {"w": RANDOM.standard_normal((6, 3)).astype("f")}, {}, 18),
    ("Gemm", {"x": X[:, :, 0, 0]}, {"w": X[0, :, 0], "b": X[0, 0, 0]}, {}, 18),
    ("Gemm", {"x": X[:, :, 0, 0]}, {"w": X[0, :, 0].T.copy(), "b": X[0, 0, 0]}, {"transB": 1}, 18),
    ("Gemm", {"x": X[0, 0], "w": X[0, 1]}, {}, {"transA": 1, "alpha": 0.5}, 18),
    ("Einsum", {"x": X, "y": POSITIVE}, {}, {"equation": "bhid,bhjd->bhij"}, 18),
    (
        "Conv",
        {"x": X},
        {"w": IMAGE_WEIGHTS},
        {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]},
        18,
    ),
    (
        "Conv",
        {"x": X},
        {"w": IMAGE_WEIGHTS},
        {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]},
        18,
    ),
    ("Conv", {"x": X[:, :, 0]}, {"w": IMAGE_WEIGHTS[..., 0]}, {"group": 2, "dilations": [2]}, 18),
    (
        "ConvTranspose",
        {"x": X},
        {"w": IMAGE_WEIGHTS[:4]},
        {"group": 2, "strides": [2, 2], "pads": [1, 1, 0, 1]},
        18,
    ),
    (
        "BatchNormalization",
        {"x": X},
        {"a": VECTOR, "b": VECTOR, "c": VECTOR, "d": np.abs(VECTOR)},
        {},
        18,
    ),
    ("InstanceNormalization", {"x": X}, {"a": VECTOR, "b": VECTOR}, {}, 18),
    ("LayerNormalization", {"x": X}, {"a": X[0, 0, 0], "b": X[0, 0, 1]}, {}, 18),
    ("GroupNormalization", {"x": X}, {"a": VECTOR, "b": VECTOR}, {"num_groups": 2}, 21),
    ("MaxPool", {"x": X}, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 18),
    ("MaxPool", {"x": X}, {}, {"kernel_shape": [3, 2], "pads": [0, 0, 2, 1]}, 18),
    ("AveragePool", {"x": X}, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 18),
    ("AveragePool", {"x": X}, {}, {"kernel_shape": [3, 2], "pads": [0, 0, 2, 1]}, 18),
    (
        "AveragePool",
        {"x": X},
        {},
        {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "count_include_pad": 1},
        18,
    ),
    (
        "Resize",
        {"x": X},
        {"r": np.zeros(0, "f"), "by": np.array([1, 1, 2, 2], "f")},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        18,
    ),
    ("Resize", {"x": X}, {"r": np.zeros(0, "f"), "by": np.array([1, 1, 2, 3], "f")}, {}, 18),
    (
        "Resize",
        {"x": X},
        {"r": np.zeros(0, "f"), "s": np.zeros(0, "f"), "to": np.array([2, 4, 9, 8])},
        LINEAR,
        18,
    ),
    (
        "Resize",
        {"x": X},
        {"r": np.zeros(0, "f"), "s": np.zeros(0, "f"), "to": np.array([2, 4, 9, 8])},
        CORNERS,
        18,
    ),
    ("Upsample", {"x": X}, {"by": np.array([1, 1, 2, 2], "f")}, {}, 9),
]
OTHERWISE = {"Range", "ConstantOfShape", "RMSNormalization"}
"""Operators that the whole networks below contain, or that ONNX Runtime has only in the newest
version.
"""


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{place}-{case[0]}" for place, case in enumerate(CASES)]
)
def test_an_operator_computes_as_onnx_runtime_does(case: Any, tmp_path: Path) -> None:
    kind, inputs, constants, attributes, opset = case
    outputs = {"Split": ["y0", "y1"], "TopK": ["y0", "y1"]}.get(kind, ["y0"])
    names = [*inputs, *constants]
    node = helper.make_node(kind, [f"in_{name}" for name in names], outputs, **attributes)
    given = {f"in_{name}": array for name, array in inputs.items()}
    held = {f"in_{name}": array for name, array in constants.items()}
    found, expected = both(
        written(tmp_path / "one.onnx", [node], given, held, len(outputs), opset), given
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_every_operator_is_tried() -> None:
    assert {case[0] for case in CASES} | OTHERWISE == set(build_operator_table())


def attention(path: Path) -> Path:
    """Write a layer of attention over 6 words of 8 numbers, with shapes computed as exporters
    do.
    """
    node, weights = (
        helper.make_node,
        {name: RANDOM.standard_normal((8, 8)).astype("f") for name in "qkvo"},
    )
    constants = {
        **{f"layer.{name}.weight": array for name, array in weights.items()},
        "table.weight": RANDOM.standard_normal((50, 8)).astype("f"),
        "layer.o.bias": RANDOM.standard_normal(8).astype("f"),
        "zero": np.array(0),
        "one": np.array(1),
        "ones": np.array([1]),
        "first": np.array([0]),
        "second": np.array([1]),
        "heads": np.array([-1, 6, 2, 4]),
        "tail": np.array([8]),
        "six": np.array([6]),
        "root": np.float32(0.5),
        "low": np.float32(-1e9),
        "minus": np.array([-1]),
        "last": np.array(-1),
    }
    nodes = [
        node("Gather", ["table.weight", "ids"], ["x"]),
        node("Shape", ["ids"], ["shape"]),
        node("Gather", ["shape", "first"], ["count"]),
        node("Gather", ["shape", "one"], ["length"]),
        *[node("MatMul", ["x", f"layer.{name}.weight"], [name]) for name in "qkv"],
        *[node("Reshape", [name, "heads"], [f"{name}4"]) for name in "qkv"],
        *[node("Transpose", [f"{name}4"], [f"{name}t"], perm=[0, 2, 1, 3]) for name in "qv"],
        node("Transpose", ["k4"], ["kt"], perm=[0, 2, 3, 1]),
        node("MatMul", ["qt", "kt"], ["scores"]),
        node("Mul", ["scores", "root"], ["scaled"]),
        node("Range", ["zero", "length", "one"], ["positions"]),
        node("Unsqueeze", ["positions", "second"], ["rows"]),
        node("LessOrEqual", ["positions", "rows"], ["causal"]),
        node("Concat", ["count", "ones", "six", "six"], ["target"], axis=0),
        node("Equal", ["target", "minus"], ["unknown"]),
        node("ConstantOfShape", ["first"], ["nothing"]),
        node("Where", ["unknown", "ones", "target"], ["there"]),
        node("Expand", ["causal", "there"], ["allowed"]),
        node("Where", ["allowed", "scaled", "low"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "vt"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Concat", ["count", "six", "tail"], ["flat"], axis=0),
        node("Reshape", ["back", "flat"], ["joined"]),
        node("MatMul", ["joined", "layer.o.weight"], ["product"]),
        node("Add", ["layer.o.bias", "product"], ["sum"]),
        node("Gather", ["sum", "last"], ["y"], axis=1),
    ]
    return written(path, nodes, {"ids": np.zeros((2, 6), np.int64)}, constants, 1, 18)


def of(path: Path) -> Artifact:
    return Artifact.create(path, "onnx", read_onnx(path).io())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("attention")
    return ONNXToTorch().compile(of(attention(folder / "attention.onnx")), folder / "attention.pt2")


def test_attention_is_exported_for_any_number_of_samples(made: Artifact) -> None:
    assert made.io.inputs[0].shape == (None, 6)
    source = made.path.with_suffix(".onnx")
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    with PyTorchRuntime().load(made) as ours:
        for count in (1, 5):
            batch = {"ids": RANDOM.integers(0, 50, (count, 6))}
            np.testing.assert_allclose(
                ours.infer(batch)["y"], session.run(None, batch)[0], rtol=1e-4, atol=1e-5
            )


def test_products_become_linear_layers_with_the_names_of_the_file(made: Artifact) -> None:
    program = torch.export.load(made.path)
    assert {
        "layer.q.weight",
        "layer.o.weight",
        "layer.o.bias",
        "table.weight",
    } <= program.state_dict.keys()
    kinds = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert kinds.count("aten.linear.default") == 4
    assert kinds.count("aten.embedding.default") == 1
    assert not [name for name in read_program(made.path).find_input_operators() if ".add." in name]


def test_what_is_not_translated_is_named_before_anything_slow(tmp_path: Path) -> None:
    x = {"x": X}
    path = written(tmp_path / "a.onnx", [helper.make_node("NonZero", ["x"], ["y"])], x, {}, 1, 18)
    assert ONNXToTorch().refusals(path) == ("ONNX's NonZero cannot be translated to PyTorch",)
    with pytest.raises(CompileError, match="ONNX's NonZero cannot be translated to PyTorch"):
        ONNXToTorch().compile(of(path), tmp_path / "a.pt2")
    assert not (tmp_path / "a.pt2").exists()
    scale = {"s": np.float32(1), "z": np.int8(0)}
    path = written(
        tmp_path / "b.onnx",
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        x,
        scale,
        1,
        18,
    )
    assert "quantised already" in ONNXToTorch().refusals(path)[0]


def test_an_operation_that_is_used_otherwise_is_named(tmp_path: Path) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2], name="pool")
    path = written(tmp_path / "a.onnx", [node], {"x": X}, {}, 2, 18)
    with pytest.raises(CompileError, match=r"MaxPool \(pool\) cannot be translated: its places"):
        ONNXToTorch().compile(of(path), tmp_path / "a.pt2")


def test_operators_of_other_domains_are_not_mistaken() -> None:
    assert find_untranslated(["com.microsoft::Gelu", "Add", "Shape"]) == ["com.microsoft::Gelu"]


def test_a_call_counts_inputs_that_are_left_out() -> None:
    call = OperatorCall(
        ONNXNode("Clip", "", ("x", "", "b"), ("y",), {}),
        18,
        str,
        lambda name: None,
        lambda name: None,
    )
    assert (call.has(1), call.tensor(1), call.tensor(2), call.numbers(1)) == (
        False,
        None,
        "b",
        None,
    )
