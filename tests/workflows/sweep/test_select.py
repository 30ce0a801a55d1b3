"""Choosing among candidates: what it costs, and that draws are the same however they are made."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.analysis import quality_intervals
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.generation import (
    LOG_LIKELIHOOD,
    PROMPT_TOKENS,
    REFERENCE_TOKENS,
    REQUEST_NS,
    TOKEN_NS,
    TOKENS,
)
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.comparison import Comparison, ComparisonPlan
from nnpipe.measuring.constraints import MetricConstraint, get_metric_quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.pareto_front import compute_pareto_standings
from nnpipe.tasks.generation.task import Generation
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep import estimates
from nnpipe.workflows.sweep.confirm import remeasure_winner
from nnpipe.workflows.sweep.estimates import Figures, sample_metric
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import evaluate_points, explain_no_winner, rank_candidates
from nnpipe.workflows.sweep.summary import build_certificate, format_candidate_table


def run(title: str, seed: int, samples: int = 60) -> Run:
    rng = np.random.default_rng(seed)
    latency = (1e6 * rng.gamma(100, 0.01, 200)).astype(np.int64)
    truth = np.arange(samples) % 10
    predicted = np.where(rng.random(samples) < 0.9, truth, (truth + 1) % 10)
    columns = {
        "start_ns": np.cumsum(latency),
        "latency_ns": latency,
        "samples": np.ones(200, np.int64),
    }
    return Run(
        title=title,
        command=(),
        components={},
        frameworks={},
        host={},
        timing={"load_ns": 5},
        series={"inference": Series(columns)},
        artifact={"size": 1000 + seed},
        evaluation=Evaluation(
            "classification", {"truth": truth, "predicted": predicted}, tuple("0123456789")
        ),
    )


def test_each_run_is_looked_through_once_however_many_metrics_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    done = [
        FinishedPoint(p, str(i), Outcome(run(p.title, i)), None) for i, p in enumerate(sweep.points)
    ]
    looked: list[Any] = []
    plain = Candidate.from_run

    def counting(found: Run) -> Candidate:
        looked.append(found)
        return plain(found)

    monkeypatch.setattr(estimates.Candidate, "from_run", counting)
    assert len(evaluate_points(sweep, done)) == 4
    assert looked == [each.outcome.run for each in done]


@pytest.mark.parametrize("metric", ["accuracy", "agreement", "accuracy_loss"])
def test_shares_are_drawn_from_the_same_samples_whatever_their_number_at_a_time(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = run("as trained", 7)
    candidates = [Figures(run(str(seed), seed), reference) for seed in range(4)]
    at_once = sample_metric(candidates, get_metric_quantity(metric), 50, seed=3)
    monkeypatch.setattr(quality_intervals, "_AT_ONCE", 1)
    np.testing.assert_array_equal(
        sample_metric(candidates, get_metric_quantity(metric), 50, seed=3), at_once
    )
    rng = np.random.default_rng((3, 60))
    picked = rng.integers(0, 60, 60)
    right = [each.run.evaluation.arrays["predicted"] == np.arange(60) % 10 for each in candidates]  # type: ignore[union-attr]
    if metric == "accuracy":
        assert at_once[0].tolist() == pytest.approx([each[picked].mean() for each in right])


def test_candidates_are_judged_by_their_energy_and_without_a_sensor_not_at_all() -> None:
    def measured(title: str, joules: float) -> Run:
        blocks = {
            "duration_ns": np.full(20, 10**8),
            "calls": np.full(20, 10),
            "joules": np.full(20, 10 * joules),
        }
        plain = run(title, 1)
        series = {**plain.series, "energy": Series(blocks)}
        return dataclasses.replace(
            plain, series=series, timing={**plain.timing, "energy": {"source": "RAPL"}}
        )

    without = dataclasses.replace(run("none", 2), timing={"energy": {"reason": "no sensor"}})
    limit = MetricConstraint.parse("energy <= 5 mJ")
    found = [
        Figures(each, None).get_figure(limit.metric, 0.9)
        for each in (measured("a", 0.004), measured("b", 0.006), without)
    ]
    assert [limit.evaluate(each) for each in found] == [True, False, None]
    assert found[2].reason == "no sensor"
    assert "energy_meter" in Figures(run("not asked", 3), None).get_figure(limit.metric, 0.9).reason
    draws = sample_metric(
        [Figures(measured("a", 0.004), None), Figures(without, None)], limit.metric, 5, seed=1
    )
    assert np.isnan(draws[:, 1]).all()
    assert draws[:, 0] == pytest.approx(0.004)


def constant(title: str, seed: int) -> Run:
    plain = run(title, seed, 400)
    arrays = {"truth": plain.evaluation.arrays["truth"], "predicted": np.zeros(400, int)}  # type: ignore[union-attr]
    return dataclasses.replace(
        plain, evaluation=Evaluation("classification", arrays, tuple("0123456789"))
    )


@pytest.mark.parametrize("accepted", [[], ["chance", "constant"]])
def test_what_predicts_nothing_is_not_chosen_unless_told(accepted: list[str]) -> None:
    for name in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    sweep = Sweep.from_settings(
        {
            "dataset": "DigitsDataset",
            "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": "cnn.pt"}],
            "runtimes": [{"class": "ONNXRuntime", "vary": {"num_threads": [1, 2]}}],
            "as_trained": False,
            "constraints": ["latency_p90 <= 5 ms"],
            "objectives": ["latency_median"],
            "accept_doubts": accepted,
        }
    )
    first, second = sweep.points
    done = [
        FinishedPoint(first, "0", Outcome(constant(first.title, 0)), None),
        FinishedPoint(second, "1", Outcome(run(second.title, 1, 400)), None),
    ]
    judged = evaluate_points(sweep, done)
    assert [one.title for one in rank_candidates(sweep, judged)] == [second.title, first.title][
        : 1 + bool(accepted)
    ] or accepted
    assert judged[0].qualifies == bool(accepted)
    reasons = explain_no_winner(sweep, judged, {second.title: "x"})
    assert ("accept_doubts: [chance, constant] would let it be chosen" in reasons[0]) == (
        not accepted
    )
    assert "barred: chance, constant" in format_candidate_table(sweep, judged) or accepted


def test_samples_that_were_quantised_twice_bar_a_candidate_of_a_sweep_as_of_a_comparison() -> None:
    sweep = Sweep.from_settings(
        {
            "dataset": "DigitsDataset",
            "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": "cnn.pt"}],
            "runtimes": [{"class": "PyTorchRuntime"}],
            "as_trained": False,
            "objectives": ["latency_median"],
        }
    )
    (point,) = sweep.points
    arrived = {"x": {"sample_dtype": "int8", "taken_dtype": "int8"}}
    preparation = {
        "source": "description",
        "by": "",
        "meaning": {},
        "overridden": {},
        "arrived": arrived,
    }
    doubtful = dataclasses.replace(run(point.title, 0), preparation=preparation)
    (judged,) = evaluate_points(sweep, [FinishedPoint(point, "0", Outcome(doubtful), None)])
    assert [doubt.kind for doubt in judged.barred] == ["quantised twice"]
    comparison = Comparison("c", ComparisonPlan(), (doubtful,))
    with pytest.raises(ConfigError, match="quantised"):
        ComparisonResult(comparison, {point.title: Path("m.pt")}, point.title).best()


@pytest.mark.parametrize("accepted", [[], ["different"]])
def test_what_is_not_its_source_is_not_chosen_unless_told(
    accepted: list[str], tmp_path: Path
) -> None:
    for name in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    weights = tmp_path / "cnn.pt"
    weights.write_bytes(b"weights")
    sweep = Sweep.from_settings(
        {
            "dataset": "DigitsDataset",
            "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": str(weights)}],
            "runtimes": [{"class": "ONNXRuntime"}],
            "objectives": ["latency_median"],
            "accept_doubts": accepted,
            "output": str(tmp_path / "sweep"),
        }
    )
    trained, compiled = sweep.points
    verdict = {"verdict": "different", "reason": "the mean relative error is 0.3"}
    different = dataclasses.replace(run(compiled.title, 1, 400), verification=verdict)
    done = [
        FinishedPoint(
            trained,
            "0",
            Outcome(dataclasses.replace(run(trained.title, 0, 400), artifact={"size": 7})),
            None,
        ),
        FinishedPoint(compiled, "1", Outcome(different), None),
    ]
    judged = evaluate_points(sweep, done)
    assert [one.qualifies for one in judged] == [True, bool(accepted)]
    assert [one.on_front for one in judged] == [True, bool(accepted)] or accepted

    def again(each: FinishedPoint) -> Outcome:
        return Outcome(run(each.point.title, 2, 400))

    found = [remeasure_winner(sweep, [each], (), again=again) for each in judged]
    told = build_certificate(sweep, judged[0], found[0], (), np.arange(4))
    assert told["artifact"]["sha256"] == hashlib.sha256(b"weights").hexdigest()
    # The second measurement is not held against the source, and says of the same file what the
    # first one said.
    assert ("different" in {doubt.kind for doubt in found[1].doubts}) == bool(accepted)
    assert (found[1].chosen is None) == (not accepted)


def test_only_doubts_that_bar_can_be_accepted() -> None:
    settings = {
        "dataset": "DigitsDataset",
        "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": "cnn.pt"}],
        "runtimes": [{"class": "PyTorchRuntime"}],
        "accept_doubts": ["loaded"],
    }
    with pytest.raises(
        ConfigError, match=r"accept_doubts.0: 'loaded' keeps no candidate .*: .*chance, constant"
    ):
        Sweep.from_settings(settings)


def test_objectives_that_nobody_names_follow_from_the_task_of_the_data() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    settings = {
        "dataset": "SyntheticRegressionDataset",
        "models": [{"title": "m", "class": "ONNXModel", "path": "m.onnx"}],
        "runtimes": ["ONNXRuntime"],
    }
    planned = Sweep.from_settings(settings)
    of_numbers = planned.with_task(planned.dataset.task)
    assert [each.name for each in of_numbers.objectives] == ["latency_median", "mae", "size"]
    assert of_numbers.choose.name == "latency_median"
    lost = Sweep.from_settings({**settings, "constraints": ["loss(accuracy) <= 1 %"]})
    with pytest.raises(
        ConfigError, match=r"regression, has no metric 'accuracy'; there are: mae, rmse, r2$"
    ):
        lost.with_task(lost.dataset.task)


def generated(title: str, tokens: int, fast: float) -> Run:
    """A language model whose answers have so many tokens."""
    plain, samples = run(title, 1), 6
    latency = (1e6 * fast * np.ones(200)).astype(np.int64)
    columns = {
        "start_ns": np.cumsum(latency),
        "latency_ns": latency,
        "samples": np.ones(200, np.int64),
    }
    each, once = np.full((samples, tokens), 1000), np.ones(samples, np.int64)
    predictions = {
        "text": np.array(["x"] * samples, object),
        TOKENS: each,
        TOKEN_NS: each,
        REQUEST_NS: each.sum(axis=1),
        PROMPT_TOKENS: once,
        REFERENCE_TOKENS: once,
        LOG_LIKELIHOOD: -1.0 * once,
    }
    truth = {"sample": np.arange(samples), "answer": np.array([""] * samples, object)}
    evaluation = Generation().evaluate(predictions, truth, DatasetSpec(Generation.name, (), ()))
    return dataclasses.replace(plain, series={"inference": Series(columns)}, evaluation=evaluation)


def test_of_models_whose_answers_have_other_lengths_none_is_chosen_by_the_time_of_a_call() -> None:
    runs = (generated("eight", 8, 1.0), generated("all 32", 32, 3.2))
    result = ComparisonResult(
        Comparison("c", ComparisonPlan(), runs),
        {each.title: Path("m.onnx") for each in runs},
        "eight",
    )
    for by in ("latency_median", "throughput"):
        with pytest.raises(
            ConfigError, match=r"8\.0 and 32\.0 tokens on average; compare the times of tokens"
        ):
            result.best(by=by)
    assert result.best(by="size").title in ("eight", "all 32")
    assert result.best(by="output_throughput").title in ("eight", "all 32")
    assert compute_pareto_standings([Candidate.from_run(each) for each in runs]) == {}
