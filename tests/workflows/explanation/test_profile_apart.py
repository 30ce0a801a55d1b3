"""The layers of candidates are timed apart from their calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs

import nnpipe as nn
from nnpipe.core.errors import NotSupported
from nnpipe.core.session import InferenceSession
from nnpipe.datasets.arrays import write_arrays
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.candidates import measure
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.explanation import profile_apart

LABELS = np.arange(40) % 4
SAMPLES = np.random.default_rng(0).normal(LABELS[:, None], 0.1, (40, 6)).astype(np.float32)


@pytest.fixture
def candidate(tmp_path: Path) -> CandidateSpec:
    needs("onnx", "onnxruntime")
    model = write_onnx_classifier(tmp_path / "model.onnx", SAMPLES, LABELS)
    data = write_arrays(tmp_path / "data", {"image": SAMPLES}, LABELS)
    wrapper = ONNXModel(model_path=model, scale=1)
    return CandidateSpec("it", wrapper, model, runtime=ONNXRuntime(), dataset=data)


def test_the_timed_process_never_records_its_layers(
    candidate: CandidateSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotSupported("recorded while it is timed")

    options = MeasureOptions(profile=True, measure_seconds=0.0)
    request = {"candidate": candidate.to_json(), "command": [], "load": LoadOptions().to_json()}
    with monkeypatch.context() as patch:
        patch.setattr(InferenceSession, "profile", refuse)
        run = measure.measure_here({**request, "options": options.to_json()})
    assert not run.profile
    told = profile_apart.profile_here({"candidate": candidate.to_json(), "batch_size": 5})
    found = LayerProfile.from_json(told["profile"])
    assert told["shapes"] == {"image": (5, 6)}
    assert sum(each.macs or 0 for each in found.times.layers) == 5 * 6 * 4
    assert len(found.live_bytes) > 0


@pytest.mark.slow
def test_each_process_ends_before_the_next_one_begins(
    candidate: CandidateSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watched(module: object) -> None:
        class Watched(module.Worker):  # type: ignore[name-defined,misc]
            def __init__(self, function: str, **options: bool) -> None:
                super().__init__(function, **options)
                self.called = function.rpartition(":")[2]

            def __enter__(self):  # type: ignore[no-untyped-def]
                seen.append(f"begin {self.called}")
                return super().__enter__()

            def close(self) -> None:
                seen.append(f"end {self.called}")
                super().close()

        monkeypatch.setattr(module, "Worker", Watched)

    for module in (measure, profile_apart, profile_apart):
        watched(module)
    assert candidate.dataset is not None
    run = measure.measure_apart(
        candidate,
        candidate.dataset,
        MeasureOptions(profile=True, measure_seconds=0.0),
        (),
        tmp_path / "result.json",
    )
    functions = ["carry_out", "profile_here", "measure_here"]
    assert seen == [f"{word} {function}" for function in functions for word in ("begin", "end")]
    assert nn.Run.read(tmp_path / "result.json").profile == run.profile
    assert LayerProfile.from_json(run.profile).memory is not None
