"""What a framework computes wrongly is refused by name, and like forms that it computes well are
not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.compilers.iree import IREECompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NotSupported
from nnpipe.core.registry import find
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.frameworks.onnx_known_faults import IREE, OPENVINO, TVM, KnownFault, check_known_faults
from nnpipe.runtimes.openvino import OpenVINORuntime

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

FLOAT = 1


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    """Make a node; ``_`` stands for an input that is left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return onnx.helper.make_node(kind, names, outputs.split(), name=f"the {kind}", **attributes)


def write(path: Path, nodes: list[Any], initializers: dict[str, np.ndarray] | None = None) -> Path:
    """Write a graph; what it computes does not matter, it is only looked at."""
    tensors = [
        onnx.numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", FLOAT, [2])], [value("y", FLOAT, [2])], tensors
    )
    onnx.save_model(onnx.helper.make_model(graph), str(path))
    return path


PEEPHOLES = [node("LSTM", "x w r _ _ _ _ p", hidden_size=2)]
NO_PEEPHOLES = [node("LSTM", "x w r", hidden_size=2)]


@pytest.mark.parametrize(
    ("framework", "table", "nodes", "told"),
    [
        (
            "OpenVINO",
            OPENVINO,
            [node("Resize", "x _ s", antialias=1)],
            "OpenVINO computes Resize 'the Resize' wrongly",
        ),
        ("OpenVINO", OPENVINO, [node("Resize", "x _ s", antialias=0)], ""),
        (
            "OpenVINO",
            OPENVINO,
            [node("Resize", "x _ _ s", keep_aspect_ratio_policy="not_larger")],
            "aspect_ratio",
        ),
        ("OpenVINO", OPENVINO, [node("Resize", "x _ _ s", keep_aspect_ratio_policy="stretch")], ""),
        ("OpenVINO", OPENVINO, PEEPHOLES, "peepholes"),
        ("OpenVINO", OPENVINO, NO_PEEPHOLES, ""),
        ("IREE", IREE, PEEPHOLES, "peepholes"),
        ("IREE", IREE, NO_PEEPHOLES, ""),
        ("IREE", IREE, [node("Det", "x")], "IREE computes Det 'the Det' wrongly"),
        ("IREE", IREE, [node("SoftmaxCrossEntropyLoss", "x l w")], "mean by weights"),
        ("IREE", IREE, [node("SoftmaxCrossEntropyLoss", "x l w", reduction="sum")], ""),
        ("IREE", IREE, [node("SoftmaxCrossEntropyLoss", "x l")], ""),
        ("IREE", IREE, [node("GridSample", "x g", mode="nearest")], "nearest"),
        ("IREE", IREE, [node("GridSample", "x g", mode="linear")], ""),
        ("IREE", IREE, [node("QLinearMatMul", "x s z w s z s z")], "QLinearMatMul"),
        ("TVM", TVM, [node("NonMaxSuppression", "x s")], "NonMaxSuppression"),
        ("TVM", TVM, [node("IsInf", "x", detect_negative=0)], "IsInf"),
        ("TVM", TVM, [node("IsInf", "x")], ""),
    ],
)
def test_forms_are_told_by_the_file(
    framework: str, table: tuple[KnownFault, ...], nodes: list[Any], told: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "model.onnx", nodes)
    if not told:
        check_known_faults(path, framework, table)
        return
    with pytest.raises(NotSupported) as caught:
        check_known_faults(path, framework, table)
    message = str(caught.value)
    assert told in message
    assert message.startswith(f"{path}: {framework} computes ")
    assert "\n" not in message


