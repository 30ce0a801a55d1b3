"""A model is exported once, for however many chains begin with that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError
from nnpipe.core.plan import Plan
from nnpipe.core.registry import find
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.candidates.model_process import ModelProcess

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")


@dataclass
class Chains:
    source: ModelProcess
    folder: Path

    def made(self, name: str, *compilers: ModelCompiler) -> Artifact:
        plan = Plan("onnx", ("onnx",) * len(compilers))
        return self.source.compile(plan, compilers, self.folder / name, 8, 60.0)


def exports(records: Sequence[logging.LogRecord]) -> int:
    return sum("exporting" in record.getMessage() for record in records)


@pytest.fixture
def chains(tmp_path: Path) -> Any:
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    model = write_onnx_classifier(tmp_path / "model.onnx", samples, labels)
    with ModelProcess(ONNXModel(model_path=model, scale=1.0), None, model) as source:
        yield Chains(source, tmp_path)


def test_one_export_serves_twelve_candidates(
    chains: Chains, caplog: pytest.LogCaptureFixture
) -> None:
    optimiser, half, dynamic = (
        find(n, ModelCompiler)
        for n in ("ONNXRuntimeOptimizer", "ONNXFloat16", "ONNXDynamicQuantizer")
    )
    lines = [
        (),
        (optimiser(),),
        (half(),),
        (optimiser(), half()),
        (optimiser(), dynamic()),
        (dynamic(),),
    ]
    with caplog.at_level("INFO", "nnpipe"):
        made = [
            chains.made(f"{n:02d}.onnx", *compilers) for n, compilers in enumerate([*lines, *lines])
        ]
    assert exports(caplog.records) == 1
    # each step once
    assert sum("compiling" in record.getMessage() for record in caplog.records) == 5
    assert [each.path.name for each in made] == [f"{n:02d}.onnx" for n in range(12)]
    assert len({each.exported.sha256 for each in made}) == 1
    # equal chains give equal files with names of their own
    for first, second in zip(made[:6], made[6:], strict=True):
        assert (first.sha256, first.producer) == (second.sha256, second.producer)
        assert Artifact.read(second.path).path == second.path
    assert not list(chains.folder.glob("*.step0.onnx"))  # the first candidate is the export itself


def test_a_step_that_is_refused_is_not_tried_again(
    chains: Chains, caplog: pytest.LogCaptureFixture
) -> None:
    static = find("ONNXStaticQuantizer", ModelCompiler)()
    with caplog.at_level("INFO", "nnpipe"):
        for name in ("one.onnx", "two.onnx"):
            with pytest.raises(ConfigError, match="needs calibration data"):
                chains.made(name, static)
    assert exports(caplog.records) == 1
    assert sum("compiling" in record.getMessage() for record in caplog.records) == 1


def test_what_is_gone_is_made_again(chains: Chains, caplog: pytest.LogCaptureFixture) -> None:
    optimiser = find("ONNXRuntimeOptimizer", ModelCompiler)()
    first = chains.made("one.onnx", optimiser)
    first.exported.path.unlink()
    with caplog.at_level("INFO", "nnpipe"):
        assert chains.made("two.onnx", optimiser).path.is_file()
    assert exports(caplog.records) == 1
