"""Models that others trained and published reach their figures by command line alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.__main__ import main
from nnpipe.core.graph import Selector
from nnpipe.measuring.run import Run
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.tflite import TFLiteModel

CIFAR = "mlperf_tiny_ic/pretrainedResnet"
LITERT = "ai_edge_litert"


def measured(
    shared_data: Path, out: Path, classes: list[str], model: str, *options: str
) -> tuple[int, float]:
    """Run a command line; give how many samples there were, and what part of them was classified
    rightly.
    """
    scenario = "inference_tester" if "none" in classes else "inference_performance"
    folder = {"MNISTDataset": "mnist", "CIFAR10Dataset": "cifar10"}[classes[-1]]
    status = main(
        [
            scenario,
            *classes,
            str(out),
            f"--model-path={shared_data / 'models' / model}",
            f"--dataset-root={shared_data / folder}",
            "--measure-seconds=0",
            "--warmup-runs=0",
            *options,
        ]
    )
    assert status == 0
    arrays = Run.read(out).evaluation.arrays
    return len(arrays["truth"]), float((arrays["truth"] == arrays["predicted"]).mean())


@pytest.mark.parametrize(
    ("needs", "classes", "model", "options", "samples", "accuracy"),
    [
        (
            "onnxruntime",
            ["ONNXModel", "MNISTDataset"],
            "mnist-8.onnx",
            ["--scale=255"],
            10_000,
            0.9890,
        ),
        pytest.param(
            *(
                LITERT,
                ["TFLiteModel", "MNISTDataset"],
                "tflm/trained_lstm.tflite",
                ["--scale=255"],
                10_000,
                0.9853,
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(
                LITERT,
                ["TFLiteModel", "none", "LiteRTRuntime", "CIFAR10Dataset"],
                f"{CIFAR}.tflite",
                [],
                500,
                0.89,
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(
                LITERT,
                ["TFLiteModel", "none", "LiteRTRuntime", "CIFAR10Dataset"],
                f"{CIFAR}_quant.tflite",
            ),
            *([], 500, 0.884),
            marks=pytest.mark.slow,
        ),
        (
            *(LITERT, ["TFLiteModel", "CIFAR10Dataset"], f"{CIFAR}_quant.tflite"),
            *(["--quantised-input=raw"], 500, 0.884),
        ),
        pytest.param(
            *(
                "tensorflow",
                ["KerasModel", "CIFAR10Dataset"],
                f"{CIFAR}.h5",
                ["--inference-batch-size=50"],
                500,
                0.89,
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(
                "tensorflow",
                ["KerasModel", "none", "ONNXRuntime", "CIFAR10Dataset"],
                f"{CIFAR}.h5",
                [],
                500,
                0.89,
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(
                "torch",
                ["PyTorchCIFARResNet", "CIFAR10Dataset"],
                "torch_resnet/resnet20-12fca82f.th",
            ),
            *(["--depth=20", "--inference-batch-size=50"], 500, 0.91),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_published_model_is_as_good_as_published(
    shared_data: Path,
    tmp_path: Path,
    needs: str,
    classes: list[str],
    model: str,
    options: list[str],
    samples: int,
    accuracy: float,
) -> None:
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    found = measured(shared_data, tmp_path / "out.json", classes, model, *options)
    assert found == (samples, pytest.approx(accuracy, abs=0.002))


@pytest.fixture
def two_pictures(shared_data: Path, tmp_path: Path) -> list[str]:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    coral = shared_data / "models" / "coral"
    for folder, name in (("Egyptian cat", "cat.bmp"), ("daisy", "sunflower.bmp")):
        (tmp_path / "pictures" / folder).mkdir(parents=True)
        shutil.copy(coral / name, tmp_path / "pictures" / folder)
    return [
        str(tmp_path / "out.json"),
        f"--model-path={coral / 'mobilenet_v1_0.25_128_quant.tflite'}",
        f"--dataset-root={tmp_path / 'pictures'}",
        f"--class-list={coral / 'imagenet_labels.txt'}",
        "--test-fraction=0.9",
        "--validation-fraction=0",
        "--measure-seconds=0",
        "--image-size",
        "128",
        "128",
    ]


@pytest.mark.parametrize(
    "options",
    [["--quantised-input=raw"], pytest.param(["--scale=128", "--mean=1"], marks=pytest.mark.slow)],
)
def test_a_quantised_mobilenet_sees_a_cat_and_a_daisy(
    two_pictures: list[str], tmp_path: Path, options: list[str]
) -> None:
    named = ["TFLiteModel", "none", "LiteRTRuntime", "ImageFolderDataset"]
    assert main(["inference_tester", *named, *two_pictures, *options]) == 0
    run = Run.read(tmp_path / "out.json")
    assert sorted(run.evaluation.arrays["predicted"].tolist()) == [286, 986]
    assert run.evaluation.class_names[286] == "Egyptian cat"
    np.testing.assert_array_equal(
        run.evaluation.arrays["predicted"], run.evaluation.arrays["truth"]
    )


def test_pixels_that_an_input_cannot_hold_are_answered_with_the_options_to_give(
    two_pictures: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inference_performance", "TFLiteModel", "ImageFolderDataset", *two_pictures]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "takes numbers from -1 to 0.992188 in 'input'" in last
    assert "give --scale, --mean, --deviation or --quantised-input raw" in last


@pytest.mark.slow  # of pipelines are tests/workflows/pipeline
def test_a_pipeline_file_says_the_same_as_options(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("jinja2", reason="Jinja2 is not installed")
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    pipeline = tmp_path / "mnist.yaml"
    pipeline.write_text(
        f"""
