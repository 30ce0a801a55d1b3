"""Networks from ONNX files: they compute what ONNX Runtime computes, and what they cannot is
told.
"""

from __future__ import annotations

import logging
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from property_examples import examples
from tests.layers.test_random_graphs import graphs

from nnpipe import layers as nn
from nnpipe.core.errors import ArtifactError
from nnpipe.formats.onnx_network import read_nodes
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.imports.network_files import from_onnx
from nnpipe.layers.imports.operators.table import HANDLERS
from nnpipe.layers.imports.translation import _OPERATIONS
from nnpipe.layers.keras.read_file import Reading
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.input import Unknown

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

RANDOM = np.random.default_rng(5)
IMAGE, LINE, VOLUME = (2, 4, 9, 8), (2, 4, 9), (2, 3, 5, 6, 4)


def array(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


W, W1, W3, DEPTH, UP = (
    array(6, 4, 3, 3),
    array(5, 4, 3),
    array(2, 3, 2, 3, 2),
    array(8, 1, 3, 3),
    array(4, 5, 3, 2),
)
# The operator, the shapes of its inputs, its constants, its attributes.
CASES: list[tuple[str, Sequence[tuple[int, ...]], Sequence[np.ndarray | None], dict[str, Any]]] = [
    ("Conv", [IMAGE], [W, array(6)], {"pads": [1, 2, 0, 1], "strides": [2, 1]}),
    ("Conv", [IMAGE], [W], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("Conv", [IMAGE], [W], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ("Conv", [IMAGE], [W], {"dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ("Conv", [IMAGE], [array(6, 2, 1, 1)], {"group": 2}),
    ("Conv", [IMAGE], [DEPTH, array(8)], {"group": 4, "pads": [1, 1, 1, 1]}),
    ("Conv", [LINE], [W1, array(5)], {"pads": [0, 2], "strides": [2]}),
    ("Conv", [VOLUME], [W3], {"pads": [0, 1, 0, 1, 1, 1]}),
    (
        "ConvTranspose",
        [IMAGE],
        [UP, array(5)],
        {"strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 2]},
    ),
    ("ConvTranspose", [IMAGE], [UP], {"strides": [1, 3]}),
    ("MaxPool", [IMAGE], [], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", [IMAGE], [], {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
    ("MaxPool", [LINE], [], {"kernel_shape": [3], "auto_pad": "SAME_UPPER", "strides": [2]}),
    (
        "AveragePool",
        [IMAGE],
        [],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    ("AveragePool", [IMAGE], [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", [VOLUME], [], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    ("GlobalAveragePool", [IMAGE], [], {}),
    ("GlobalMaxPool", [LINE], [], {}),
    ("ReduceMean", [IMAGE], [ints(2, 3)], {"keepdims": 0}),
    ("ReduceMean", [IMAGE], [ints(-1, 1)], {"keepdims": 1}),
    ("ReduceMax", [LINE], [ints(2)], {"keepdims": 0}),
    (
        "BatchNormalization",
        [IMAGE],
        [array(4), array(4), array(4), np.abs(array(4)) + 1],
        {"epsilon": 0.01},
    ),
    ("LayerNormalization", [IMAGE], [array(8), array(8)], {"axis": -1}),
    ("LayerNormalization", [IMAGE], [array(9, 8), array(9, 8)], {"axis": 2}),
    ("InstanceNormalization", [IMAGE], [array(4), array(4)], {}),
    ("Gemm", [(2, 5)], [array(3, 5), array(3)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [(2, 5)], [array(5, 3), array(1)], {}),
    ("MatMul", [(2, 6, 5)], [array(5, 3)], {}),
    ("Add", [IMAGE], [array(4, 1, 1)], {}),
    ("Add", [IMAGE, IMAGE], [], {}),
    ("Mul", [IMAGE], [array(1, 4, 1, 1)], {}),
    ("Mul", [IMAGE, (2, 4, 1, 1)], [], {}),
    ("Div", [LINE], [array(9)], {}),
    ("Sub", [LINE, LINE], [], {}),
    ("Sum", [LINE, LINE, LINE], [], {}),
    ("Max", [LINE, LINE], [], {}),
    ("Concat", [IMAGE, (2, 3, 9, 8)], [], {"axis": 1}),
    ("Concat", [IMAGE, IMAGE], [], {"axis": -1}),
    ("Flatten", [IMAGE], [], {}),
    ("Reshape", [IMAGE], [ints(0, 4, -1)], {}),
    ("Reshape", [IMAGE], [ints(-1, 36, 8)], {}),
    ("Transpose", [IMAGE], [], {"perm": [0, 3, 1, 2]}),
    ("Squeeze", [(2, 1, 5, 1)], [ints(1, 3)], {}),
    ("Unsqueeze", [LINE], [ints(1, 3)], {}),
    ("Pad", [IMAGE], [ints(0, 0, 1, 2, 0, 0, 3, 0)], {}),
    ("Pad", [IMAGE], [ints(0, 1, 0, 0, 0, 2, 0, 0)], {}),
    ("Slice", [IMAGE], [ints(1, -4), ints(8, 7), ints(2, 3)], {}),
    ("Slice", [IMAGE], [ints(0, 1), ints(99, 99), ints(2, 3), ints(2, 3)], {}),
    ("Gather", [LINE], [np.array(-2, np.int64)], {"axis": 2}),
    ("Tile", [(2, 1, 5)], [ints(1, 4, 1)], {}),
    ("Relu", [IMAGE], [], {}),
    ("LeakyRelu", [IMAGE], [], {"alpha": 0.2}),
    ("Elu", [LINE], [], {"alpha": 0.7}),
    ("Selu", [LINE], [], {}),
    ("Gelu", [LINE], [], {}),
    ("HardSigmoid", [LINE], [], {"alpha": 1 / 6}),
    ("HardSigmoid", [LINE], [], {}),
    ("HardSwish", [LINE], [], {}),
    ("Sigmoid", [LINE], [], {}),
    ("Softplus", [LINE], [], {}),
    ("Clip", [LINE], [np.float32(0), np.float32(0.5)], {}),
    ("Clip", [LINE], [np.float32(-1), np.float32(1)], {}),
    ("PRelu", [IMAGE], [array(4, 1, 1)], {}),
    ("PRelu", [IMAGE], [array(9, 8)], {}),
    ("Softmax", [IMAGE], [], {"axis": 1}),
    ("LogSoftmax", [IMAGE], [], {"axis": 1}),
    ("Dropout", [LINE], [], {}),
    ("Resize", [IMAGE], [None, np.array([1, 1, 2, 3], np.float32)], {}),
    ("Resize", [IMAGE], [None, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}),
    ("InstanceNormalization", [LINE], [array(4), array(4)], {"epsilon": 0.1}),
]


def model_of(
    nodes: Sequence[Any],
    inputs: dict[str, Any],
    outputs: Sequence[str],
    held: dict[str, np.ndarray],
) -> Any:
    values = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), ["n", *v.shape[1:]]
        )
        for n, v in inputs.items()
    ]
    made = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs
    ]
    constants = [
        onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()
    ]
    graph = onnx.helper.make_graph(list(nodes), "test", values, made, constants)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9
    )


def single(
    kind: str, shapes: Sequence[tuple[int, ...]], held: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    inputs = {f"x{number}": array(*shape) for number, shape in enumerate(shapes)}
    constants = {f"c{number}": value for number, value in enumerate(held) if value is not None}
    names = [
        *inputs,
        *(f"c{number}" if value is not None else "" for number, value in enumerate(held)),
    ]
    node = onnx.helper.make_node(kind, names, ["y"], name="it", **attributes)
    return model_of([node], inputs, ["y"], constants), inputs


def written(path: Path, model: Any) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def computed(reading: Reading, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    assert reading.graph is not None
    module = to_torch(reading.graph, reading.weights).eval()
    with torch.no_grad():
        return [tensor.numpy() for tensor in module.flat(*map(torch.from_numpy, inputs.values()))]


def runtime(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    found: list[np.ndarray] = ort.InferenceSession(path, options).run(None, inputs)
    return found


@pytest.mark.parametrize(("kind", "shapes", "held", "attributes"), CASES)
def test_an_operator_computes_what_it_computes_in_onnx_runtime(
    kind: str,
    shapes: Sequence[tuple[int, ...]],
    held: Sequence[Any],
    attributes: dict[str, Any],
    tmp_path: Path,
) -> None:
    model, inputs = single(kind, shapes, held, attributes)
    path = written(tmp_path / "one.onnx", model)
    reading = from_onnx(path)
    assert reading.problems == ()
    (mine,), (its,) = computed(reading, inputs), runtime(path, inputs)
    np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)


# -- whole networks
# ---------------------------------------------------------------------------------


def exported(module: Any, inputs: Sequence[np.ndarray], path: Path) -> Path:
    """Write a module as PyTorch does, with a free number of samples."""
    samples = torch.export.Dim("samples", min=1, max=4096)
    tensors = tuple(map(torch.from_numpy, inputs))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.export.export(
        module, tensors, dynamic_shapes=(tuple({0: samples} for _ in tensors),)
    )
    return written(
        path,
        torch.onnx.export(program, (), dynamo=True, opset_version=18, verbose=False).model_proto,
    )


def batch_for(graph: nn.NetworkGraph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    layers: dict[str, Any] = graph.layers  # type: ignore[assignment]
    return {
        ref.layer: random.normal(size=(3, *layers[ref.layer].shape)).astype(np.float32)
        for ref in graph.inputs
    }


# What these layers are in PyTorch is arithmetic, of which ONNX keeps no trace.
WITHOUT = (nn.LayerNorm, nn.PReLU, nn.Bidirectional, nn.AvgPool2d)


def all_layers(graph: nn.NetworkGraph) -> list[nn.Layer]:
    found: list[nn.Layer] = []
    for entry in graph.entries:
        found.append(entry.layer)
        if isinstance(entry.layer, nn.Submodel):
            found += all_layers(entry.layer.graph)
    return found


def is_readable(graph: nn.NetworkGraph) -> bool:
    return not any(isinstance(layer, WITHOUT) for layer in all_layers(graph))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(names=False))
def test_any_network_that_is_exported_is_read_again(graph: nn.NetworkGraph) -> None:
    import tempfile

    assume(is_readable(graph))
    inputs = batch_for(graph)
    module = to_torch(graph, initial_weights(graph)).eval()
    with tempfile.TemporaryDirectory() as folder:
        reading = from_onnx(exported(module, list(inputs.values()), Path(folder) / "net.onnx"))
    assert reading.problems == ()
    with torch.no_grad():
        expected = module.flat(*map(torch.from_numpy, inputs.values()))
    for mine, its in zip(computed(reading, inputs), expected, strict=True):
        scale = max(float(its.abs().max()), 1.0)
        np.testing.assert_allclose(mine / scale, its.numpy() / scale, atol=1e-5)


def test_a_published_network_is_read_and_runs_in_both_frameworks(shared_data: Path) -> None:
    from nnpipe.layers.keras.to_keras import to_keras

    path = shared_data / "models" / "mnist-8.onnx"
    reading = from_onnx(path)
    assert reading.problems == ()
    assert reading.graph is not None
    kinds = [type(entry.layer).__name__ for entry in reading.graph.entries]
    assert kinds == [
        "Input",
        "Permute",
        "Conv2d",
        "ReLU",
        "MaxPool2d",
        "Conv2d",
        "ReLU",
        "MaxPool2d",
        "Flatten",
        "Dense",
    ]
    images = {"Input3": RANDOM.random((1, 1, 28, 28), dtype=np.float32) * 255}
    (its,) = runtime(path, images)
    (mine,) = computed(reading, images)
    scale = np.abs(its).max()
    np.testing.assert_allclose(mine / scale, its / scale, atol=1e-5)
    in_keras = np.asarray(
        to_keras(reading.graph, reading.weights)(images["Input3"], training=False)
    )
    np.testing.assert_allclose(in_keras / scale, its / scale, atol=1e-5)
    # The file fixes one sample; the network takes any number.
    many = np.repeat(images["Input3"], 3, 0)
    np.testing.assert_allclose(
        computed(reading, {"Input3": many})[0][2] / scale, its[0] / scale, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_is_read_of_onnx_own_vectors_is_right(shared_data: Path, tmp_path: Path) -> None:
    """Each operator's published examples, of which the first input is the network's and the
    others are constants.
    """
    with tarfile.open(shared_data / "vectors" / "onnx_node_a.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    right = []
    for path in sorted(tmp_path.glob("*/*/model.onnx")):
        model, folder = onnx.load(path), path.parent / "test_data_set_0"
        try:
            inputs = [
                tensor_in(folder / f"input_{number}.pb") for number in range(len(model.graph.input))
            ]
            outputs = [
                tensor_in(folder / f"output_{number}.pb")
                for number in range(len(model.graph.output))
            ]
        except (ValueError, TypeError):  # sequences and the like, which are no tensors
            continue
        for value, place in list(zip(inputs, model.graph.input, strict=True))[1:]:
            if value.dtype != object:
                model.graph.initializer.append(onnx.numpy_helper.from_array(value, place.name))
        reading = from_onnx(written(tmp_path / "one.onnx", model))
        if reading.problems or reading.graph is None or not reading.graph.inputs:
            assert reading.problems
            continue
        found = computed(reading, {"x": np.array(inputs[0])})
        for mine, wanted in zip(found, outputs, strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4, err_msg=path.parent.name)
        right.append(path.parent.name)
    assert len(right) >= 75


def tensor_in(path: Path) -> np.ndarray:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own
        raise ValueError(str(error)) from None
    found: np.ndarray = onnx.numpy_helper.to_array(tensor)
    return found


@pytest.mark.slow  # exporting such networks takes seconds
@pytest.mark.parametrize("kind", ["residual", "mobile"])
def test_residual_and_mobile_networks_are_read(kind: str, tmp_path: Path) -> None:
    from nnpipe.core.tensors import generate_random_batch
    from nnpipe.modelwrappers.classification.mobilenet import PyTorchMobileNetV2
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet

    residual = kind == "residual"
    wrapper = (
        PyTorchCIFARResNet()
        if residual
        else PyTorchMobileNetV2(width=0.35, input_size=(32, 32), num_classes=10)
    )
    wrapper.open().export(tmp_path / "net.onnx", "onnx")
    reading = from_onnx(tmp_path / "net.onnx")
    assert reading.problems == ()
    inputs = dict(generate_random_batch(wrapper.io, 2))
    np.testing.assert_allclose(
        computed(reading, inputs)[0], runtime(tmp_path / "net.onnx", inputs)[0], atol=1e-5
    )


OPTIONS = [
    {},
    {"bias": False},
    {"bidirectional": True},
    {"num_layers": 2},
    {"batch_first": False},
    {"hidden_size": 99},
]
# Exporting takes two seconds: the quick tests try some options with one kind each.
CELLS = [("LSTM", {"bidirectional": True})]
MORE_CELLS = [
    (kind, options)
    for kind in ("LSTM", "GRU")
    for options in OPTIONS
    if (kind, options) not in CELLS
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "options"),
    [*CELLS, *(pytest.param(*cell, marks=pytest.mark.slow) for cell in MORE_CELLS)],
)
def test_recurrent_layers_are_read(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(torch.nn, kind)(
                4, **{"hidden_size": 3, "batch_first": True, **options}
            )

        def forward(self, *xs: Any) -> Any:
            (x,) = xs
            swap = not self.cells.batch_first
            found, state = self.cells(x.transpose(0, 1) if swap else x)
            state = state[0] if isinstance(state, tuple) else state
            found = found.transpose(0, 1) if swap else found
            return (
                found
                if "bidirectional" in options or "num_layers" in options
                else (found, state[-1])
            )

    inputs = {"xs_0": array(2, 5, 4)}
    path = exported(Net().eval(), list(inputs.values()), tmp_path / "cells.onnx")
    reading = from_onnx(path)
    assert reading.problems == ()
    for mine, its in zip(computed(reading, inputs), runtime(path, inputs), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)


def test_a_bias_is_only_put_into_a_layer_that_nothing_else_takes(tmp_path: Path) -> None:
    make = onnx.helper.make_node
    inputs = {"x": array(2, 4, 6, 6)}
    conv = make("Conv", ["x", "w"], ["c"], name="conv")
    held = {"w": array(3, 4, 3, 3), "b": array(3, 1, 1), "last": array(3)}
    forms = {
        "alone": (
            [conv, make("Add", ["c", "b"], ["y"])],
            ["y"],
            ["Input", "Permute", "Conv2d", "Permute"],
        ),
        "also elsewhere": (
            [conv, make("Add", ["c", "b"], ["a"]), make("Mul", ["a", "c"], ["y"])],
            ["y"],
            None,
        ),
        "also as it is": ([conv, make("Add", ["c", "b"], ["y"])], ["y", "c"], None),
        "by another name": (
            [
                conv,
                make("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
                make("Add", ["t", "last"], ["a"]),
                make("Transpose", ["a"], ["d"], perm=[0, 3, 1, 2]),
                make("Identity", ["c"], ["i"]),
                make("Mul", ["d", "i"], ["y"]),
            ],
            ["y"],
            None,
        ),
    }
    for form, (nodes, outputs, kinds) in forms.items():
        path = written(tmp_path / "bias.onnx", model_of(nodes, inputs, outputs, held))
        reading = from_onnx(path)
        assert reading.problems == (), form
        assert reading.graph is not None
        if kinds is not None:
            assert [type(layer).__name__ for layer in reading.graph.layers.values()] == kinds
        for mine, its in zip(computed(reading, inputs), runtime(path, inputs), strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5, err_msg=form)


def test_what_is_added_behind_cells_is_no_bias_of_theirs(tmp_path: Path) -> None:
    make = onnx.helper.make_node
    nodes = [
        make("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        make("LSTM", ["t", "w", "r"], ["y4"], hidden_size=3),
        make("Squeeze", ["y4", "one"], ["s"]),
        make("Transpose", ["s"], ["z"], perm=[1, 0, 2]),
        make("Add", ["z", "b"], ["y"]),
    ]
    held = {"w": array(1, 12, 4), "r": array(1, 12, 3), "one": ints(1), "b": array(3)}
    inputs = {"x": array(2, 5, 4)}
    path = written(tmp_path / "cells.onnx", model_of(nodes, inputs, ["y"], held))
    reading = from_onnx(path)
    assert reading.problems == ()
    np.testing.assert_allclose(
        computed(reading, inputs)[0], runtime(path, inputs)[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("form", ["half first", "half last", "half of x"])
def test_a_gelu_in_pieces_is_one_again(form: str, tmp_path: Path) -> None:
    make = onnx.helper.make_node
    nodes = [
        make("Mul", ["x", "r"], ["a"]),
        make("Erf", ["a"], ["b"]),
        make("Add", ["one", "b"], ["c"]),
    ]
    nodes += {
        "half first": [make("Mul", ["half", "c"], ["d"]), make("Mul", ["x", "d"], ["y"])],
        "half last": [make("Mul", ["x", "c"], ["d"]), make("Mul", ["d", "half"], ["y"])],
        "half of x": [make("Mul", ["x", "half"], ["d"]), make("Mul", ["d", "c"], ["y"])],
    }[form]
    held = {"r": np.float32(0.5**0.5), "one": np.float32(1), "half": np.array([0.5], np.float32)}
    inputs = {"x": array(2, 5)}
    path = written(tmp_path / "gelu.onnx", model_of(nodes, inputs, ["y"], held))
    reading = from_onnx(path)
    assert reading.problems == ()
    assert reading.graph is not None
    assert [type(layer).__name__ for layer in reading.graph.layers.values()] == [
        "Input",
        "Activation",
    ]
    np.testing.assert_allclose(computed(reading, inputs)[0], runtime(path, inputs)[0], atol=1e-6)
    # Anything else with an error function stays in pieces.
    nodes[2] = make("Sub", ["one", "b"], ["c"])
    codes = [
        problem.code
        for problem in from_onnx(written(path, model_of(nodes, inputs, ["y"], held))).problems
    ]
    assert "unknown-layer" in codes


# -- what is odd
# ------------------------------------------------------------------------------------


def test_operators_that_no_layer_computes_are_kept_and_told(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["a"], name="first"),
        onnx.helper.make_node("Einsum", ["a", "w"], ["b"], name="odd", equation="ij,jk->ik"),
        onnx.helper.make_node("Softmax", ["b"], ["c"], name="then", axis=-1),
        onnx.helper.make_node(
            "MaxPool", ["y"], ["d"], name="pool", kernel_shape=[2, 2], pads=[1, 0, 0, 0]
        ),
        onnx.helper.make_node("Einsum", ["a"], ["e"], name="unused", equation="ij->ji"),
    ]
    inputs = {"x": array(2, 5), "y": array(2, 3, 8, 8)}
    model = model_of(nodes, inputs, ["c", "d"], {"w": array(5, 4)})
    reading = from_onnx(written(tmp_path / "odd.onnx", model))
    assert [(problem.code, problem.path) for problem in reading.problems] == [
        ("unknown-layer", "odd"),
        ("shape", "then"),
        ("unknown-argument", "pool.pads"),
    ]
    assert reading.graph is not None
    odd = reading.graph.layers["odd"]
    assert isinstance(odd, Unknown)
    assert odd.class_name == "Einsum"
    assert odd.raw.value["config"] == {"equation": "ij,jk->ik"}
    assert reading.weights["odd/w"].shape == (5, 4)
    assert reading.graph.outputs == (nn.Ref("then"), nn.Ref("pool"))


@pytest.mark.parametrize(
    ("kind", "held", "attributes", "path"),
    [
        ("Reshape", [ints(-1, 8)], {}, "it.shape"),
        ("Transpose", [], {"perm": [1, 0, 2, 3]}, "y"),
        ("Concat", [], {"axis": 0}, "it.axis"),
        ("Slice", [ints(0), ints(1), ints(0)], {}, "it.steps"),
        ("Clip", [np.float32(0.1), np.float32(0.2)], {}, "it.min"),
        ("Resize", [None, np.array([1, 1, 1.5, 2], np.float32)], {}, "it.scales"),
        ("Mul", [array(4, 9, 8)], {}, "it"),
        ("Div", [np.float32(0)], {}, "it"),
        ("Erf", [], {}, "it"),
        ("Dropout", [np.float32(0.5), np.array(True)], {}, "it.training_mode"),
        ("Upsample", [np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}, "it.mode"),
        ("Add", [array(1, 1, 1, 1, 1)], {}, "it"),
        ("Conv", [array(6, 3, 3, 3)], {}, "it"),
        ("Cast", [], {"to": 10}, "it.to"),
        ("Pad", [ints(0, 0, 1, 1, 0, 0, 0, 0), np.float32(1)], {}, "y"),
    ],
)
def test_what_layers_cannot_do_is_a_problem_with_its_place(
    kind: str, held: Sequence[Any], attributes: dict[str, Any], path: str, tmp_path: Path
) -> None:
    model, _ = single(kind, [IMAGE], held, attributes)
    reading = from_onnx(written(tmp_path / "one.onnx", model))
    assert [problem.path for problem in reading.problems] == [path]


def test_no_axis_of_samples_is_left_out_where_there_is_but_one(tmp_path: Path) -> None:
    model, _ = single("Squeeze", [(1, 1, 5)], [], {})
    (batch, *_) = model.graph.input[0].type.tensor_type.shape.dim
    assert from_onnx(written(tmp_path / "free.onnx", model)).problems == ()
    batch.dim_value = 1
    assert [
        problem.path for problem in from_onnx(written(tmp_path / "one.onnx", model)).problems
    ] == ["it.axes"]


@pytest.mark.parametrize(("kind", "version"), [("Upsample", 9), ("Resize", 10)])
def test_images_are_enlarged_as_older_versions_said(
    kind: str, version: int, tmp_path: Path
) -> None:
    model, inputs = single(kind, [IMAGE], [np.array([1, 1, 2, 3], np.float32)], {"mode": "nearest"})
    model.opset_import[0].version = version
    path = written(tmp_path / "old.onnx", model)
    reading = from_onnx(path)
    assert reading.problems == ()
    np.testing.assert_allclose(computed(reading, inputs)[0], runtime(path, inputs)[0])


def test_half_and_other_forms_of_constants_are_read(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    model = model_of([node], {"x": array(2, 3)}, ["y"], {"w": array(3, 2), "b": array(2)})
    for dtype in (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.DOUBLE,
    ):
        values = [0.5, -1.0, 2.0, 4.0, 0.25, 8.0]
        del model.graph.initializer[:]
        model.graph.initializer.extend(
            [
                onnx.helper.make_tensor("w", dtype, [3, 2], values),
                onnx.helper.make_tensor("b", dtype, [2], [1.0, 2.0]),
            ]
        )
        reading = from_onnx(written(tmp_path / "half.onnx", model))
        assert reading.problems == ()
        (kernel,) = (value for name, value in reading.weights.items() if name.endswith("kernel"))
        assert kernel.dtype == np.float32
        assert kernel.reshape(-1).tolist() == values


def test_weights_beside_the_file_are_read_and_none_from_elsewhere(tmp_path: Path) -> None:
    model, inputs = single("Gemm", [(2, 3)], [array(3, 2)], {})
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "big.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="big.data", size_threshold=0)
    reading = from_onnx(path)
    assert reading.problems == ()
    np.testing.assert_allclose(computed(reading, inputs)[0], runtime(path, inputs)[0], rtol=1e-5)
    (folder / "big.data").write_bytes(b"short")
    assert [problem.code for problem in from_onnx(path).problems] == ["damaged"]
    (folder / "big.data").unlink()
    assert [problem.code for problem in from_onnx(path).problems] == ["damaged"]
    (tmp_path / "secret").write_bytes(b"x" * 24)
    path.write_bytes(path.read_bytes().replace(b"big.data", b"../secre"))
    assert "outside its own folder" in str(from_onnx(path).problems[0])


def test_claims_that_a_file_cannot_hold_are_not_believed(tmp_path: Path) -> None:
    big = onnx.TensorProto(dims=[1 << 40, 1 << 10], data_type=1, name="w", raw_data=b"1234")
    model, _ = single("Gemm", [(2, 3)], [array(3, 2)], {})
    del model.graph.initializer[:]
    model.graph.initializer.append(big)
    assert [
        problem.code for problem in from_onnx(written(tmp_path / "big.onnx", model)).problems
    ] == ["damaged"]
    # One number may stand for many, but nothing may be computed of them.
    many = [
        onnx.helper.make_node("ConstantOfShape", ["s"], ["a"]),
        onnx.helper.make_node("Neg", ["a"], ["b"]),
    ]
    nodes = [*many, onnx.helper.make_node("Add", ["x", "b"], ["y"])]
    model = model_of(nodes, {"x": array(2, 3)}, ["y"], {"s": ints(1 << 12, 1 << 12)})
    assert "very large" in str(from_onnx(written(tmp_path / "many.onnx", model)).problems[0])
    huge = onnx.helper.make_node("ConstantOfShape", ["s"], ["k"])
    model = model_of(
        [huge, onnx.helper.make_node("Add", ["x", "k"], ["y"])],
        {"x": array(2, 3)},
        ["y"],
        {"s": ints(1 << 40)},
    )
    codes = [problem.code for problem in from_onnx(written(tmp_path / "huge.onnx", model)).problems]
    assert codes[0] == "structure"


def doubled() -> Any:
    nodes = [
        onnx.helper.make_node("Concat", [f"c{n}", f"c{n}"], [f"c{n + 1}"], axis=0)
        for n in range(40)
    ]
    add = onnx.helper.make_node("Add", ["x", "c40"], ["y"])
    return model_of([*nodes, add], {"x": array(2, 3)}, ["y"], {"c0": array(4)})


def crossed() -> Any:
    nodes = [
        onnx.helper.make_node("Div", ["a", "b"], ["c"]),
        onnx.helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    held = {"a": np.ones((1 << 17, 1), np.float32), "b": np.ones((1, 1 << 17), np.float32)}
    return model_of(nodes, {"x": array(2, 3)}, ["y"], held)


def repeated() -> Any:
    nodes = [onnx.helper.make_node("Expand", ["one", "shape"], ["w"])]
    nodes += [onnx.helper.make_node("MatMul", [f"x{n}", "w"], [f"x{n + 1}"]) for n in range(1000)]
    held = {"one": array(1, 1), "shape": ints(1 << 12, 1 << 12)}
    return model_of(nodes, {"x0": array(2, 1 << 12)}, ["x1000"], held)


@pytest.mark.parametrize("make", [doubled, crossed, repeated])
def test_a_small_file_makes_no_large_network(make: Callable[[], Any], tmp_path: Path) -> None:
    path = written(tmp_path / "bomb.onnx", make())
    reading = from_onnx(path)
    assert {problem.code for problem in reading.problems} & {"size", "structure"}
    made = sum(value.nbytes for value in reading.weights.values() if all(value.strides))
    assert made < 16 * path.stat().st_size + (1 << 27)


SMALL = single("Conv", [IMAGE], [W, array(6)], {"pads": [1, 1, 1, 1]})[0].SerializeToString()


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=6)
)
def test_no_damaged_file_raises(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(SMALL)
    for place, value in changes:
        data[place] = value
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(data)
    reading = from_onnx(path)
    assert reading.graph is not None or reading.problems


KINDS = sorted({*HANDLERS, *_OPERATIONS, "Erf", "Einsum"})
ATTRIBUTES = (
    "axis",
    "axes",
    "perm",
    "kernel_shape",
    "strides",
    "pads",
    "group",
    "to",
    "value",
    "shape",
    "starts",
    "ends",
    "mode",
)
VALUES: list[Any] = [
    0,
    1,
    -1,
    5,
    1 << 62,
    0.5,
    [1],
    [0, 1],
    [2, 2],
    [0, 0, 1, 1],
    [-1, 1 << 62],
    "linear",
    "SAME_UPPER",
]
ARRAYS = [
    array(),
    array(3),
    array(4, 3),
    array(2, 3, 2, 2),
    ints(1),
    ints(0, -1),
    ints(1 << 40),
    array(0),
]


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_use_of_operators_raises(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    inputs = {
        "x": array(2, 3, 8, 8),
        "y": np.zeros((2, 4), data.draw(st.sampled_from([np.float32, np.int64, np.bool_]))),
    }
    held = {
        f"c{n}": value
        for n, value in enumerate(data.draw(st.lists(st.sampled_from(ARRAYS), max_size=4)))
    }
    names, nodes = ["", *inputs, *held], []
    for number in range(data.draw(st.integers(1, 4))):
        taken = data.draw(st.lists(st.sampled_from(names), max_size=4))
        given = data.draw(
            st.dictionaries(st.sampled_from(ATTRIBUTES), st.sampled_from(VALUES), max_size=3)
        )
        nodes.append(
            onnx.helper.make_node(data.draw(st.sampled_from(KINDS)), taken, [f"t{number}"], **given)
        )
        names.append(f"t{number}")
    path = written(
        tmp_path_factory.getbasetemp() / "any.onnx", model_of(nodes, inputs, names[-1:], held)
    )
    reading = from_onnx(path)
    assert reading.graph is not None or reading.problems


def test_an_attribute_without_its_number_is_damage(tmp_path: Path) -> None:
    content = single("Flatten", [IMAGE], [], {"axis": 1})[0].SerializeToString()
    assert content.count(b"\x0a\x04axis\x18\x01") == 1
    path = tmp_path / "empty.onnx"
    # packed, of none
    path.write_bytes(content.replace(b"\x0a\x04axis\x18\x01", b"\x0a\x04axis\x1a\x00"))
    assert [problem.code for problem in from_onnx(path).problems] == ["damaged"]
    with pytest.raises(ArtifactError, match="not a usable ONNX model"):
        read_nodes(path)


def test_a_file_that_is_not_there_is_the_only_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.onnx"):
        from_onnx(tmp_path / "none.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert [problem.code for problem in from_onnx(tmp_path / "empty.onnx").problems] == ["damaged"]
