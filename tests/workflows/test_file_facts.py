"""``nnpipe info`` looks into model files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.scenarios.info import main
from nnpipe.testing.model_files import write_onnx_network


def test_a_model_file_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("onnx", "onnx_ir", "onnxruntime"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    path = tmp_path / "my network.onnx"
    write_onnx_network(path)
    assert main([str(path)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{path}  (onnx, {path.stat().st_size:,} bytes)")
    assert "takes       " in told
    assert "operations  " in told
    assert "weights     " in told
    assert f"nnpipe inference_performance ONNXModel DATASET OUT.json --model-path '{path}'" in told


def test_quantisation_is_told(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    assert (
        main([str(shared_data / "models" / "mlperf_tiny_ic" / "pretrainedResnet_quant.tflite")])
        == 0
    )
    told = capsys.readouterr().out
    assert "input_1_int8  (?, 32, 32, 3) int8, quantised: number = 1 * (stored +128)" in told
    assert "operations  16: 9 CONV_2D" in told
    assert "77,360 int8" in told


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("weights.th", bytes.fromhex("80028a0a6cfc9c46"), "an old torch.save"),
        ("model.onnx", b"<html>", "the download went wrong"),
        ("absent.onnx", None, "no such model file"),
        ("library.so", b"\x7fELF", "no model wrapper here"),
    ],
)
def test_what_cannot_be_looked_into_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, cause: str
) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert cause in lines[0]


def test_a_folder_is_answered_with_how_to_convert_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01\x12")
    assert main([str(tmp_path)]) == 2
    assert "tf2onnx.convert --saved-model" in capsys.readouterr().err


def test_weights_beside_a_file_count_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.TensorProto(
        name="w", data_type=kind, dims=(1024, 8192), data_location=onnx.TensorProto.EXTERNAL
    )
    weights.external_data.add(key="location", value="weights.bin")
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(1 << 25)
    tensors = [
        helper.make_tensor_value_info(name, kind, [1, n]) for name, n in (("x", 1024), ("y", 8192))
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "wide", tensors[:1], tensors[1:], [weights]
    )
    path = tmp_path / "wide.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
        str(path),
    )

    def opened(*_: object) -> None:
        raise AssertionError("a large model was opened, which takes memory for all of its weights")

    monkeypatch.setattr("nnpipe.modelwrappers.files.onnx.ONNXModel.session", opened)
    assert main([str(path)]) == 0
    whole = (1 << 25) + path.stat().st_size
    assert f"bytes, {whole:,} with its weights)" in capsys.readouterr().out


def test_a_file_that_cannot_be_run_is_not_to_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    for needed in ("onnx_ir", "onnxruntime"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="acme")
    tensors = [helper.make_tensor_value_info(name, kind, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([node], "odd", tensors[:1], tensors[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "odd.onnx")
    assert main([str(tmp_path / "odd.onnx")]) == 0
    told = capsys.readouterr().out
    assert "takes       x" in told
    assert "it cannot be run here: " in told
    assert "Frobnicate" in told
    assert "measure it with" not in told
