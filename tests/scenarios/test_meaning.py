"""Commands know what files of ours want, say where nothing is known, and judge nothing by guess."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.run import Run
from nnpipe.scenarios import compare, gate, inference_performance, info, verify

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model for digits as we export it, quantised, and the same file as a stranger would have
    it.
    """
    from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN

    folder, dataset, wrapper = tmp_path_factory.mktemp("ours"), DigitsDataset(), PyTorchDigitsCNN()
    model = wrapper.open()
    model.train(dataset, TrainingOptions(num_epochs=3))
    exported = model.export(folder / "local.onnx", "onnx")
    ONNXStaticQuantizer().compile(
        exported, folder / "int8.onnx", lambda: map(wrapper.preprocess, dataset.calibration(32))
    )
    shutil.copy(folder / "local.onnx", folder / "foreign.onnx")
    return {name: folder / f"{name}.onnx" for name in ("local", "int8", "foreign")}


def compared(files: tuple[Path, Path], output: Path, *options: str) -> Comparison:
    argv = [
        *map(str, files),
        "--dataset",
        "DigitsDataset",
        "--max-seconds",
        "0.1",
        "--output",
        str(output),
    ]
    assert compare.main([*argv, *options]) == 0
    return Comparison.read(output)


def accuracy(run: Run) -> float:
    assert run.evaluation is not None
    return float(np.mean(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]))


@pytest.mark.slow
def test_two_files_of_ours_are_compared_rightly_with_no_options(
    ours: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared((ours["local"], ours["int8"]), tmp_path / "c.json")
    assert all(accuracy(run) > 0.93 for run in found.runs)
    assert [run.preparation["source"] for run in found.runs] == ["description"] * 2
    told = capsys.readouterr().out
    assert "(?)" not in told
    assert "in doubt" not in told
    sides = [f"{tmp_path / 'c.json'}#{name}.onnx" for name in ("local", "int8")]
    assert gate.main([*sides, "--max-accuracy-loss", "5%"]) == 0
    assert "not known" not in capsys.readouterr().out


@pytest.mark.slow
def test_of_a_foreign_file_it_is_said_that_nothing_is_known_and_its_accuracy_is_not_judged(
    ours: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = compared((ours["local"], ours["foreign"]), tmp_path / "c.json")
    assert found.runs[1].preparation["source"] == "unknown"
    told = capsys.readouterr().out
    assert "% (?)" in told
    assert (
        "the quality of foreign.onnx is in doubt (preprocessing): preprocessing not known" in told
    )
    assert "preprocessing not known" in caplog.text
    sides = [f"{tmp_path / 'c.json'}#{name}.onnx" for name in ("foreign", "local")]
    assert gate.main([*sides, "--max-accuracy-loss", "1%"]) == 1
    told = capsys.readouterr().out
    assert "undecided: accuracy loss cannot be told" in told
    assert "preprocessing not known of" in told
    assert gate.main([*sides, "--max-accuracy-loss", "1%", "--judge-unknown"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("pass: accuracy loss")
    assert "is in doubt (preprocessing)" in told


@pytest.mark.slow
def test_what_options_override_is_recorded_and_told(
    ours: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "o.json"
    argv = [
        "ONNXModel",
        "DigitsDataset",
        str(out),
        "--model-path",
        str(ours["local"]),
        "--measure-seconds",
        "0",
    ]
    assert inference_performance.main([*argv, "--scale", "255"]) == 0
    said = json.loads(out.read_text())["preparation"]
    assert said["overridden"] == {"scale": [16.0, 255.0]}
    assert said["meaning"]["inputs"][0]["scale"] == 255
    assert "other than the model's description says (scale: 255.0 instead of 16.0)" in caplog.text


@pytest.mark.slow  # the graph of a MobileNet is looked at; the test above has the doubt, too
@pytest.mark.parametrize(("said", "doubted"), [([], True), (["--brightest-pixel", "16"], False)])
def test_weights_that_another_preprocessing_was_trained_with_leave_a_doubt(
    said: list[str], doubted: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from nnpipe.modelwrappers.classification.mobilenet import PyTorchMobileNetV2

    small: dict[str, Any] = {"input_size": (32, 32), "num_classes": 10, "width": 0.1}
    PyTorchMobileNetV2(**small, brightest_pixel=16).open().save(tmp_path / "w.safetensors")
    argv = [
        "PyTorchMobileNetV2",
        "DigitsDataset",
        str(tmp_path / "o.json"),
        "--width",
        "0.1",
        "--measure-samples",
        "5",
    ]
    argv += [
        "--input-size",
        "32",
        "32",
        "--measure-seconds",
        "0",
        "--model-path",
        str(tmp_path / "w.safetensors"),
    ]
    assert inference_performance.main([*argv, *said]) == 0
    assert (
        "other than the model's description says (scale: 127.5 instead of 8.0)" in caplog.text
    ) == doubted
    assert ("other than" in caplog.text) == doubted


def test_images_of_another_size_are_never_resized_in_silence(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_data / "models" / "mnist-8.onnx"
    argv = ["ONNXModel", "DigitsDataset", str(tmp_path / "o.json"), "--model-path", str(path)]
    assert inference_performance.main(argv) == 2
    assert (
        "takes images of 28 x 28, the data set gives 8 x 8: --resize 28 28"
        in capsys.readouterr().err
    )


def test_pixels_scaled_for_a_model_that_wants_them_as_they_are_leave_a_doubt(
    shared_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    path, out = (
        shared_data / "models" / "mlperf_tiny_ic" / "pretrainedResnet.tflite",
        tmp_path / "o.json",
    )
    data = (
        "--dataset-root",
        str(shared_data / "cifar10"),
        "--measure-seconds",
        "0",
        "--measure-samples",
        "100",
    )
    argv = ["TFLiteModel", "CIFAR10Dataset", str(out), "--model-path", str(path), *data]
    assert inference_performance.main([*argv, "--scale", "255"]) == 0
    assert "% right is no better than chance" in caplog.text
    assert "of the predictions are one class" in caplog.text
    caplog.clear()
    assert inference_performance.main([*argv, "--scale", "1"]) == 0
    assert accuracy(Run.read(out)) > 0.8
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
def test_verifying_asks_for_no_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("Flatten", ["image"], ["pixels"])
    graph = helper.make_graph(
        [node],
        "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 64])],
    )
    path = str(tmp_path / "m.onnx")
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path
    )
    assert verify.main([path, path, "--dataset", "DigitsDataset", "--samples", "3"]) == 0
    assert "verdict: same" in capsys.readouterr().out


def test_a_file_tells_what_it_wants_and_means(
    ours: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert info.main([str(ours["int8"])]) == 0
    told = capsys.readouterr().out
    assert "wants       image: divided by 16, from samples of 0 to 16" in told
    assert "means       scores: probabilities" in told
    assert f"(as {get_sidecar_path(ours['int8'])} says)" in told
    assert info.main([str(ours["foreign"])]) == 0
    assert "preprocessing not known: say it with --scale" in capsys.readouterr().out
