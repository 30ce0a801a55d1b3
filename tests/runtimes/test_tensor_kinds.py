"""Tensors of every kind, inputs in any order, and batches of any size: they work, or are refused
by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, NNPipeError, SpecMismatch
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.tflite import TFLiteModel
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.model_files import write_onnx_network, write_tflite_difference
from nnpipe.workflows.candidates.deployment import Deployment, start_deployment

KINDS = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "string",
)
SHAPES: tuple[tuple[int | None, ...], ...] = ((), (3,), (None, 2))
# Every kind in one shape, and every shape of one kind, are quick.
PAIRS = [
    pytest.param(
        dtype, shape, marks=() if shape == SHAPES[-1] or dtype == KINDS[0] else pytest.mark.slow
    )
    for shape in SHAPES
    for dtype in KINDS
]


def write_identity(path: Path, dtype: str, shape: tuple[int | None, ...]) -> Artifact:
    """Write an ONNX model that gives what it takes."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    helper = onnx.helper
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    kind = getattr(onnx.TensorProto, names.get(dtype, dtype.upper()))
    lengths = ["n" if length is None else length for length in shape]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, lengths)],
        [helper.make_tensor_value_info("y", kind, lengths)],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    io = IOSpec((TensorSpec("x", shape, dtype),), (TensorSpec("y", shape, dtype),))
    return Artifact.create(path, "onnx", io)