title: MNIST by somebody else
output: {tmp_path / "build"}
dataset: {{class: MNISTDataset, arguments: {{dataset_root: {shared_data / "mnist"}}}}}
model: {{class: ONNXModel, path: {shared_data / "models" / "mnist-8.onnx"}, arguments: {{scale: 255.0, layout: nchw}}}}
measure: {{measure_samples: 300, measure_seconds: 0}}
candidates: [{{title: itself}}, {{title: deployed, runtime: ONNXRuntime}}]
"""
    )
    assert main(["run", str(pipeline)]) == 0
    found = [
        Run.read(path)
        for path in sorted((tmp_path / "build").glob("0*.json"))
        if ".onnx" not in path.name
    ]
    assert len(found) == 2
    for run in found:
        assert (run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]).mean() > 0.97


@pytest.mark.slow
def test_a_data_set_that_does_not_fit_is_answered_with_both_shapes(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    path = shared_data / "models" / f"{CIFAR}.tflite"
    arguments = ["TFLiteModel", "MNISTDataset", str(tmp_path / "out.json"), f"--model-path={path}"]
    assert (
        main(["inference_performance", *arguments, f"--dataset-root={shared_data / 'mnist'}"]) == 2
    )
    last = capsys.readouterr().err.splitlines()[-1]
    assert str(path) in last
    assert "takes samples of (32, 32, 3), the data set gives (28, 28, 1)" in last


# -- looking into them
# --------------------------------------------------------------------------------


def kinds_of(model: Any) -> set[str]:
    return {operation.kind for operation in model.get_inference_graph().operations}


def test_a_published_onnx_file_can_be_looked_into(shared_data: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnx_ir", reason="onnx_ir is not installed")
    model = ONNXModel(model_path=shared_data / "models" / "mnist-8.onnx").open()
    graph = model.get_inference_graph()
    assert kinds_of(model) == {"Reshape", "Conv", "Add", "Relu", "MaxPool", "MatMul"}
    assert graph.tensors["Convolution28_Output_0"].shape == (1, 8, 28, 28)
    assert sum(
        array.size
        for array in model.get_weights(["Parameter5", "Parameter87", "Parameter193"]).values()
    ) == (8 * 25 + 16 * 8 * 25 + 2560)
    values = model.get_intermediates(Selector(operation="Relu"))
    assert {name: value.shape for name, value in values.items()} == {
        "ReLU32_Output_0": (1, 8, 28, 28),
        "ReLU114_Output_0": (1, 16, 14, 14),
    }
    assert all((value >= 0).all() for value in values.values())
    profile = model.profile_inference(2)
    assert profile.rewritten
    assert {timing.kind for timing in profile.timings} & kinds_of(model)


@pytest.mark.parametrize(
    "model",
    [
        f"{CIFAR}_quant.tflite",
        f"{CIFAR}.tflite",
        "tflm/trained_lstm.tflite",
        "coral/mobilenet_v1_0.25_128_quant.tflite",
    ],
)
def test_published_tensorflow_lite_files_can_be_looked_into(shared_data: Path, model: str) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    live = TFLiteModel(model_path=shared_data / "models" / model).open()
    graph = live.get_inference_graph()
    assert kinds_of(live) & {"CONV_2D", "UNIDIRECTIONAL_SEQUENCE_LSTM", "WHILE"}
    assert sum(array.size for array in live.get_weights().values()) > 9_000
    found = live.get_intermediates(Selector(tensor="*"))
    assert {
        tensor for operation in graph.operations for tensor in operation.outputs
    } == found.keys()
    for name, array in found.items():
        graph.tensors[name].check(array)
