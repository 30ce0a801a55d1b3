"""``nnpipe generate`` writes scripts, or tells all that is wrong and writes nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.scenarios.generate import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = """
script: small
framework: {framework}
networks:
  net:
    - {{class: Input, name: image, shape: [8, 8, 1]}}
    - {{class: Flatten}}
    - {{class: Dense, units: 10, name: digit}}
variables: {{model: network}}
tasks:
  - {{task: load_model, network: net, model: model}}
  - {{task: save, model: model, path: {path}}}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL.format(framework="keras", path="first"))
    return tmp_path


def test_a_script_is_written_under_its_own_name(here, capsys):
    assert main(["small.yaml"]) == 0
    assert capsys.readouterr().out == "wrote small.py; python small.py --help shows its options\n"
    assert ast.parse((here / "small.py").read_text())


def test_where_ruff_is_missing_a_hint_tells_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ruff.__main__", None)
    assert main(["small.yaml"]) == 0
    assert ast.parse((here / "small.py").read_text())
    (line,) = capsys.readouterr().err.splitlines()
    assert "ruff is not installed; pip install 'nnpipe[codegen]'" in line


def test_the_same_again_is_no_conflict_and_another_is(here, capsys):
    assert main(["small.yaml", "-o", "a.py"]) == 0
    assert main(["small.yaml", "-o", "a.py"]) == 0
    before = (here / "a.py").read_bytes()
    assert main(["small.yaml", "-o", "a.py", "--set", "tasks.1.path=second"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert (here / "a.py").read_bytes() == before
    assert main(["small.yaml", "-o", "a.py", "--set", "tasks.1.path=second", "--replace"]) == 0
    assert b"second" in (here / "a.py").read_bytes()


def test_weights_lie_beside_the_script(here, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    network = (
        "networks.net.2.kernel_initializer={class_name: Constant, config: {value: [1, 2, 3, 4, 5, "
        "6, 7, 8, 9, 10]}}"
    )
    assert (
        main(["small.yaml", "-o", "out/a.py", "--set", "framework=pytorch", "--set", network]) == 0
    )
    told = capsys.readouterr().out
    assert "out/small.net.safetensors" in told
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "a.py",
        "small.net.safetensors",
    ]


def test_every_problem_is_a_line_and_nothing_is_written(here, capsys):
    changes = [
        "framework=jax",
        "tasks.0.model=clas\u202es",
        "tasks.1.path=3",
        "networks.net.2.units=0",
        "variables={yield: data}",
    ]
    given = [word for change in changes for word in ("--set", change)]
    assert main(["small.yaml", "-o", "a.py", *given]) == 2
    *lines, last = capsys.readouterr().err.splitlines()
    assert len(lines) >= 6
    assert last == f"nnpipe generate: small.yaml: {len(lines)} problems; nothing was written"
    for code in ("framework", "undeclared-variable", "argument", "network", "name", "island"):
        assert any(line.endswith(f"[{code}]") for line in lines), code
    assert all(line.isprintable() for line in lines)
    assert sorted(path.name for path in here.iterdir()) == ["small.yaml"]


@pytest.mark.parametrize(
    "text",
    ["[1, 2]", "a: [", "", "script: 3", "tasks: {}", "networks: {a: {layers: {}}}", "tasks: [[]]"],
)
def test_a_file_that_is_no_description_is_told_in_lines(text, here, capsys):
    (here / "bad.yaml").write_text(text)
    assert main(["bad.yaml"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("nnpipe generate: bad.yaml")
    assert not list(here.glob("*.py"))


def test_a_file_of_another_kind_is_told_in_one_line(capsys):
    assert main([str(EXAMPLES / "experiment.yaml")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "describes no script" in told


@pytest.mark.parametrize("name", ["keras.py", "deep/torch.py", "json.py", "numpy.py", "nnpipe.py"])
def test_no_script_hides_a_module_that_it_needs(name, here, capsys):
    assert main(["small.yaml", "-o", name]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert main(["small.yaml", "--set", f"script={Path(name).stem}"]) == 2
    assert "[name]" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["script", "small.net.safetensors"])
def test_a_folder_where_a_file_is_to_be_written_is_told_in_one_line(place, here, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (here / place).mkdir()
    network = "networks.net.2.kernel_initializer=identity"
    changes = ["framework=pytorch", network, "networks.net.2.units=64"]
    given = [word for change in changes for word in ("--set", change)]
    assert main(["small.yaml", "-o", "script", *given]) == 2
    told = capsys.readouterr().err
    assert "is a folder" in told
    assert place in told
    assert sorted(path.name for path in here.iterdir() if path.is_file()) == ["small.yaml"]


def test_help_lists_the_tasks(capsys):
    with pytest.raises(SystemExit):
        main(["-h"])
    told = capsys.readouterr().out
    assert "apply_delta" in told
    assert "Train a network" in told


@pytest.mark.slow
def test_a_pipeline_becomes_a_script_that_uses_nnpipe(here, capsys):
    (here / "pipe.yaml").write_text(
        """
title: "two ways'; import os"
output: built
dataset: nnpipe.datasets.digits.DigitsDataset
model:
  class: nnpipe.modelwrappers.classification.small_cnn.PyTorchDigitsCNN
  path: built/model.safetensors
  training: {num_epochs: 1, batch_size: 64, logdir: built/logs/first}
measure: {measure_samples: 20, measure_seconds: 0.01}
candidates:
  - title: as trained
  - title: int8
    compilers: [{class: nnpipe.compilers.onnx_quantizer.ONNXStaticQuantizer}]
    runtime: {class: nnpipe.runtimes.onnxruntime.ONNXRuntime, arguments: {num_threads: 2}}
  - title: served
    runtime: nnpipe.runtimes.onnxruntime.ONNXRuntime
    export: onnx
    protocol: {class: nnpipe.protocols.network.NetworkProtocol, arguments: {port: 0}}
    serve: true
"""
    )
    for needed in ("torch", "onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    assert main(["pipe.yaml"]) == 0
    assert [line.split(":")[1] for line in capsys.readouterr().err.splitlines()] == [
        " verify",
        " served",
    ]
    text = (here / "pipe.py").read_text()
    assert "ONNXRuntime(fixed_batch=1, num_threads=2)" in text
    assert "num_epochs=1, batch_size=64" in text
    ran = subprocess.run(
        [sys.executable, "pipe.py", "--output", "made"],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    made = {path.name for path in (here / "made").iterdir()}
    assert made >= {"01-as-trained.json", "02-int8.json", "report.html", "model.safetensors"}
    assert any((here / "made" / "logs" / "first").iterdir())
    assert not (here / "built").exists()  # all that is made lies where the argument says


def test_what_a_pipeline_reads_stays_where_it_is(here, capsys):
    """A model that was trained before lies in the file's folder, wherever the script writes."""
    (here / "pipe.yaml").write_text(
        """
output: built
dataset: nnpipe.datasets.digits.DigitsDataset
model:
  class: nnpipe.modelwrappers.classification.small_cnn.PyTorchDigitsCNN
  path: built/model.safetensors
candidates:
  - title: as trained
"""
    )
    assert main(["pipe.yaml"]) == 0
    assert capsys.readouterr().err == ""  # nothing is compiled, so nothing would be compared
    text = (here / "pipe.py").read_text()
    assert 'model.load(Path("built/model.safetensors"))' in text
    assert "args.output / " in text


def test_a_pipeline_that_is_wrong_is_one_line(here, capsys):
    (here / "pipe.yaml").write_text("dataset: nnpipe.datasets.digits.DigitsDataset\ncandidates: []")
    assert main(["pipe.yaml"]) == 2
    assert capsys.readouterr().err.startswith("nnpipe generate: pipe.yaml: ")


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("generate*.yaml")), ids=lambda path: path.stem
)
def test_examples_are_in_order(file, here):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert main([str(file), "-o", "example.py"]) == 0
