from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import needs

sys.path.insert(0, str(Path(__file__).parents[1] / "protocols" / "target_c"))
from serving import CServer, write_model

from nnpipe.scenarios.build_server import main
from nnpipe.scenarios.inference_tester import main as measure


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, capsys: Any) -> None:
    source = write_model(tmp_path).path
    for words, text in (
        ([tmp_path / "server", source, "--cc", "no-such-gcc"], "apt install gcc-no-such"),
        ([tmp_path / "server", tmp_path / "nothing.c"], "nothing.c: no such model file"),
        ([tmp_path / "no" / "server", source], "no"),
        (
            [tmp_path / "server", "digits.tflite"],
            "nnpipe inference_tester TFLiteModel CCompiler CRuntime",
        ),
        ([tmp_path / "server", "digits.onnx"], "ONNXToTorch,TorchToTFLite,CCompiler CRuntime"),
    ):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert text in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_it_says_how_large_the_program_is(tmp_path: Path, capsys: Any) -> None:
    server = tmp_path / "server"
    assert main([str(server), str(write_model(tmp_path).path)]) == 0
    said = capsys.readouterr().out
    assert f"{server}: {server.stat().st_size:,} bytes" in said
    assert "with a model: any.c" in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_an_onnx_file_is_served_without_python(shared_data: Path, tmp_path: Path) -> None:
    needs("torch", "onnx", "tensorflow")
    words = [
        "ONNXModel",
        "ONNXToTorch,TorchToTFLite,CCompiler",
        "CRuntime",
        "MNISTDataset",
        "--scale",
        "255",
        "--model-path",
        str(shared_data / "models" / "mnist-8.onnx"),
        "--dataset-root",
        str(shared_data / "mnist"),
        "--measure-samples",
        "200",
    ]
    here, there, source, server = (
        tmp_path / name for name in ("here.json", "there.json", "digits.c", "server")
    )
    assert measure([*words, str(here), "--compiled-model-path", str(source)]) == 0
    assert main([str(server), str(source)]) == 0
    with CServer(server) as running:
        line = ["--protocol-cls", "NetworkProtocol", "--port", str(running.protocol.port)]
        assert measure([*words, str(there), *line]) == 0  # it knows the file that is compiled anew
        assert "ERROR" not in running.log
    found = [json.loads(path.read_text("utf-8")) for path in (here, there)]
    assert found[0]["evaluation"] == found[1]["evaluation"]
    assert [each["verification"]["verdict"] for each in found] == ["same", "same"]
