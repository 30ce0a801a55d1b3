"""Sweeps with a budget choose what the full sweep would, measure less, and tell why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.datasets.arrays import write_arrays
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.testing.session import assert_one_line
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep.budget import SweepBudget
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.race import SuccessiveHalving
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import evaluate_points, explain_no_winner, rank_candidates
from nnpipe.workflows.sweep.sweep import read_sweep

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

SAMPLES = 400
# milliseconds by number of threads
TIMES = {1: 1.0, 2: 1.02, 3: 1.5, 4: 3.0, 5: 4.0, 6: 5.0, 7: 6.0, 8: 7.0}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sweep")
    labels = np.arange(5 * SAMPLES) % 4
    samples = (
        np.random.default_rng(0).normal(labels[:, None], 0.1, (len(labels), 6)).astype(np.float32)
    )
    return {
        "output": str(folder / "out"),
        "dataset": write_arrays(folder / "data", {"image": samples}, labels),
        "models": [
            {
                "title": "m",
                "class": "ONNXModel",
                "arguments": {
                    "model_path": str(write_onnx_classifier(folder / "m.onnx", samples, labels)),
                    "scale": 1,
                },
            }
        ],
        "runtimes": [{"class": "ONNXRuntime", "vary": {"num_threads": list(TIMES)}}],
        "as_trained": False,
        "objectives": ["latency_median", "size"],
        "choose": "latency_median",
        "budget": "40 %",
    }


def sweep_of(settings: Mapping[str, Any], **changes: Any) -> Sweep:
    found = read_sweep({**settings, **changes})
    return found.with_task(found.dataset.task)


def threads(point: Point) -> int:
    return int(getattr(point.runtime, "num_threads", 0))


class Bench:
    """Measurements with known times, without running anything; it counts them."""

    def __init__(
        self, times: Mapping[int, float], accuracy: Mapping[int, float] | None = None
    ) -> None:
        self.times, self.accuracy = times, accuracy or {}
        self.seen: list[tuple[int, float]] = []

    def measure(self, point: Point, verify: object = None) -> FinishedPoint:
        number, options = threads(point), point.measure
        if number not in self.times:
            return FinishedPoint(point, point.title, Outcome(None, "it does not load"), None)
        self.seen.append((number, options.measure_seconds))
        rng = np.random.default_rng((number, round(1e6 * options.measure_seconds)))
        count = options.measure_samples or SAMPLES
        calls = max(count, round(options.measure_seconds * 1e3 / self.times[number]))
        latency = np.rint(1e6 * self.times[number] * rng.gamma(2_000, 1 / 2_000, calls)).astype(
            np.int64
        )
        start = np.concatenate([[0], np.cumsum(latency)[:-1]])
        columns = {"start_ns": start, "latency_ns": latency, "samples": np.ones(calls, np.int64)}
        truth = np.arange(count) % 4
        right = np.arange(count) < self.accuracy.get(number, 1.0) * count
        predicted = np.where(right, truth, 4)
        found = Run(
            title=point.title,
            command=(),
            components={},
            frameworks={},
            host={},
            timing={"window_ns": int(latency.sum()), "load_ns": 10_000_000},
            series={"inference": Series(columns)},
            artifact={"size": 1000, "sha256": str(number)},
            evaluation=Evaluation(
                "classification", {"truth": truth, "predicted": predicted}, tuple("abcde")
            ),
        )
        return FinishedPoint(point, point.title, Outcome(found), None)


def test_the_choice_is_that_of_the_full_sweep_in_the_budget(settings: dict[str, Any]) -> None:
    sweep, bench = sweep_of(settings), Bench(TIMES)
    race = SuccessiveHalving(sweep, bench.measure)
    done = race.run()
    (best, *_) = rank_candidates(sweep, evaluate_points(sweep, done))
    assert threads(best.done.point) in (1, 2)
    assert race.spent.seconds <= 0.4 * race.spent.full_seconds
    assert {threads(each.point) for each in done if not each.stopped} == {1, 2}
    assert [each.point.title for each in done] == [point.title for point in sweep.points]
    stopped = next(each for each in done if threads(each.point) == 8)
    assert stopped.share == 0.05
    assert "worse than m · ONNXRuntime" in stopped.stopped
    assert len(set(bench.seen)) == len(bench.seen)  # nothing was measured twice


def test_the_same_measurements_lead_to_the_same_race(settings: dict[str, Any]) -> None:
    sweep = sweep_of(settings)
    first, again = Bench(TIMES), Bench(TIMES)
    told = [
        [(each.point.title, each.stopped) for each in SuccessiveHalving(sweep, b.measure).run()]
        for b in (first, again)
    ]
    assert told[0] == told[1]
    assert first.seen == again.seen


def test_what_cannot_meet_a_constraint_is_stopped_although_it_is_fastest(
    settings: dict[str, Any],
) -> None:
    sweep = sweep_of(settings, constraints=["accuracy >= 0.8"])
    done = SuccessiveHalving(sweep, Bench(TIMES, {1: 0.1, 2: 0.1}).measure).run()
    judged = evaluate_points(sweep, done)
    assert threads(rank_candidates(sweep, judged)[0].done.point) == 3
    fastest = next(each for each in done if threads(each.point) == 1)
    assert fastest.stopped.startswith("accuracy >= 0.8: fails")
    told = explain_no_winner(sweep, [each for each in judged if each.done.stopped], {})
    assert any("accuracy >= 0.8: fails" in line for line in told)


def test_a_budget_too_small_to_tell_says_so(settings: dict[str, Any]) -> None:
    alike = {number: 1.0 + number / 1e4 for number in TIMES}
    race = SuccessiveHalving(sweep_of(settings, budget="10 %"), Bench(alike).measure)
    done = race.run()
    whole = [each for each in done if not each.stopped]
    assert len(whole) == 1  # there is always something to choose
    assert "the budget ended before it was measured in full" in {each.stopped for each in done}


def test_what_fails_is_left_out(settings: dict[str, Any]) -> None:
    race = SuccessiveHalving(sweep_of(settings), Bench({3: 1.5, 4: 3.0}).measure)
    done = race.run()
    assert sum(each.outcome.run is not None for each in done) == race.spent.candidates == 2
    assert [threads(each.point) for each in done if each.outcome.run and not each.stopped] == [3]


def test_the_trained_model_in_larger_batches_is_only_measured_if_that_can_matter(
    settings: dict[str, Any],
) -> None:
    changes = {"as_trained": True, "batch_sizes": [1, 8], "constraints": ["agreement >= 0.5"]}
    slow = sweep_of(settings, **changes)
    done = {
        each.point.title: each
        for each in SuccessiveHalving(slow, Bench({**TIMES, 0: 3.0}).measure).run()
    }
    (skipped,) = (title for title, each in done.items() if each.outcome.run is None)
    assert skipped == "m · as trained · batch 8"
    assert done[skipped].outcome.reason.startswith(
        "not measured, as in batches of 1: worse than m · ONNXRuntime"
    )
    assert done["m · as trained"].share == 1.0
    fast = SuccessiveHalving(slow, Bench({**TIMES, 0: 0.5}).measure).run()
    assert all(each.outcome.run is not None for each in fast)


def test_without_a_candidate_to_choose_the_budget_is_not_spent_on_looks(
    settings: dict[str, Any],
) -> None:
    sweep, bench = sweep_of(settings, budget="11 %"), Bench(TIMES)
    race = SuccessiveHalving(sweep, bench.measure)
    race.run()
    assert race.spent.whole == 1
    assert [seconds for number, seconds in bench.seen if number == 1] == [
        pytest.approx(0.05),
        pytest.approx(1.0),
    ]


@pytest.mark.parametrize(
    ("given", "limit"), [("40 %", 38.0), (0.4, 38.0), ("90 s", 90.0), ("2min", 120.0)]
)
def test_budgets_are_shares_or_times(given: object, limit: float) -> None:
    assert SweepBudget.parse(given).limit(100.0) == pytest.approx(limit)


@pytest.mark.parametrize(
    "given", ["", "0 s", "5 %", "100 %", 1.0, 0.01, True, "3 days", "nan s", [], "9" * 400 + " s"]
)
def test_other_budgets_are_refused_in_one_line(given: object, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="budget") as caught:
        sweep_of(settings, budget=given)
    assert_one_line(caught.value)


@pytest.mark.slow
def test_a_sweep_with_a_budget_resumes_without_measuring_again(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    changed = {**settings, "output": str(tmp_path / "out"), "measure": {"measure_seconds": 0.2}}
    changed["runtimes"] = [{"class": "ONNXRuntime", "vary": {"num_threads": [1, 2]}}]
    first = nn.sweep({**changed, "batch_sizes": [1, 64]})
    results = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "results").iterdir()}
    again = nn.sweep({**changed, "batch_sizes": [1, 64]})
    assert results == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "results").iterdir()
    }
    assert first.chosen == again.chosen is not None
    assert first.spent is not None
    assert dataclasses.asdict(first.spent) == dataclasses.asdict(again.spent)  # type: ignore[arg-type]
    told = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert told["budget"]["candidates"] == 4
    assert {each["title"] for each in told["points"] if each.get("stopped")} == {
        each.point.title for each in first.done if each.stopped
    }
    assert str(first.spent) in str(first)
