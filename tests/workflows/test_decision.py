"""Every command chooses among measured candidates by one rule."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.comparison import Comparison, ComparisonPlan
from nnpipe.measuring.constraints import Figure, MetricConstraint, get_metric_quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.measuring.validity_warning import BARRING
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.decision import Claim, DecisionRule
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import evaluate_points, find_ties, rank_candidates

CONSTRAINTS = ("latency_p90 <= 1.1 ms", "size <= 2 kB", "accuracy >= 0.6", "accuracy_loss <= 0.1")
CHOICES = ("latency_median", "size", "accuracy", "throughput", "energy")
CLASSES = tuple("0123456789")


def draw_run(title: str, rng: np.random.Generator) -> Run:
    """Return a measurement; some predict one class only, which bars them, or lack a size."""
    samples = int(rng.integers(30, 80))
    latency = (1e6 * rng.uniform(0.5, 1.5) * rng.gamma(100, 0.01, 60)).astype(np.int64)
    truth = np.arange(samples) % 10
    right = rng.random(samples) < rng.uniform(0.5, 1)
    predicted = np.where(right, truth, (truth + 1) % 10)
    if rng.random() < 0.2:
        predicted = np.zeros(samples, np.int64)
    columns = {
        "start_ns": np.cumsum(latency),
        "latency_ns": latency,
        "samples": np.ones(60, np.int64),
    }
    return Run(
        title=title,
        command=(),
        components={},
        frameworks={},
        host={},
        timing={"load_ns": 5},
        series={"inference": Series(columns)},
        artifact={} if rng.random() < 0.1 else {"size": int(rng.integers(500, 4000))},
        evaluation=Evaluation("classification", {"truth": truth, "predicted": predicted}, CLASSES),
    )


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    for name in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    return Sweep.from_settings(
        {
            "dataset": "DigitsDataset",
            "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": "cnn.pt"}],
            "runtimes": [{"class": "ONNXRuntime", "vary": {"num_threads": [1, 2, 3]}}],
            "objectives": ["size"],
        }
    )


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 1000), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_comparison_and_a_sweep_choose_the_same_candidate(sweep: Sweep, seeds: range) -> None:
    chosen = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        wanted = tuple(rng.choice(CONSTRAINTS, rng.integers(0, 4), replace=False).tolist())
        one = dataclasses.replace(
            sweep,
            constraints=tuple(map(MetricConstraint.parse, wanted)),
            choose=get_metric_quantity(str(rng.choice(CHOICES))),
            confidence=float(rng.choice([0.8, 0.95])),
            trained_competes=True,
        )
        runs = {point: draw_run(point.title, rng) for point in one.points}
        points = [
            FinishedPoint(point, str(n), Outcome(run), None)
            for n, (point, run) in enumerate(runs.items())
        ]
        ranked = rank_candidates(one, evaluate_points(one, points))
        files = {run.title: Path("m.onnx") for run in runs.values()}
        reference = next(point.title for point in one.points if point.runtime is None)
        comparison = Comparison("c", ComparisonPlan(), tuple(runs.values()))
        result = ComparisonResult(comparison, files, reference)
        if ranked:
            best = result.best(*wanted, by=one.choose.name, confidence=one.confidence)
            assert best.title == ranked[0].title
            chosen += 1
        else:
            with pytest.raises(ConfigError, match="no candidate surely satisfies"):
                result.best(*wanted, by=one.choose.name, confidence=one.confidence)
    assert 0.2 < chosen / len(seeds) < 0.9  # both happen often enough to be a test


def test_candidates_of_other_devices_are_no_ties(sweep: Sweep) -> None:
    pi, jetson = Device("pi"), Device("jetson")
    choose = get_metric_quantity("latency_median")
    one = dataclasses.replace(sweep, choose=choose, accept_doubts=BARRING)
    places = [None, pi, pi, jetson]
    points = [
        dataclasses.replace(point, device=device)
        for point, device in zip(one.points, places, strict=True)
    ]
    alike = draw_run("alike", np.random.default_rng(2))
    done = [
        FinishedPoint(point, str(n), Outcome(dataclasses.replace(alike, title=point.title)), None)
        for n, point in enumerate(points)
    ]
    judged = evaluate_points(one, done)
    assert len(rank_candidates(one, judged)) == len(points)
    assert find_ties(one, judged[1], judged) == [points[2].title]


def test_an_unknown_figure_is_never_the_best() -> None:
    rule = DecisionRule((), get_metric_quantity("latency_median"))
    figures = {
        "unknown": Figure.unknown("not measured"),
        "no number": Figure(math.nan),
        "slow": Figure.exactly(2.0),
        "fast": Figure.exactly(1.0),
    }
    assert rule.sort_by_value(figures) == ["fast", "slow"]


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure.unknown("not measured"), "not known, not measured"),
        (Figure.exactly(500.0), "holds"),
        (Figure.exactly(5000.0), "fails"),
        (Figure(900.0, 500.0, 1500.0, 10), "cannot be told"),
    ],
)
def test_a_claim_says_what_is_known(figure: Figure, text: str) -> None:
    claim = Claim.check(MetricConstraint.parse("size <= 1 kB"), figure)
    assert claim.describe().startswith("size <= 1 kB: ")
    assert text in claim.describe()
