"""Choosing among candidates: what it costs, and that draws are the same however they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.evaluation import Evaluation
from nnpipe.measure.constraints import metric_of
from nnpipe.measure.run import Run, Series
from nnpipe.report.candidate import Candidate
from nnpipe.scenarios import _figures
from nnpipe.scenarios._choosing import judge
from nnpipe.scenarios._figures import Figures, drawn
from nnpipe.scenarios._ledger import Outcome
from nnpipe.scenarios._sweepfile import Sweep
from nnpipe.scenarios._sweeping import Done


def run(title: str, seed: int, samples: int = 60) -> Run:
    rng = np.random.default_rng(seed)
    latency = (1e6 * rng.gamma(100, 0.01, 200)).astype(np.int64)
    truth = np.arange(samples) % 10
    predicted = np.where(rng.random(samples) < 0.9, truth, (truth + 1) % 10)
    columns = {"start_ns": np.cumsum(latency), "latency_ns": latency, "samples": np.ones(200, np.int64)}
    return Run(
        title=title, command=(), components={}, frameworks={}, host={}, timing={"load_ns": 5},
        series={"inference": Series(columns)}, artifact={"size": 1000 + seed},
        evaluation=Evaluation("classification", {"truth": truth, "predicted": predicted}, tuple("0123456789")),
    )  # fmt: skip


def test_each_run_is_looked_through_once_however_many_metrics_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    sweep = Sweep.from_settings(
        {
            "dataset": "DigitsDataset",
            "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": "cnn.pt"}],
            "runtimes": [{"class": "ONNXRuntime", "vary": {"num_threads": [1, 2, 3]}}],
            "constraints": ["latency_p90 <= 5 ms", "accuracy_loss <= 0.5", "size <= 1 MB"],
            "objectives": ["latency_median", "accuracy", "size", "throughput"],
        }
    )
    done = [Done(p, str(i), Outcome(run(p.title, i)), None) for i, p in enumerate(sweep.points)]
    looked: list[Any] = []
    plain = Candidate.of

    def counting(found: Run) -> Candidate:
        looked.append(found)
        return plain(found)

    monkeypatch.setattr(_figures.Candidate, "of", counting)
    assert len(judge(sweep, done)) == 4
    assert looked == [each.outcome.run for each in done]


@pytest.mark.parametrize("metric", ["accuracy", "agreement", "accuracy_loss"])
def test_shares_are_drawn_from_the_same_samples_whatever_their_number_at_a_time(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = run("as trained", 7)
    candidates = [Figures(run(str(seed), seed), reference) for seed in range(4)]
    at_once = drawn(candidates, metric_of(metric), 50, seed=3)
    monkeypatch.setattr(_figures, "_AT_ONCE", 1)
    np.testing.assert_array_equal(drawn(candidates, metric_of(metric), 50, seed=3), at_once)
    rng = np.random.default_rng((3, 60))
    picked = rng.integers(0, 60, 60)
    right = [each.run.evaluation.arrays["predicted"] == np.arange(60) % 10 for each in candidates]  # type: ignore[union-attr]
    if metric == "accuracy":
        assert at_once[0].tolist() == pytest.approx([each[picked].mean() for each in right])
