"""Every compiled model that is measured is held against its source, and the verdict goes into
its result file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.measuring.run import Run
from nnpipe.scenarios.inference_tester import main

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


@pytest.fixture
def model(tmp_path: Path) -> str:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((64, 10)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
        ],
        "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(weights, "weights")],
    )
    path = tmp_path / "model.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return str(path)


def measured(compiler: str, model: str, tmp_path: Path, *further: str) -> Run:
    out = tmp_path / "run.json"
    argv = [
        "ONNXModel",
        compiler,
        "ONNXRuntime",
        "DigitsDataset",
        str(out),
        "--model-path",
        model,
        "--scale",
        "16",
    ]
    assert main([*argv, "--measure-seconds", "0", "--measure-samples", "20", *further]) == 0
    return Run.read(out)


@pytest.mark.slow
def test_a_model_as_it_is_is_the_same(model: str, tmp_path: Path) -> None:
    told = measured("none", model, tmp_path).verification
    assert told["verdict"] == "same"
    assert (told["samples"], told["same_class"]) == (64, 64)


def test_a_compiler_that_swaps_classes_is_found_out(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = measured("toys.Swapper", model, tmp_path, "--verify-samples", "10")
    assert run.verification["verdict"] == "different"
    assert run.verification["samples"] == 10
    assert run.evaluation is not None
    assert any(
        "agreement with the source: different" in r.message
        for r in caplog.records
        if r.levelname == "WARNING"
    )


def test_no_samples_mean_no_verdict(model: str, tmp_path: Path) -> None:
    assert measured("none", model, tmp_path, "--verify-samples", "0").verification == {}


@pytest.mark.slow
def test_a_model_that_cannot_be_compared_is_measured_all_the_same(
    model: str, tmp_path: Path
) -> None:
    out = tmp_path / "run.json"
    argv = [
        "toys.Mute",
        "none",
        "ONNXRuntime",
        "DigitsDataset",
        str(out),
        "--model-path",
        model,
        "--scale",
        "16",
    ]
    assert main([*argv, "--measure-seconds", "0", "--measure-samples", "20"]) == 0
    run = Run.read(out)
    assert run.verification == {"verdict": "unknown", "reason": "it does not run today"}
    assert len(run.series["inference"]) == 20
