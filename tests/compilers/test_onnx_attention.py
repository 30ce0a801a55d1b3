"""Attention with a mask of the lowest float32 survives 8 bits and 16-bit floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.compilers.onnx_optimizer import ONNXFloat16
from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer, ONNXStaticQuantizer
from nnpipe.compilers.openvino import OpenVINOCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import generate_random_batch
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.testing.compiler import run_compiled

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    values = np.random.default_rng(0)
    weights = {
        name: (values.standard_normal((8, 8)) / 3).astype(np.float32)
        for name in ("query", "key", "value")
    }
    weights["mask"] = np.triu(np.full((6, 6), np.finfo(np.float32).min, np.float32), 1)
    nodes = [
        *(
            helper.make_node("MatMul", ["x", name], [name[0]], name=name)
            for name in ("query", "key", "value")
        ),
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 2, 1], name="turn"),
        helper.make_node("MatMul", ["q", "turned"], ["scores"], name="score"),
        helper.make_node("Add", ["scores", "mask"], ["masked"], name="masking"),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1, name="softmax"),
        helper.make_node("MatMul", ["weights", "v"], ["y"], name="weigh"),
    ]
    sides = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 6, 8])] for name in "xy"
    ]
    graph = helper.make_graph(
        nodes, "g", *sides, [numpy_helper.from_array(w, name) for name, w in weights.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save_model(model, str(tmp_path / "m.onnx"))
    return Artifact.create(tmp_path / "m.onnx", "onnx", ONNXRuntime().io_of(tmp_path / "m.onnx"))


@pytest.mark.parametrize(
    ("compiler", "runtime", "tolerance"),
    [
        (ONNXStaticQuantizer(), ONNXRuntime(), 0.1),
        (ONNXDynamicQuantizer(), ONNXRuntime(), 0.1),
        (ONNXFloat16(), ONNXRuntime(), 0.01),
        (OpenVINOCompiler(precision="int8"), OpenVINORuntime(), 0.2),
    ],
    ids=["static", "dynamic", "float16", "openvino"],
)
def test_masked_attention_keeps_its_values(
    source: Artifact, tmp_path: Path, compiler: ModelCompiler, runtime: Runtime, tolerance: float
) -> None:
    for need in compiler.requires:
        pytest.importorskip(need, reason=f"{need} is not installed")
    batches = [generate_random_batch(source.io, 1, seed) for seed in range(20)]
    made = compiler.compile(source, tmp_path / f"made{compiler.suffix}", lambda: batches)
    before, after = (
        run_compiled(r, a, source.io, batches)
        for r, a in ((ONNXRuntime(), source), (runtime, made))
    )
    error = np.sqrt(
        np.mean([(one["y"] - other["y"]) ** 2 for one, other in zip(before, after, strict=True)])
    )
    assert error < tolerance * np.std([one["y"] for one in before])
