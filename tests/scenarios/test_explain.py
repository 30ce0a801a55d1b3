"""``nnpipe explain`` prints a table of layers, and refuses what it cannot explain in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installed import needs

from nnpipe.scenarios.explain import main


def test_the_sums_are_printed_and_all_is_written(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("onnx_ir", "onnxruntime")
    model = str(shared_data / "models" / "mnist-8.onnx")
    written = [str(tmp_path / "costs.json"), str(tmp_path / "costs.csv")]
    assert main([model, "--breakdown", "kind", "--json", written[0], "--csv", written[1]]) == 0
    told = capsys.readouterr().out
    assert "total: 786,560 MACs" in told
    assert "Convolution28" not in told
    assert json.loads(Path(written[0]).read_text("utf-8"))["totals"]["macs"] == 786_560
    assert main([model]) == 0
    told = capsys.readouterr().out
    assert "Convolution28" in told
    assert "627,200" in told


@pytest.mark.parametrize("shape", ["x", "x=", "=1,2", "x=1,-2", "x=1,,2", "x=0", "x=1,2.5"])
def test_a_shape_that_cannot_be_read_is_refused(
    shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["m.onnx", "--shape", shape]) == 2
    assert "expected INPUT=N,N" in capsys.readouterr().err


def test_a_missing_file_is_refused_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "m.onnx"), "--csv", str(tmp_path / "c.csv")]) == 2
    assert "m.onnx" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_mimic_never_replaces_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"mine")
    assert main([str(model), "--mimic", str(model)]) == 2
    assert "would replace" in capsys.readouterr().err
    assert model.read_bytes() == b"mine"


@pytest.mark.slow  # TensorFlow is imported
def test_a_keras_layer_that_free_axes_are_too_short_for_asks_for_shapes(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("keras", "tensorflow")
    path = shared_data / "keras_files" / "sequential_with_avgpool2d.h5"
    assert main([str(path)]) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "layer 'average_pooling2d' cannot take inputs of these shapes" in told
    assert "--shape" in told
