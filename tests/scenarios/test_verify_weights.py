"""What was changed on purpose is told, and damage on top of it is found: with real compilers and
the real command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.tensors import Batch
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.scenarios.verify import main

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
pytestmark = pytest.mark.slow

FIRST, SECOND = 3, 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed")


@pytest.fixture(scope="module")
def network() -> LiveModel:
    """A small network that knows digits."""
    model = find("PyTorchDigitsCNN", ModelWrapper).from_json({}).open()
    model.train(DigitsDataset(), TrainingOptions(num_epochs=2, seed=0))
    return model


@pytest.fixture(scope="module")
def program(folder: Path, network: LiveModel) -> Artifact:
    return network.export(folder / "digits.pt2", "torch-export")


@pytest.fixture(scope="module")
def graph(folder: Path, network: LiveModel) -> Artifact:
    return network.export(folder / "digits.onnx", "onnx")


@pytest.fixture(scope="module")
def compiled(folder: Path, network: LiveModel) -> Callable[..., Artifact]:
    """Compile with a class and its arguments, once for each."""
    made: dict[str, Artifact] = {}

    def samples() -> Iterable[Batch]:
        digits = DigitsDataset()
        return [
            network.wrapper.preprocess(raw)
            for raw, _ in digits.batches(digits.split("train")[:32], 1)
        ]

    def compile(source: Artifact, name: str, **arguments: Any) -> Artifact:
        compiler = find(name, ModelCompiler).from_json(arguments)
        target = folder / f"{source.path.stem}-{name}-{compiler.variant()}{compiler.suffix}"
        if str(target) not in made:
            made[str(target)] = compiler.compile(
                source, target, samples if compiler.needs_calibration() else None
            )
        return made[str(target)]

    return compile


def verified(tmp_path: Path, source: Path, other: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "figures.json"
    given = [
        str(source),
        str(other),
        "--dataset",
        "DigitsDataset",
        "--samples",
        "8",
        "--output",
        str(out),
        *argv,
    ]
    status = main(given)
    return status, json.loads(out.read_text("utf-8"))


def damaged(
    artifact: Artifact, target: Path, change: Callable[[np.ndarray[Any, Any]], None]
) -> Path:
    """Change the kernel with the most outputs, and keep the description."""
    cls = {"onnx": "ONNXModel", "torch-export": "TorchExportModel", "tflite": "TFLiteModel"}[
        artifact.format
    ]
    model = (
        find(cls, ModelWrapper).from_json({"model_path": str(artifact.path)}).open(artifact.path)
    )
    weights = model.get_weights()
    name = max(
        (n for n, array in weights.items() if array.ndim == 4), key=lambda n: weights[n].size
    )
    change(weights[name])
    model.set_weights({name: weights[name]})
    return model.export(target, artifact.format).path


def swap(kernel: np.ndarray[Any, Any]) -> None:
    kernel[[FIRST, SECOND]] = kernel[[SECOND, FIRST]]


def silence(kernel: np.ndarray[Any, Any]) -> None:
    kernel[FIRST] = 0


CHANGED: dict[str, tuple[str, dict[str, Any], list[str], str]] = {
    "pruned": (
        "TorchPruner",
        {"sparsity": 0.6},
        ["float", "pruned"],
        "up to 60 % of a tensor set to 0",
    ),
    "channels": ("TorchChannelPruner", {}, ["float", "pruned"], "taken away with whole channels"),
    "clustered": (
        "TorchClusterer",
        {"num_clusters": 8},
        ["float", "clustered"],
        "up to 8 different numbers",
    ),
    "fine-tuned": (
        "TorchPruner",
        {"fine_tuning_steps": 3},
        ["float", "pruned", "fine-tuned"],
        "tensors changed by up to",
    ),
}


@pytest.mark.parametrize("way", list(CHANGED))
def test_what_was_changed_on_purpose_says_so_and_what_was_done(
    way: str,
    program: Artifact,
    compiled: Callable[..., Artifact],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, arguments, claims, told = CHANGED[way]
    artifact = compiled(program, name, **arguments)
    status, figures = verified(tmp_path, program.path, artifact.path)
    assert (status, figures["verdict"], figures["claims"]) == (0, "changed on purpose", claims)
    assert told in figures["reason"]
    assert told in figures["weights"]["told"]
    assert figures["weights"]["left"] == []
    shown = capsys.readouterr().out
    assert f"weights: 22 of 22 tensors compared; {figures['weights']['told']}" in shown
    assert "verdict: changed on purpose (it claims to be" in shown
    if way == "pruned":
        status, figures = verified(tmp_path, program.path, artifact.path, "--at-least", "same")
        assert (status, figures["verdict"]) == (1, "changed on purpose")


@pytest.mark.parametrize("way", ["pruned", "clustered"])
def test_swapped_channels_are_not_what_pruning_or_clustering_makes(
    way: str, program: Artifact, compiled: Callable[..., Artifact], tmp_path: Path
) -> None:
    name, arguments, claims, _ = CHANGED[way]
    path = damaged(compiled(program, name, **arguments), tmp_path / "swapped.pt2", swap)
    status, figures = verified(tmp_path, program.path, path, "--claim", claims[1])
    assert (status, figures["verdict"]) == (1, "different")
    assert (
        f"channels {FIRST}, {SECOND} hold what belongs into channels {SECOND}, {FIRST}"
        in figures["reason"]
    )
    (wrong,) = [tensor for tensor in figures["weights"]["tensors"] if tensor["wrong"]]
    assert wrong["channels"] == [FIRST, SECOND]


def test_damage_shows_through_pruning_quantisation_and_a_folded_normalisation(
    program: Artifact, compiled: Callable[..., Artifact], tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    pruned = compiled(program, "TorchPruner", sparsity=0.6)
    small = compiled(pruned, "TorchToTFLite", target="int8")
    status, figures = verified(tmp_path, program.path, small.path)
    assert (status, figures["verdict"], figures["claims"]) == (
        0,
        "changed on purpose",
        ["int8", "pruned"],
    )
    path = damaged(small, tmp_path / "swapped.tflite", swap)
    status, figures = verified(tmp_path, program.path, path, "--claim", "int8", "pruned")
    assert (status, figures["verdict"]) == (1, "different")
    (wrong,) = [tensor for tensor in figures["weights"]["tensors"] if tensor["wrong"]]
    assert wrong["channels"] == [FIRST, SECOND]
    assert wrong["folded"]


def test_a_missing_operation_is_found_in_a_pruned_model(graph: Artifact, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    model = onnx.load(graph.path)
    (first, *_) = (node for node in model.graph.node if node.op_type == "Relu")
    first.op_type = "Identity"
    for constant in model.graph.initializer:
        array = np.array(onnx.numpy_helper.to_array(constant))
        if array.ndim == 4:
            array[np.abs(array) < np.quantile(np.abs(array), 0.3)] = 0
            constant.CopyFrom(onnx.numpy_helper.from_array(array, constant.name))
    onnx.save_model(model, tmp_path / "bent.onnx")
    status, figures = verified(tmp_path, graph.path, tmp_path / "bent.onnx", "--claim", "pruned")
    assert (status, figures["verdict"]) == (1, "different")
    assert "does not compute what it should with these weights" in figures["reason"]
    assert not any(tensor["wrong"] for tensor in figures["weights"]["tensors"])


@pytest.mark.parametrize("name", ["ONNXDynamicQuantizer", "ONNXStaticQuantizer", "ONNXFloat16"])
def test_coarser_weights_are_close_and_a_dead_channel_is_named(
    name: str, graph: Artifact, compiled: Callable[..., Artifact], tmp_path: Path
) -> None:
    artifact = compiled(graph, name)
    status, figures = verified(tmp_path, graph.path, artifact.path)
    assert (status, figures["verdict"]) == (0, "close")
    assert not any(tensor["wrong"] for tensor in figures["weights"]["tensors"])
    # integers are symmetric: 0 stands for 0
    path = damaged(artifact, tmp_path / "dead.onnx", silence)
    status, figures = verified(tmp_path, graph.path, path, "--claim", *figures["claims"])
    assert (status, figures["verdict"]) == (1, "different")
    (wrong,) = [tensor for tensor in figures["weights"]["tensors"] if tensor["wrong"]]
    assert wrong["dead"] == [FIRST]
