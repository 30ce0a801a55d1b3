"""A dry run names every candidate, with its formats or with the cause why it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnpipe.compilers.onnx_optimizer import ONNXFloat16
from nnpipe.core.errors import ConfigError
from nnpipe.scenarios.run import main
from nnpipe.workflows.file_facts import describe_file
from nnpipe.workflows.pipeline.compile import dry_run

for needed in ("torch", "onnx", "onnxruntime", "ai_edge_litert"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

ONNX = {"title": "ONNX", "export": "onnx", "runtime": "ONNXRuntime"}
TRAINED = {"title": "trained", "class": "PyTorchDigitsCNN", "training": {"num_epochs": 1}}


def settings(
    folder: Path, *candidates: dict[str, Any], model: dict[str, Any] = TRAINED
) -> dict[str, Any]:
    return {
        "output": str(folder / "out"),
        "dataset": "DigitsDataset",
        "models": [model],
        "candidates": list(candidates),
    }


def test_all_candidates_are_told_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ONNXFloat16, "requires", ("package_of_nobody",))
    found = dry_run(
        settings(
            tmp_path,
            {"title": "no chain", "runtime": "LiteRTRuntime"},
            {"title": "slip", "runtime": "ONNXRuntim"},
            {**ONNX, "title": "half", "compilers": ["ONNXFloat16"]},
            {"title": "as trained"},
            {**ONNX, "title": "optimised", "compilers": ["ONNXRuntimeOptimizer"]},
        )
    )
    assert {each.title: each.formats for each in found.accepted} == {
        "trained: as trained": (),
        "trained: optimised": ("onnx", "onnx"),
    }
    no_chain, slip, half = found.refused
    assert (no_chain.title, slip.title, half.title) == (
        "trained: no chain",
        "trained: slip",
        "trained: half",
    )
    assert no_chain.cause.startswith("LiteRTRuntime takes tflite, but PyTorchDigitsCNN gives")
    assert "candidates.1.runtime: no Runtime is called 'ONNXRuntim'" in slip.cause
    assert "pip install" in half.cause
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_missing_are_told(tmp_path: Path) -> None:
    found = dry_run(
        settings(
            tmp_path, ONNX, model={"title": "m", "class": "PyTorchDigitsCNN", "path": "gone.pt"}
        )
    )
    (refused,) = found.refused
    assert refused.cause.startswith(
        "gone.pt: no such file; name the file of its weights as path, or say under training"
    )


def test_a_model_that_cannot_be_trained_is_told(tmp_path: Path) -> None:
    model = {"title": "m", "class": "ONNXModel", "path": "m.onnx", "training": {"num_epochs": 1}}
    (refused,) = dry_run(settings(tmp_path, {"title": "as it is"}, model=model)).refused
    assert refused.cause == "ONNXModel cannot be trained; leave out its training"


def test_a_slip_outside_the_candidates_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"models\.0\.training"):
        dry_run(settings(tmp_path, ONNX, model={**TRAINED, "training": {"epochs": 1}}))


@pytest.mark.parametrize(("runtime", "status"), [("ONNXRuntime", 0), ("LiteRTRuntime", 1)])
def test_the_exit_status_says_whether_all_would_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], runtime: str, status: int
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        f"output: {tmp_path}/out\ndataset: DigitsDataset\nmodel: {{class: PyTorchDigitsCNN, "
        f"training: {{}}}}\n"
        f"candidates:\n  - {{title: first}}\n  - {{title: second, runtime: {runtime}}}\n"
    )
    assert main([str(file), "--dry-run"]) == status
    assert f"2 candidates, {status} of them impossible" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_operators_that_the_compiler_of_a_file_refuses_are_told(tmp_path: Path) -> None:
    for needed in ("tensorflow", "keras"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Accumulated(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.cumprod(1)

    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Accumulated(), (torch.ones(2, 3),)), path)
    model = {"title": "m", "class": "TorchExportModel", "path": str(path)}
    lite = {"title": "lite", "compilers": ["TorchToTFLite"], "runtime": "LiteRTRuntime"}
    found = dry_run(settings(tmp_path, lite, {"title": "as it is"}, model=model))
    assert [each.title for each in found.accepted] == ["m: as it is"]
    assert [(each.title, each.cause) for each in found.refused] == [
        ("m: lite", "PyTorch's aten.cumprod.default cannot be translated to TensorFlow")
    ]
    assert "TorchToTFLite would refuse it: PyTorch's aten.cumprod.default" in describe_file(path)