def write_copy(path: Path, dtype: str, shape: tuple[int | None, ...]) -> Artifact:
    """Write a TensorFlow Lite model that gives what it takes, in the same shape."""
    flatbuffers = pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    schema = pytest.importorskip(
        "ai_edge_litert.schema_py_generated", reason="LiteRT is not installed"
    )

    def tensor(name: str) -> Any:
        made = schema.TensorT()
        made.name, made.type = name, getattr(schema.TensorType, dtype.upper())
        made.shape = [1 if length is None else length for length in shape]
        made.shapeSignature = (
            [-1 if length is None else length for length in shape] if None in shape else None
        )
        return made

    operator, code = schema.OperatorT(), schema.OperatorCodeT()
    # The operators that take every type: what takes all of one axis, and what only passes on.
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RESHAPE
    code.version = 1
    operator.inputs, operator.outputs = [0], [1]
    operator.builtinOptionsType, options = (
        schema.BuiltinOptions.ReshapeOptions,
        schema.ReshapeOptionsT(),
    )
    options.newShape = [-1 if length is None else length for length in shape]
    operator.builtinOptions = options
    graph, model = schema.SubGraphT(), schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = (
        [tensor("x"), tensor("y")],
        [operator],
        [0],
        [1],
    )
    model.version, model.operatorCodes, model.subgraphs, model.buffers = (
        3,
        [code],
        [graph],
        [schema.BufferT()],
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    io = IOSpec((TensorSpec("x", shape, dtype),), (TensorSpec("y", shape, dtype),))
    return Artifact.create(path, "tflite", io)


def values(dtype: str, shape: tuple[int | None, ...]) -> np.ndarray:
    lengths = tuple(5 if length is None else length for length in shape)
    numbers = np.arange(int(np.prod(lengths))).reshape(lengths) - 1
    if dtype == "string":
        return np.array([f"wört {n}" for n in numbers.ravel()], object).reshape(lengths)
    if dtype == "bfloat16":
        return numbers.astype(
            pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
        )
    return (numbers % 2 == 0) if dtype == "bool" else np.abs(numbers).astype(dtype)


def write_program(path: Path, dtype: str, shape: tuple[int | None, ...]) -> Artifact:
    """Write an exported PyTorch program that gives a copy of what it takes."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if dtype == "string":
        pytest.skip("PyTorch has no text")

    class Copy(torch.nn.Module):
        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            return {"y": given["x"].clone()}

    lengths = tuple(5 if length is None else length for length in shape)
    free = ({"x": {0: torch.export.Dim("n", max=64)}},) if None in shape else None
    given = ({"x": torch.zeros(lengths, dtype=getattr(torch, dtype))},)
    torch.export.save(torch.export.export(Copy(), given, dynamic_shapes=free), path)
    return Artifact.create(path, "torch-export", PyTorchRuntime().io_of(path))


Writer = Callable[[Path, str, "tuple[int | None, ...]"], Artifact]
BOTH = [
    pytest.param(ONNXRuntime(), write_identity, {"bfloat16"}, id="onnx"),
    pytest.param(ONNXRuntime(io_binding=True), write_identity, {"bfloat16"}, id="onnx bound"),
    pytest.param(LiteRTRuntime(), write_copy, {"bfloat16", "string"}, id="tflite"),
    pytest.param(OpenVINORuntime(), write_identity, {"bfloat16", "string"}, id="openvino"),
    pytest.param(OpenVINORuntime(), write_copy, {"bfloat16", "string"}, id="openvino tflite"),
    pytest.param(PyTorchRuntime(), write_program, set(), id="pytorch"),
]


SUFFIXES: dict[Writer, str] = {
    write_identity: ".onnx",
    write_copy: ".tflite",
    write_program: ".pt2",
}


def skip_unless_installed(*parts: Component) -> None:
    for part in parts:
        if part.missing():
            pytest.skip(f"{type(part).__name__} is not installed")
        part.check_ready()


@pytest.mark.parametrize(("runtime", "write", "refused"), BOTH)
@pytest.mark.parametrize(("dtype", "shape"), PAIRS, ids=str)
def test_a_tensor_of_any_kind_passes_or_is_refused_by_name(
    tmp_path: Path,
    runtime: Runtime,
    write: Writer,
    refused: set[str],
    dtype: str,
    shape: tuple[int | None, ...],
) -> None:
    skip_unless_installed(runtime)
    artifact = write(tmp_path / f"model{SUFFIXES[write]}", dtype, shape)
    if dtype in refused:
        with pytest.raises(ArtifactError) as caught:
            runtime.load(artifact)
        message = str(caught.value)
        assert str(artifact.path) in message
        assert "'x'" in message
        assert dtype in message
        assert "\n" not in message
        return
    given = values(dtype, shape)
    with runtime.load(artifact) as session:
        (found,) = session.infer({"x": given}).values()
        session.io.check_outputs({"y": found})
    assert found.shape == given.shape
    np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize(("runtime", "write", "refused"), BOTH)
def test_a_number_of_another_kind_is_refused_by_name(
    tmp_path: Path, runtime: Runtime, write: Writer, refused: set[str]
) -> None:
    skip_unless_installed(runtime)
    artifact = write(tmp_path / f"model{SUFFIXES[write]}", "int64", (None, 2))
    with (
        runtime.load(artifact) as session,
        pytest.raises(SpecMismatch, match="'x' has float32 elements"),
    ):
        session.infer({"x": np.ones((2, 2), np.float32)})


COMPILED = [
    pytest.param("TVMCompiler", "TVMRuntime", write_identity, {"bfloat16", "string"}, id="tvm"),
    pytest.param("IREECompiler", "IREERuntime", write_identity, {"bfloat16", "string"}, id="iree"),
    pytest.param(
        "ExecuTorchCompiler", "ExecuTorchRuntime", write_program, {"bfloat16"}, id="executorch"
    ),
    pytest.param(
        "OpenVINOCompiler", "OpenVINORuntime", write_identity, {"bfloat16", "string"}, id="openvino"
    ),
]
FEW = [("float32", (None, 2)), ("float32", ()), ("bfloat16", (None, 2)), ("string", (None, 2))]
MANY = [(dtype, shape) for shape in SHAPES for dtype in KINDS if (dtype, shape) not in FEW]


@pytest.mark.parametrize(("compiler", "runtime", "write", "refused"), COMPILED)
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [*FEW, *(pytest.param(*kind, marks=pytest.mark.slow) for kind in MANY)],
    ids=str,
)
def test_compiled_a_tensor_of_any_kind_passes_or_is_refused_by_name(
    tmp_path: Path,
    compiler: str,
    runtime: str,
    write: Writer,
    refused: set[str],
    dtype: str,
    shape: tuple[int | None, ...],
) -> None:
    maker, runner = find(compiler, ModelCompiler)(), find(runtime, Runtime)()
    skip_unless_installed(maker, runner)
    source = write(tmp_path / f"model{SUFFIXES[write]}", dtype, shape)
    if dtype in refused:
        with pytest.raises(NNPipeError) as caught:
            runner.load(maker.compile(source, tmp_path / f"compiled{maker.suffix}"))
        message = str(caught.value)
        assert "'x'" in message
        assert dtype in message
        assert "\n" not in message
        return
    given = values(dtype, shape)
    with runner.load(maker.compile(source, tmp_path / f"compiled{maker.suffix}")) as session:
        found = session.infer({"x": given})["y"]
        session.io.check_outputs({"y": found})
    assert found.shape == given.shape
    np.testing.assert_array_equal(found, given)


@pytest.fixture(scope="module")
def target() -> Iterator[RuntimeProtocol]:
    """A server with ONNX Runtime, in a process of its own."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    with start_deployment(
        Deployment(NetworkProtocol(port=0), serve=True), ONNXRuntime()
    ) as reached:
        yield reached


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(), (None, 2)], ids=str)
def test_a_tensor_of_any_kind_passes_to_a_target_and_back_or_is_refused_by_name(
    tmp_path: Path, target: RuntimeProtocol, dtype: str, shape: tuple[int | None, ...]
) -> None:
    artifact = write_identity(tmp_path / "model.onnx", dtype, shape)
    if dtype in ("bfloat16", "string"):
        with pytest.raises(NNPipeError, match=rf"'x'.*{dtype}"):
            open_session(target, artifact)
        return
    given = values(dtype, shape)
    with open_session(target, artifact) as session:
        found = session.infer({"x": given})["y"]
        session.io.check_outputs({"y": found})
    assert found.shape == given.shape
    np.testing.assert_array_equal(found, given)


