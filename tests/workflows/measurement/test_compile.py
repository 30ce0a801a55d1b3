"""Compiling a model in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import CompileError, ConfigError, NNPipeError
from nnpipe.core.progress import silent
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.measurement.compile import compile
from nnpipe.workflows.recipes import Recipe

pytest.importorskip("onnxruntime")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    labels = np.arange(40) % 4
    return write_onnx_classifier(
        tmp_path / "m.onnx", np.random.default_rng(0).normal(labels[:, None], 0.1), labels
    )


def test_a_compiled_model_is_described_and_runs(model: Path, tmp_path: Path) -> None:
    made = compile(model, "onnx-float16", tmp_path / "half.onnx")
    assert made.producer["class"].endswith("ONNXFloat16")
    with ONNXRuntime().load(made) as session:
        found = session.infer({"image": np.full((1, 1), 2.1, np.float32)})
    assert next(iter(found.values())).argmax() == 2


def test_a_result_that_its_runtime_refuses_is_no_result(model: Path, tmp_path: Path) -> None:
    way = Recipe("broken", (find("toys.Breaker", ModelCompiler)(),), ONNXRuntime())
    with pytest.raises(
        CompileError, match=r"Breaker made a model .*m\.onnx that ONNXRuntime refuses: .*Surprise"
    ) as error:
        compile(model, way, tmp_path / "out" / "broken.onnx")
    assert len(str(error.value).splitlines()) == 1
    assert not list((tmp_path / "out").glob("broken.onnx*"))


def test_a_runtime_that_crashes_on_the_result_is_told_as_a_compiler_is(
    model: Path, tmp_path: Path
) -> None:
    way = Recipe(
        "crashing", (find("toys.Swapper", ModelCompiler)(),), find("toys.Crasher", Runtime)()
    )
    with pytest.raises(
        NNPipeError, match=r"loading .*swapped\.onnx with Crasher crashed its process \(SIGSEGV\)"
    ):
        compile(model, way, tmp_path / "out" / "swapped.onnx")
    assert not list((tmp_path / "out").glob("swapped.onnx*"))


def test_what_cannot_be_loaded_here_is_compiled_and_told(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = find("toys.Breaker", ModelCompiler)()
    made = compile(
        model, Recipe("x", (broken,), find("toys.Runner", Runtime)()), tmp_path / "absent.onnx"
    )
    assert made.path.is_file()
    assert "absent.onnx: not loaded, because Runner cannot run here: " in caplog.text
    abroad = find("toys.Abroad", ModelCompiler)()
    assert compile(
        model, Recipe("y", (abroad,), ONNXRuntime()), tmp_path / "abroad.onnx"
    ).path.is_file()
    assert (
        "abroad.onnx: not loaded, because it is for edgetpu and not for this machine" in caplog.text
    )


@pytest.mark.slow
def test_a_module_is_traced_with_the_samples_that_quantisers_observe(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(6, 3)
    samples = np.zeros((8, 6), np.float32), np.arange(8) % 3
    made = compile(network, "onnx", tmp_path / "m.onnx", calibration=samples, progress=silent)
    assert made.io.inputs[0].shape[1:] == (6,)
    with pytest.raises(ConfigError, match=r"an nn\.Module is traced with samples"):
        compile(network, "onnx", tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"way": "as it is"}, "'as it is' compiles nothing"),
        (
            {"way": "onnx-int8"},
            "ONNXStaticQuantizer observes samples while it quantises: give calibration",
        ),
        ({"way": Recipe("x", (), ONNXRuntime(), export="tflite")}, "x: "),
        ({"to": None}, "compile: to takes a text or a path, not None"),
        ({"batch_size": 1.5}, "batch_size takes a whole number, not 1.5"),
        ({"model": "nowhere.onnx"}, "nowhere.onnx"),
    ],
)
def test_what_cannot_be_is_one_line(
    wrong: dict[str, Any], said: str, model: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "model": model,
        "way": "onnx-float16",
        "to": tmp_path / "out" / "o.onnx",
        **wrong,
    }
    with pytest.raises(NNPipeError, match=said) as error:
        compile(given.pop("model"), given.pop("way"), given.pop("to"), **given)
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_no_output_need_be_named_to_judge(model: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    network = onnx.load_model(str(model))
    (only,) = network.graph.output
    network.graph.node.append(onnx.helper.make_node("Softmax", [only.name], ["shares"]))
    network.graph.output.append(onnx.helper.make_tensor_value_info("shares", 1, [None, 4]))
    onnx.save_model(network, str(model))
    samples = (np.zeros((30, 1), np.float32), np.zeros(30, np.int64))
    made = compile(model, "onnx-int8", tmp_path / "int8.onnx", calibration=samples, progress=silent)
    assert [spec.name for spec in made.io.outputs] == [only.name, "shares"]