def test_a_form_within_a_branch_is_found(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    branch = onnx.helper.make_graph([node("Det", "x")], "branch", [], [value("y", FLOAT, [])])
    path = write(tmp_path / "model.onnx", [node("If", "c", then_branch=branch, else_branch=branch)])
    with pytest.raises(NotSupported, match="Det 'the Det'"):
        check_known_faults(path, "IREE", IREE)


# -- by the frameworks themselves
# ---------------------------------------------------------------------


def model(
    tmp_path: Path,
    nodes: list[Any],
    inputs: dict[str, tuple[str, list[int]]],
    output: tuple[str, list[int]],
) -> Artifact:
    kinds = {"float32": 1, "int64": 7, "float64": 11}

    def value(name: str, dtype: str, shape: list[int]) -> Any:
        return onnx.helper.make_tensor_value_info(name, kinds[dtype], shape)

    graph = onnx.helper.make_graph(
        nodes, "g", [value(name, *kind) for name, kind in inputs.items()], [value("y", *output)]
    )
    path = tmp_path / "model.onnx"
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    specs = tuple(TensorSpec(name, tuple(shape), dtype) for name, (dtype, shape) in inputs.items())
    return Artifact.create(
        path, "onnx", IOSpec(specs, (TensorSpec("y", tuple(output[1]), output[0]),))
    )


@pytest.mark.parametrize("length", [4, 5])
def test_openvino_pools_with_a_window_beyond_the_input_are_refused(
    tmp_path: Path, length: int
) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    # Windows stand at 0 and 3; rounding up puts a third at 6 where the input is 5 long.
    pool = [node("MaxPool", "x", kernel_shape=[1], strides=[3], ceil_mode=1)]
    artifact = model(tmp_path, pool, {"x": ("float32", [1, 1, length])}, ("float32", [1, 1, 2]))
    if length == 4:
        with OpenVINORuntime().load(artifact) as session:
            given = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
            assert session.infer({"x": given})["y"].ravel().tolist() == [0, 3]
        return
    with pytest.raises(NotSupported, match="MaxPool 'y' wrongly: ceil_mode"):
        OpenVINORuntime().load(artifact)


@pytest.mark.parametrize(("length", "pads"), [(8, [1] * 4), (7, [1] * 4), (8, [0] * 4)])
def test_openvino_counts_padding_that_rounding_up_adds(
    tmp_path: Path, length: int, pads: list[int]
) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    pool = [
        node(
            "AveragePool",
            "x",
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=pads,
            ceil_mode=1,
            count_include_pad=1,
        )
    ]
    over = 5 if length == 8 and any(pads) else 4
    artifact = model(
        tmp_path, pool, {"x": ("float32", [1, 1, length, length])}, ("float32", [1, 1, over, over])
    )
    if length == 8 and any(pads):
        with pytest.raises(
            NotSupported, match="AvgPool 'y' wrongly: with ceil_mode, count_include_pad"
        ):
            OpenVINORuntime().load(artifact)
        return
    given = np.random.default_rng(0).standard_normal((1, 1, length, length)).astype(np.float32)
    expected = (
        pytest.importorskip("onnx.reference")
        .ReferenceEvaluator(str(artifact.path))
        .run(None, {"x": given})[0]
    )
    with OpenVINORuntime().load(artifact) as session:
        np.testing.assert_allclose(session.infer({"x": given})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize(("batch", "kernel"), [(None, 3), (1, 3), (None, 2)])
def test_openvino_leaves_out_padding_to_the_same_length(
    tmp_path: Path, batch: int | None, kernel: int
) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    shape = np.array([2, 3, kernel, kernel])
    nodes = [
        onnx.helper.make_node(
            "ConstantOfShape",
            ["shape"],
            ["w"],
            value=onnx.numpy_helper.from_array(np.ones(1, "f4")),
        ),
        node("ConvTranspose", "x w", strides=[2, 2], auto_pad="SAME_UPPER"),
    ]
    first = "n" if batch is None else batch
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value("x", FLOAT, [first, 2, 4, 4])],
        [value("y", FLOAT, [first, 3, 8, 8])],
        [onnx.numpy_helper.from_array(shape, "shape")],
    )
    path = tmp_path / "model.onnx"
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))
    specs = [
        (TensorSpec(name, (batch, *rest), "float32"),)
        for name, rest in (("x", (2, 4, 4)), ("y", (3, 8, 8)))
    ]
    artifact = Artifact.create(path, "onnx", IOSpec(*specs))
    if batch is None and kernel == 3:
        with pytest.raises(
            NotSupported, match="ConvolutionBackpropData 'y' wrongly: auto_pad is left out"
        ):
            OpenVINORuntime().load(artifact)
        return
    with OpenVINORuntime().load(artifact) as session:
        assert session.infer({"x": np.ones((1, 2, 4, 4), np.float32)})["y"].shape == (1, 3, 8, 8)


@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e300])
def test_openvino_refuses_float64_that_float32_cannot_hold(tmp_path: Path, number: float) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    artifact = model(tmp_path, [node("Add", "x x")], {"x": ("float64", [2])}, ("float64", [2]))
    with OpenVINORuntime().load(artifact) as session:
        np.testing.assert_array_equal(
            session.infer({"x": np.array([1.0, np.nan])})["y"], [2.0, np.nan]
        )
        with pytest.raises(NotSupported, match="computes float64 in float32, and 'x' holds"):
            session.infer({"x": np.array([1.0, number])})
        with pytest.raises(NotSupported, match="and 'y' holds"):
            session.infer({"x": np.array([1.0, 3e38])})


def test_tvm_refuses_to_expand_to_a_shape_that_only_comes_with_the_input(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="Apache TVM is not installed")
    compiler = find("TVMCompiler", ModelCompiler)()
    free = {"x": ("float32", [3, 1]), "shape": ("int64", [3])}
    artifact = model(tmp_path, [node("Expand", "x shape")], free, ("float32", [2, 3, 6]))
    with pytest.raises(NotSupported, match="TVM computes Expand 'the Expand' wrongly"):
        compiler.compile(artifact, tmp_path / "model.so")


def test_iree_refuses_a_file_before_compiling(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [node("Det", "x")])
    (cause,) = IREECompiler().refusals(path)
    assert cause.startswith("IREE computes Det 'the Det' wrongly")
    assert IREECompiler().refusals(write(path, NO_PEEPHOLES)) == ()