def in_a_session(wrapper: ModelWrapper, path: Path) -> InferenceSession:
    return wrapper.open(path).session()


@pytest.mark.parametrize(
    ("cls", "write", "refused"),
    [(ONNXModel, write_identity, {"bfloat16"}), (TFLiteModel, write_copy, {"bfloat16", "string"})],
)
@pytest.mark.parametrize("dtype", KINDS)
def test_a_tensor_of_any_kind_passes_through_a_wrapper_or_is_refused_by_name(
    tmp_path: Path, cls: type[ModelWrapper], write: Writer, refused: set[str], dtype: str
) -> None:
    artifact = write(tmp_path / f"model{SUFFIXES[write]}", dtype, (None, 2))
    wrapper = cls.from_json({"model_path": str(artifact.path)})
    skip_unless_installed(wrapper)
    if dtype in refused:
        with (
            pytest.raises(NNPipeError, match=rf"'x'.*{dtype}"),
            in_a_session(wrapper, artifact.path),
        ):
            raise AssertionError
        return
    given = values(dtype, (None, 2))
    with in_a_session(wrapper, artifact.path) as session:
        np.testing.assert_array_equal(session.infer({"x": given})["y"], given)


# -- two inputs, in any order
# -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runtime", [ONNXRuntime(), ONNXRuntime(io_binding=True)], ids=["usual", "bound"]
)
def test_inputs_in_another_order_give_the_same_answer_on_onnx_runtime(
    tmp_path: Path, runtime: Runtime
) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    artifact = write_onnx_network(tmp_path / "network.onnx")
    assert_same_in_any_order(
        runtime,
        artifact,
        {"image": np.ones((2, 1, 8, 8), np.float32), "extra": np.full((2, 3), 0.5, np.float32)},
    )


def test_inputs_in_another_order_give_the_same_answer_on_litert(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    for named in (True, False):
        artifact = write_tflite_difference(tmp_path / "difference.tflite", named=named)
        first, second = ("first", "second") if named else ("t_first", "t_second")
        batch = {first: np.full((2, 4), 5, np.float32), second: np.full((2, 4), 2, np.float32)}
        (found,) = assert_same_in_any_order(LiteRTRuntime(), artifact, batch).values()
        np.testing.assert_array_equal(found, np.full((2, 4), 3, np.float32))


def assert_same_in_any_order(
    runtime: Runtime, artifact: Artifact, batch: Batch
) -> dict[str, np.ndarray]:
    """Try all four: the batch either way round, and the description either way round."""
    turned = Artifact(
        artifact.path,
        artifact.format,
        IOSpec(artifact.io.inputs[::-1], artifact.io.outputs[::-1]),
        artifact.sha256,
    )
    results = []
    for described in (artifact, turned):
        with runtime.load(described) as session:
            results += [session.infer(batch), session.infer(dict(reversed(list(batch.items()))))]
    for result in results[1:]:
        assert result.keys() == results[0].keys()
        for name, array in result.items():
            np.testing.assert_array_equal(array, results[0][name])
    return results[0]


# -- batches of any size
# ------------------------------------------------------------------------------


def test_a_free_batch_axis_takes_batches_of_changing_size(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    for runtime, write in ((ONNXRuntime(), write_identity), (LiteRTRuntime(), write_copy)):
        artifact = write(tmp_path / f"model.{runtime.accepts[0]}", "float32", (None, 2))
        with runtime.load(artifact) as session:
            for size in (1, 7, 3, 7, 1):
                given = np.random.default_rng(size).standard_normal((size, 2)).astype(np.float32)
                np.testing.assert_array_equal(session.infer({"x": given})["y"], given)


def test_a_fixed_batch_axis_refuses_other_sizes_by_name(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    for runtime, write in ((ONNXRuntime(), write_identity), (LiteRTRuntime(), write_copy)):
        artifact = write(tmp_path / f"model.{runtime.accepts[0]}", "float32", (3,))
        with (
            runtime.load(artifact) as session,
            pytest.raises(SpecMismatch, match=r"'x' has shape \(4,?\), expected"),
        ):
            session.infer({"x": np.ones(4, np.float32)})
