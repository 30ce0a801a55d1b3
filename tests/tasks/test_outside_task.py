"""A task that nnpipe has never heard of is known to comparisons, constraints, gates, result
files and reports.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.measuring.constraints import MetricConstraint, get_metric_quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.document import Section
from nnpipe.report.render import render
from nnpipe.report.task_section import TaskSection
from nnpipe.report.writers.html import to_html
from nnpipe.testing.task import TaskContract
from nnpipe.workflows.sweep.estimates import Figures, sample_metric
from nnpipe.workflows.verification.gate import gate


def _error(found: Evaluation) -> Floats:
    return np.abs(found.arrays["counted"] - found.arrays["count"]).astype(np.float64)


class Counting(Task):
    """How many things are in a picture."""

    name = "counting"
    arrays, truth = ("count", "counted"), ("count",)
    error: ClassVar[QualityMetric] = QualityMetric(
        "count_error",
        "Count error",
        "Count error",
        "mean distance from the true count",
        "ratio",
        True,
        values=_error,
    )

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean error."""
        return (self.error,)

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Round the predicted counts."""
        counted = predictions["count"]
        if counted.shape != truth["count"].shape:
            raise nn.SpecMismatch(f"counts must be of the shape {truth['count'].shape}")
        return Evaluation(
            self.name, {"count": truth["count"], "counted": np.rint(counted).astype(np.int64)}
        )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true counts."""
        return {"count": truth["count"].astype(np.float32)}


class TestCounting(TaskContract):
    @pytest.fixture
    def task(self) -> Counting:
        return Counting()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec("counting", (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        return {"count": np.arange(20)}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"count": truth["count"] + np.arange(20) % 3}


def run(title: str, off: float, latency_ns: int = 1_000_000) -> Run:
    """Return a measured run whose counts are off by ``off`` on average."""
    random = np.random.default_rng(7)
    count = np.arange(200) % 9
    counted = count + (random.random(200) < off)
    start = np.arange(400) * 2_000_000
    took = latency_ns + random.integers(0, 9_000, 400)
    calls = Series({"start_ns": start, "latency_ns": took, "samples": np.ones(400, np.int64)})
    evaluation = Evaluation("counting", {"count": count, "counted": counted})
    return Run(
        title, (), {}, {}, {}, {"batch_size": 1}, {"inference": calls}, evaluation, {"size": 1000}
    )


def test_it_survives_the_result_file(tmp_path: Path) -> None:
    run("one", 0.2).write(tmp_path / "one.json")
    again = Run.read(tmp_path / "one.json")
    assert again.summary()["count_error"]["value"] == Counting.error.compute(again.evaluation)  # type: ignore[arg-type]


def test_constraints_and_draws_know_its_metric() -> None:
    exact, worse = run("exact", 0.1), run("worse", 0.5)
    figures = [Figures(exact, exact), Figures(worse, exact)]
    bound = MetricConstraint.parse("count_error <= 0.3")
    assert [bound.evaluate(each.get_figure(bound.metric, 0.95)) for each in figures] == [
        True,
        False,
    ]
    lost = MetricConstraint.parse("loss(count_error) <= 0.1")
    assert [lost.evaluate(each.get_figure(lost.metric, 0.95)) for each in figures] == [True, False]
    draws = sample_metric(figures, get_metric_quantity("loss(count_error)"), 500, 0)
    assert not draws[:, 0].any()
    assert draws[:, 1].mean() == pytest.approx(
        figures[1].get_figure(lost.metric, 0.95).value, abs=0.02
    )  # type: ignore[arg-type]


def test_the_gate_compares_it() -> None:
    found = gate(run("old", 0.1), run("new", 0.5), max_loss={"count_error": 0.05})
    assert not found.passed
    assert "count error loss 0.365 [" in str(found)
    assert "73 lost and 0 won" in str(found)
    assert gate(run("old", 0.1), run("new", 0.1), max_loss={"count_error": 0.05}).passed
    with pytest.raises(nn.ConfigError, match="has no metric 'accuracy'; there are: count_error"):
        gate(run("old", 0.1), run("new", 0.1), max_accuracy_loss=0.01)


def test_reports_show_its_metric_and_its_own_section() -> None:
    runs = [run("exact", 0.1, 2_000_000), run("quick", 0.5)]
    text = to_html(render(runs, "Counts"))
    assert "Δ count error" in text
    assert "Best count error" not in text
    assert "Least count error" in text

    class CountingSection(TaskSection):
        """Says who counted."""

        task = "counting"

        def build_section(self, candidates):  # type: ignore[no-untyped-def]
            return Section(f"{len(candidates)} counted", ())

    assert "2 counted" in to_html(render(runs, "Counts", ["counting"]))
