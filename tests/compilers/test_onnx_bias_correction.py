"""Corrected biases give quantised layers the means of the layers in floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import IOSpec, TensorSpec, generate_random_batch
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import NETWORK_IO

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

IO = IOSpec(
    (TensorSpec("x", (None, 2, 8, 8), "float32"),), (TensorSpec("y", (None, 4), "float32"),)
)
SAMPLES = [generate_random_batch(IO, 1, seed) for seed in range(64)]
UNSEEN = [generate_random_batch(IO, 1, seed) for seed in range(1000, 1200)]


class TestCorrectedBiases(ONNXNetworkContract):
    tolerance = 0.6  # of outputs between -14 and 7
    agreement = 0.95
    samples = [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(100)]

    @pytest.fixture
    def compiler(self) -> ONNXStaticQuantizer:
        return ONNXStaticQuantizer(reduce_range=True, correct_biases=True)


def write_coarse(path: Path) -> Artifact:
    """Write a network whose kernels have one great number each, so that the steps of the others
    are coarse.
    """
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    weights = {
        name: generator.uniform(-1, 1, shape)
        for name, shape in (
            ("w1", (6, 2, 3, 3)),
            ("w2", (6, 1, 3, 3)),
            ("w3", (8, 6, 1, 1)),
            ("w4", (8, 4)),
        )
    }
    for kernel in weights.values():
        kernel.flat[0] = 40
    weights["b3"] = generator.uniform(-1, 1, 8)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], group=6),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"]),
        helper.make_node("Relu", ["c3"], ["r3"]),
        helper.make_node("GlobalAveragePool", ["r3"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w4"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "coarse",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(path),
    )
    return Artifact.create(path, "onnx", IO)


def mean_of(artifact: Artifact) -> Any:
    return np.mean(
        [batch["y"] for batch in run_compiled(ONNXRuntime(), artifact, IO, UNSEEN)], axis=(0, 1)
    )


@pytest.mark.parametrize("keep", [(), ("r2",)])
def test_the_mean_of_each_output_is_that_of_the_model_in_floats(
    tmp_path: Path, keep: tuple[str, ...]
) -> None:
    source = write_coarse(tmp_path / "source.onnx")
    wanted = mean_of(source)
    shifts = []
    for correct in (False, True):
        compiler = ONNXStaticQuantizer(per_channel=False, keep_float=keep, correct_biases=correct)
        made = compiler.compile(source, tmp_path / f"{correct}.onnx", lambda: SAMPLES)
        shifts.append(np.abs(mean_of(made) - wanted).max())
    assert shifts[1] < shifts[0] / 4


def test_kernels_stay_those_of_the_plain_quantiser(tmp_path: Path) -> None:
    source = write_coarse(tmp_path / "source.onnx")
    plain, corrected = (
        onnx.load_model(
            str(
                ONNXStaticQuantizer(correct_biases=correct)
                .compile(source, tmp_path / "m.onnx", lambda: SAMPLES)
                .path
            )
        )
        for correct in (False, True)
    )
    kernels = [
        {
            each.name: each.raw_data
            for each in model.graph.initializer
            if each.data_type == onnx.TensorProto.INT8
        }
        for model in (plain, corrected)
    ]
    assert len(kernels[0]) >= 4
    assert kernels[0] == kernels[1]


def test_a_correction_that_does_not_help_on_other_samples_is_undone(tmp_path: Path) -> None:
    source = write_coarse(tmp_path / "source.onnx")
    # Those that judge are the first ones: without any input, nothing shifts the means.
    samples = [{"x": np.zeros_like(each["x"])} for each in SAMPLES[:16]] + SAMPLES[16:]
    moved = []
    for given in (SAMPLES, samples):
        compiler = ONNXStaticQuantizer(per_channel=False, correct_biases=True)
        made = compiler.compile(source, tmp_path / "made.onnx", lambda given=given: given)
        biases = [
            each
            for each in onnx.load_model(str(made.path)).graph.initializer
            if "/bias" in each.name
        ]
        values = [
            onnx.numpy_helper.to_array(each)
            for each in biases
            if each.data_type == onnx.TensorProto.INT32
        ]
        assert len([each for each in values if each.ndim]) >= 3  # of layers that had none
        moved.append(any(np.any(each) for each in values))
    assert moved == [True, False]
