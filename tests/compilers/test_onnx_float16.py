"""ONNX models in 16-bit floats are half as large, close to their source, and keep its element types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_float16 import ONNXFloat16
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
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
    mixed = onnx.load(ONNXFloat16(float32_operators=("Gemm",)).compile(source, tmp_path / "mixed.onnx").path)
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
    large = Artifact.of(tmp_path / "large.onnx", "onnx", NETWORK_IO)
    with pytest.raises(CompileError, match="'dense' has values beyond the range of float16") as caught:
        ONNXFloat16().compile(large, tmp_path / "made.onnx")
    assert_one_line(caught.value)


def test_the_quantiser_works_in_a_process_that_has_made_float16(tmp_path: Path) -> None:
    """ONNX Runtime's quantiser wants a folder among those where Python looks, which importing its converter adds."""
    source = write_onnx_network(tmp_path / "network.onnx")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from nnpipe.compilers.onnx_float16 import ONNXFloat16\n"
        "from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer\n"
        "from nnpipe.core.artifact import Artifact\n"
        "from nnpipe.testing.model_files import NETWORK_IO\n"
        "source = Artifact.of(Path(sys.argv[1]), 'onnx', NETWORK_IO)\n"
        "for compiler in (ONNXFloat16(), ONNXDynamicQuantizer()):\n"
        "    compiler.compile(source, source.path.with_name(compiler.variant() + '.onnx'))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(source.path)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
