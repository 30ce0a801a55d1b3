"""ONNX models in 16-bit floats are half as large, close to their source, and keep its element
types.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_optimizer import ONNXFloat16
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


class TestONNXFloat16(ONNXNetworkContract):
    tolerance = 0.05  # of outputs between -14 and 7

    @pytest.fixture
    def compiler(self) -> ONNXFloat16:
        return ONNXFloat16(float32_operators=("Gemm",))

    def test_inputs_and_outputs_stay_as_they_were(self, compiled: Artifact) -> None:
        assert compiled.io == NETWORK_IO


def test_weights_are_in_16_bits_but_where_asked_for_otherwise(tmp_path: Path) -> None:
    source, before = write_onnx_network(tmp_path / "network.onnx"), list(sys.path)
    small = onnx.load(ONNXFloat16().compile(source, tmp_path / "small.onnx").path)
    half = {c.name for c in small.graph.initializer if c.data_type == onnx.TensorProto.FLOAT16}
    assert half == {"kernel", "kernel_bias", "dense", "dense_bias", "sum"}
    mixed = onnx.load(
        ONNXFloat16(float32_operators=("Gemm",)).compile(source, tmp_path / "mixed.onnx").path
    )
    half = {c.name for c in mixed.graph.initializer if c.data_type == onnx.TensorProto.FLOAT16}
    assert half == {"kernel", "kernel_bias", "sum"}
    assert sys.path == before


def test_weights_beyond_float16_are_refused_by_name(tmp_path: Path) -> None:
    source = write_onnx_network(tmp_path / "network.onnx")
    model = onnx.load(source.path)
    (dense,) = (c for c in model.graph.initializer if c.name == "dense")
    array = np.array(onnx.numpy_helper.to_array(dense))
    array[0, 0] = -1e5
    dense.CopyFrom(onnx.numpy_helper.from_array(array, "dense"))
    onnx.save_model(model, str(tmp_path / "large.onnx"))
    large = Artifact.create(tmp_path / "large.onnx", "onnx", NETWORK_IO)
    with pytest.raises(
        CompileError, match="'dense' has values beyond the range of float16"
    ) as caught:
        ONNXFloat16().compile(large, tmp_path / "made.onnx")
    assert_one_line(caught.value)


def test_the_quantiser_works_in_a_process_that_has_made_float16(tmp_path: Path) -> None:
    """ONNX Runtime's quantiser wants a folder among those where Python looks, which importing
    its converter adds.
    """
    source = write_onnx_network(tmp_path / "network.onnx")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from nnpipe.compilers.onnx_optimizer import ONNXFloat16\n"
        "from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer\n"
        "from nnpipe.core.artifact import Artifact\n"
        "from nnpipe.testing.model_files import NETWORK_IO\n"
        "source = Artifact.create(Path(sys.argv[1]), 'onnx', NETWORK_IO)\n"
        "for compiler in (ONNXFloat16(), ONNXDynamicQuantizer()):\n"
        "    compiler.compile(source, source.path.with_name(compiler.variant() + '.onnx'))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(source.path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


def write_branching(path: Path) -> Artifact:
    """A network that computes one of two graphs, each with a softmax and a weight of its own."""
    from onnx import TensorProto, helper, numpy_helper

    def branch(name: str, weight: float) -> Any:
        constant = numpy_helper.from_array(np.full((3, 2), weight, np.float32), f"{name}_weight")
        nodes = [
            helper.make_node("MatMul", ["double", f"{name}_weight"], [f"{name}_product"]),
            helper.make_node("Softmax", [f"{name}_product"], [f"{name}_soft"], axis=1),
            helper.make_node("Mul", [f"{name}_soft", f"{name}_product"], [f"{name}_out"]),
        ]
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, ["n", 2])
        return helper.make_graph(nodes, name, [], [out], [constant])

    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["double"]),
            helper.make_node("ReduceSum", ["double"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["positive"]),
            helper.make_node(
                "If",
                ["positive"],
                ["y"],
                then_branch=branch("a", 0.5),
                else_branch=branch("b", -0.25),
            ),
        ],
        "branching",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save_model(model, str(path))
    io = IOSpec((TensorSpec("x", (None, 3), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    return Artifact.create(path, "onnx", io)


@pytest.mark.parametrize("operators", [(), ("Softmax",), ("Conv", "Gemm")])
@pytest.mark.parametrize("write", [write_onnx_network, write_branching])
def test_nodes_stand_in_an_order_that_computes(
    write: Any, operators: tuple[str, ...], tmp_path: Path
) -> None:
    import onnxruntime

    source = write(tmp_path / "network.onnx")
    made = ONNXFloat16(float32_operators=operators).compile(source, tmp_path / "half.onnx").path
    onnx.checker.check_model(str(made), full_check=True)
    before, after = (onnxruntime.InferenceSession(str(path)) for path in (source.path, made))
    random = np.random.default_rng(0)
    inputs = {
        each.name: random.random((4, *each.shape[1:]), np.float32) for each in before.get_inputs()
    }
    for ours, theirs in zip(before.run(None, inputs), after.run(None, inputs), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0.01, atol=0.02)
