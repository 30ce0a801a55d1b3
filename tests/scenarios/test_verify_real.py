"""Damage in one layer of real models, which the outputs alone do not betray, is found and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.scenarios.verify import main

needs("onnx_ir")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def verified(tmp_path: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "figures.json"
    status = main([*argv, "--samples", "16", "--output", str(out)])
    return status, json.loads(out.read_text("utf-8"))


@pytest.mark.slow  # real networks; tests/scenarios/test_verify.py has a small one
def test_noise_on_a_convolution_is_different(shared_data: Path, tmp_path: Path) -> None:
    from nnpipe.modelwrappers.files.onnx import ONNXModel

    path = shared_data / "models" / "mnist-8.onnx"
    model = ONNXModel(model_path=path).open(path)
    kernel = model.get_weights(["Parameter87"])["Parameter87"]
    noise = 0.3 * kernel.std() * np.random.default_rng(0).standard_normal(kernel.shape)
    model.set_weights({"Parameter87": kernel + noise})
    model.export(tmp_path / "noisy.onnx", "onnx")
    data = (
        "--dataset",
        "MNISTDataset",
        "--dataset-root",
        str(shared_data / "mnist"),
        "--scale",
        "255",
    )
    status, figures = verified(tmp_path, str(path), str(tmp_path / "noisy.onnx"), *data)
    assert (status, figures["verdict"], figures["claims"]) == (1, "different", ["float"])
    assert [suspect["name"] for suspect in figures["divergence"]["suspects"]] == ["Convolution110"]


@pytest.mark.slow
def test_two_swapped_channels_of_a_resnet_are_different(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
    from nnpipe.modelwrappers.files.onnx import ONNXModel

    path = shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th"
    source = PyTorchCIFARResNet().open(path)
    sound = source.export(tmp_path / "sound.onnx", "onnx").path
    model = ONNXModel(model_path=sound).open(sound)
    graph = model.get_inference_graph()
    weights = model.get_weights()
    convolution = [op for op in graph.operations if op.kind == "Conv"][7]
    name = next(name for name in convolution.inputs if name in weights and weights[name].ndim == 4)
    kernel = weights[name]
    kernel[[2, 9]] = kernel[[9, 2]]
    model.set_weights({name: kernel})
    model.export(tmp_path / "swapped.onnx", "onnx")
    data = (
        "--dataset",
        "CIFAR10Dataset",
        "--dataset-root",
        str(shared_data / "cifar10"),
        "--model-path",
        str(path),
    )
    assert verified(tmp_path, "PyTorchCIFARResNet", str(sound), *data)[0] == 0
    status, figures = verified(
        tmp_path, "PyTorchCIFARResNet", str(tmp_path / "swapped.onnx"), *data
    )
    assert (status, figures["verdict"]) == (1, "different")
    (suspect, *_) = figures["divergence"]["suspects"]
    assert convolution.name in suspect["there"]
    assert "channels 2, 9 hold what belongs into channels 9, 2" in suspect["told"]
