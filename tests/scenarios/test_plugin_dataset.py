"""Wherever a command or a file takes a data set, it takes one that goes through a plugin, and
the plugin counts.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sketches import sketching

from nnpipe.__main__ import main
from nnpipe.measuring.run import Run

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

SCALED = "def process_dataset(x, y):\n    return (x / 16).astype('float32'), y\n"
PLUGIN = ("PluginDataset", "--wrapped", "DigitsDataset", "--plugin", "mine.py")
SHORT = ("--measure-samples", "60", "--measure-seconds", "0.01", "--verify-samples", "8")
SETTINGS = {
    "class": "PluginDataset",
    "arguments": {"wrapped": "DigitsDataset", "plugin": "mine.py"},
}
MEASURE = {"measure_samples": 60, "measure_seconds": 0.01}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """A plugin that does what ``--scale 16`` does, and two networks for digits between 0 and 1."""
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SCALED)
    for name, seed in (("one.onnx", 0), ("two.onnx", 1)):
        weights = np.random.default_rng(seed).standard_normal((64, 10)).astype(np.float32)
        graph = helper.make_graph(
            [
                helper.make_node("Flatten", ["image"], ["flat"]),
                helper.make_node("MatMul", ["flat", "w"], ["scores"]),
            ],
            "linear",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 8, 8, 1])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
            [numpy_helper.from_array(weights, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save_model(model, name)
    return tmp_path


def judged(path: str) -> dict[str, Any]:
    evaluation = Run.read(path).evaluation
    assert evaluation is not None
    return {name: np.asarray(column).tolist() for name, column in evaluation.arrays.items()}


def done(*words: str) -> None:
    assert main(list(words)) == 0


def write(path: str, settings: dict[str, Any]) -> str:
    Path(path).write_text(yaml.safe_dump(settings))
    return path


@pytest.mark.slow
def test_measuring_in_the_own_framework(capsys):
    done(
        "inference_performance",
        "ONNXModel",
        *PLUGIN[:1],
        "a.json",
        *PLUGIN[1:],
        "--model-path",
        "one.onnx",
        *SHORT[:4],
    )
    done(
        "inference_performance",
        "ONNXModel",
        "DigitsDataset",
        "b.json",
        "--scale",
        "16",
        "--model-path",
        "one.onnx",
        *SHORT[:4],
    )
    assert judged("a.json") == judged("b.json")
    assert "mine.py is run as code, with all your rights" in capsys.readouterr().err
    arguments = Run.read("a.json").components["dataset"]["arguments"]
    assert len(arguments["plugin_sha256"]) == 64


@pytest.mark.slow
def test_compiling_with_calibration():
    """A quantiser that observes samples before the plugin had them would choose ranges 16 times
    as wide.
    """
    pytest.importorskip("onnx_ir", reason="onnx-ir is not installed")
    chain = ("ONNXModel", "ONNXStaticQuantizer", "ONNXRuntime")
    done(
        "inference_tester",
        *chain,
        *PLUGIN[:1],
        "a.json",
        *PLUGIN[1:],
        "--model-path",
        "one.onnx",
        *SHORT,
    )
    done(
        "inference_tester",
        *chain,
        "DigitsDataset",
        "b.json",
        "--scale",
        "16",
        "--model-path",
        "one.onnx",
        *SHORT,
    )
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    assert judged("a.json") == judged("b.json")
    assert Run.read("a.json").verification["verdict"] in ("same", "close")


@pytest.mark.slow  # three processes
def test_verifying():
    pytest.importorskip("onnx_ir", reason="onnx-ir is not installed")
    words = (
        "verify",
        "one.onnx",
        "one.onnx",
        "--dataset",
        *PLUGIN,
        "--samples",
        "9",
        "--output",
        "figures.json",
    )
    done(*words, "--at-least", "same")
    assert json.loads(Path("figures.json").read_text())["samples"] == 9


@pytest.mark.slow  # four measurements
def test_comparing():
    data = ("--dataset", *PLUGIN, "--measure-samples", "20")
    done("compare", "one.onnx", "two.onnx", *data, "--max-seconds", "0.5", "--output", "pair.json")
    assert Path("pair.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "name", "weights"),
    [
        ("torch", "PyTorchDigitsCNN", "a.pt"),
        pytest.param("tensorflow", "TensorFlowDigitsCNN", "a.keras", marks=pytest.mark.slow),
    ],
)
def test_training_in_both_frameworks(framework, name, weights):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    # all are sevens
    Path("mine.py").write_text("def process_dataset(x, y):\n    return x, y * 0 + 7\n")
    done(
        "model_training",
        name,
        *PLUGIN,
        "--model-path",
        weights,
        "--num-epochs",
        "1",
        "--run-folder",
        weights + ".run",
        "--callbacks",
        "none",
        "--verbosity",
        "error",
    )
    done(
        "inference_performance",
        name,
        *PLUGIN[:1],
        "a.json",
        *PLUGIN[1:],
        "--model-path",
        weights,
        *SHORT[:4],
    )
    assert set(judged("a.json")["truth"]) == {7}
    assert np.mean(np.array(judged("a.json")["predicted"]) == 7) > 0.9


@pytest.mark.slow  # ten measurements
def test_pipelines_sweeps_and_what_they_remember(capsys):
    model = {"class": "ONNXModel", "path": "one.onnx"}
    pipeline = write(
        "pipeline.yaml",
        {
            "title": "t",
            "output": "out",
            "dataset": SETTINGS,
            "model": model,
            "measure": MEASURE,
            "verify": {"verify_samples": 8},
            "candidates": [
                {
                    "title": "quantised",
                    "compilers": ["ONNXStaticQuantizer"],
                    "runtime": "ONNXRuntime",
                }
            ],
        },
    )
    done("run", pipeline)
    assert len(list(Path("out").glob("*.json"))) > 0
    sweep = write(
        "sweep.yaml",
        {
            "title": "t",
            "output": "swept",
            "dataset": SETTINGS,
            "models": [{"title": "m", **model}],
            "compilers": [[]],
            "runtimes": ["ONNXRuntime"],
            "measure": MEASURE,
            "constraints": ["latency_p50 <= 1 s"],
            "objectives": ["latency_median"],
            "choose": "latency_median",
            "accept_doubts": ["chance"],
        },
    )
    done("sweep", sweep)
    before = sorted(Path("swept").rglob("results/*.json"))
    assert before
    done("sweep", sweep)
    assert sorted(Path("swept").rglob("results/*.json")) == before
    Path("mine.py").write_text(SCALED.replace("16", "32"))
    done("sweep", sweep)  # what the other plugin gave does not count any more
    assert len(list(Path("swept").rglob("results/*.json"))) > len(before)


def test_a_training_with_another_plugin_is_another_training(capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    words = (
        "model_training",
        "PyTorchDigitsCNN",
        *PLUGIN,
        "--model-path",
        "a.pt",
        "--num-epochs",
        "1",
        "--run-folder",
        "run",
        "--callbacks",
        "none",
        "--verbosity",
        "error",
    )
    done(*words)
    Path("mine.py").write_text("def process_dataset(x, y):\n    return x, y\n")
    assert main(list(words)) == 2
    assert re.search(
        r"this run was started with different settings: .*\bdataset\.", capsys.readouterr().err
    )


@pytest.mark.slow
def test_experiments():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    settings = {
        "digits": {
            "class": "nnpipe.datasets.plugin.PluginDataset",
            "arguments": SETTINGS["arguments"],
        },
        "train": {
            "class": "nnpipe.training.sequences.dataset.DatasetSequence",
            "arguments": {"dataset": {"reference": "digits"}, "split": "train", "batch": 256},
        },
        "network": {
            "class": "nnpipe.training.network.Network",
            "arguments": {
                "input": "image",
                "layers": [
                    {"class": "torch.nn.Flatten"},
                    {
                        "class": "torch.nn.Linear",
                        "arguments": {"in_features": 64, "out_features": 10},
                    },
                ],
                "outputs": {
                    "digit": {
                        "class": "nnpipe.training.network.Head",
                        "arguments": {"target": "label"},
                    }
                },
            },
        },
        "experiment": {
            "class": "nnpipe.training.experiment.Training",
            "arguments": {
                "trainer": {"class": "nnpipe.training.trainer.Trainer"},
                "model": {"reference": "network"},
                "datasets": {"digits": {"train": {"reference": "train"}}},
                "folder": "run",
            },
        },
    }
    with sketching():
        done("experiment", write("experiment.yaml", settings), "--database", "runs.sqlite")
    assert Path("run/run.json").exists()


def test_a_plugin_is_pinned_by_its_content(capsys):
    from nnpipe.datasets.plugin import PluginDataset

    described = PluginDataset(**SETTINGS["arguments"]).describe()["arguments"]
    pinned = PluginDataset.from_json(described)
    Path("mine.py").write_text(SCALED + "raise SystemExit\n")
    words = (
        "inference_performance",
        "ONNXModel",
        *PLUGIN[:1],
        "a.json",
        *PLUGIN[1:],
        "--model-path",
        "one.onnx",
    )
    assert main([*words, "--plugin-sha256", described["plugin_sha256"]]) == 2
    assert "it was changed, or is another" in capsys.readouterr().err
    with pytest.raises(ValueError, match="changed after it had been looked at"):
        pinned.prepare()
