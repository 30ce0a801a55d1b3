"""A measurement ends with its speed and quality on the terminal, as the result file has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nnpipe.measuring.quantities import find_quantity
from nnpipe.measuring.run import Run
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.quantity_text import format_quantity
from nnpipe.report.writers.json_figures import collect_figures
from nnpipe.scenarios import inference_performance, inference_tester


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        from nearest import write_model

        yield write_model(tmp_path_factory.mktemp("model") / "nearest.onnx")
        sys.modules.pop("nearest", None)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["performance", "tester"])
def test_a_measurement_ends_with_speed_and_quality(model, tmp_path, capsys, command):
    out = tmp_path / "out.json"
    rest = [str(out), "--model-path", str(model), "--scale", "16", "--measure-seconds", "0.2"]
    if command == "performance":
        assert inference_performance.main(["ONNXModel", "DigitsDataset", *rest]) == 0
    else:
        assert (
            inference_tester.main(["ONNXModel", "none", "ONNXRuntime", "DigitsDataset", *rest]) == 0
        )
    told = capsys.readouterr().out
    candidate = Candidate.from_run(Run.read(out))
    known = collect_figures(candidate)
    for name in ("latency_median", "latency_p90", "throughput", "accuracy", "memory"):
        line = next(
            line for line in told.splitlines() if line.startswith(find_quantity(name).title)
        )
        assert format_quantity(find_quantity(name), known[name].value) in line
    assert " to " in next(line for line in told.splitlines() if line.startswith("Accuracy"))
    assert any(line.startswith("Doubts") for line in told.splitlines())
    for doubt in candidate.doubts:
        assert f"doubt: {doubt.kind}: {doubt.reason}" in told


@pytest.mark.slow
def test_a_candidate_that_nobody_has_named_is_called_by_its_file(model, tmp_path):
    out = tmp_path / "out.json"
    words = [
        str(out),
        "--model-path",
        str(model),
        "--scale",
        "16",
        "--measure-samples",
        "20",
        "--measure-seconds",
        "0",
    ]
    assert inference_performance.main(["ONNXModel", "DigitsDataset", *words]) == 0
    assert Run.read(out).title == "nearest.onnx"


@pytest.mark.slow  # tests/workflows/measurement measures files
def test_a_file_may_stand_where_its_wrapper_does(model, tmp_path, capsys):
    words = ["--scale", "16", "--measure-samples", "20", "--measure-seconds", "0"]
    found = []
    for name, given in (("file", [str(model)]), ("class", ["ONNXModel"])):
        more = [] if name == "file" else ["--model-path", str(model)]
        out = tmp_path / f"{name}.json"
        assert (
            inference_tester.main(
                [*given, "none", "ONNXRuntime", "DigitsDataset", str(out), *words, *more]
            )
            == 0
        )
        found.append(Run.read(out).components["wrapper"])
        out = tmp_path / f"{name}-own.json"
        assert inference_performance.main([*given, "DigitsDataset", str(out), *words, *more]) == 0
        found.append(Run.read(out).components["wrapper"])
    assert found == [found[0]] * 4
    capsys.readouterr()
    twice = [
        str(model),
        "DigitsDataset",
        str(tmp_path / "no.json"),
        *words,
        "--model-path",
        str(model),
    ]
    assert inference_performance.main(twice) == 2
    assert "--model-path is for a class as WRAPPER" in capsys.readouterr().err
    assert (
        inference_performance.main(["PyTorchDigitsCNN", "DigitsDataset", str(tmp_path / "no.json")])
        == 2
    )
    assert (
        "--model-path is missing: the file with the weights of PyTorchDigitsCNN"
        in capsys.readouterr().err
    )
