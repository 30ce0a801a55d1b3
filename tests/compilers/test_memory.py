"""Compilers take at most three times a file in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 64_000_000
CHILD = """
import sys
from pathlib import Path
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.registry import find
from nnpipe.formats.onnx import read_onnx

COUNT = 8
name, folder, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
compiler = find(name, ModelCompiler)()

def source(size):
    wide = int((size / 4 / COUNT) ** 0.5)
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal((wide, wide), dtype=np.float32), f"w{n}") for n in range(COUNT)
    ]
    nodes = [helper.make_node("MatMul", [f"v{n}", f"w{n}"], [f"v{n + 1}"]) for n in range(COUNT)]
    ends = [helper.make_tensor_value_info(f"v{n}", TensorProto.FLOAT, [1, wide]) for n in (0, COUNT)]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights)
    path = folder / f"{size}.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return Artifact.create(path, "onnx", read_onnx(path).io())

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

compiler.compile(source(10_000), folder / "small")  # imports what it needs
large = source(size)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = peak()
compiler.compile(large, folder / "large")
print((peak() - before) / size)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system does not tell the peak of memory"
)
@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("ONNXRuntimeOptimizer", "onnxruntime"),
        ("ONNXFloat16", "onnxruntime"),
        ("OpenVINOCompiler", "openvino"),
    ],
)
def test_compiling_takes_three_times_the_file_at_most(
    name: str, package: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip(package, reason=f"{package} is not installed")
    command = [sys.executable, "-c", CHILD, name, str(tmp_path), str(SIZE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) <= 3
