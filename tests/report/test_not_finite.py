"""What is NaN or infinite is told on the first screen of every document, for every task, and
nothing breaks.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from nnpipe.analysis.quality_intervals import compute_quality_difference, compute_quality_estimate
from nnpipe.core.dataset import Dataset
from nnpipe.core.evaluation import NOT_FINITE
from nnpipe.core.registry import components
from nnpipe.core.task import list_installed_tasks
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.render import render
from nnpipe.report.sections.summary import build_headline_table
from nnpipe.report.writers.html import to_html
from nnpipe.report.writers.json_figures import build_json_summary
from nnpipe.workflows.verification.gate import gate


def synthetic(task):
    """Return the synthetic data of a task."""
    for cls in components(Dataset):
        if cls.__name__.startswith("Synthetic") and cls().spec.task == task:
            return cls(num_samples=200)
    raise LookupError(f"the task {task!r} has no synthetic data set")


@pytest.fixture(
    scope="module", params=[task.name for task in list_installed_tasks(of_plugins=False)]
)
def task_runs(request, make_run):
    """Runs of a perfect model, of one that gives NaN for every third sample, and of one that
    gives only NaN.
    """
    dataset = synthetic(request.param)
    dataset.prepare()
    samples = dataset.split("test")
    _, truth = dataset.read(samples)
    perfect = dataset.task.perfect(truth, dataset.spec)
    runs = []
    for lost in (
        np.zeros(len(samples), bool),
        np.arange(len(samples)) % 3 == 0,
        np.ones(len(samples), bool),
    ):
        judged = dataset.task.finalize(
            dataset.judge_predictions({**perfect, NOT_FINITE: lost}, truth)
        )
        run = make_run(
            f"{request.param} {len(runs)}", seed=len(runs), median_ns=1e6 / (len(runs) + 1)
        )
        runs.append(dataclasses.replace(run, evaluation=judged))
    return runs


def test_the_first_screen_tells_and_counts_them(task_runs):
    whole, part, none = task_runs
    page = to_html(render(task_runs, "Three"))
    count = -(-len(part.evaluation) // 3)
    words = f"the outputs for {count:,} of {len(part.evaluation):,} samples are NaN or infinite"
    assert words in page
    assert words in page[: page.index("<svg")] if "<svg" in page else page
    for run in (part, none):
        assert "not finite" in str(build_headline_table(Candidate.from_run(run)).rows)
        assert run.summary()["not_finite_samples"] == int(run.evaluation.not_finite.sum())
    assert "not_finite_samples" not in whole.summary()
    json.dumps(
        build_json_summary(
            [Candidate.from_run(run, number) for number, run in enumerate(task_runs)], "T", []
        ),
        allow_nan=False,
    )
    json.dumps([run.to_json() for run in task_runs], allow_nan=False)
    for run in task_runs:
        to_html(render([run], "One"))


def test_no_gate_passes_them(task_runs):
    whole, part, none = task_runs
    metric = Candidate.from_run(whole).quality.metric
    if metric.kind == "time":
        pytest.skip("its first metric is a time, which is finite")
    limits = {"max_loss": {metric.name: 1e9 if metric.kind != "share" else 10.0}}
    assert gate(whole, whole, **limits).passed
    for one, other in ((whole, part), (part, whole), (whole, none), (none, none), (part, part)):
        found = gate(one, other, undecided="pass", **limits)
        assert not found.passed
        assert [criterion.status for criterion in found.criteria] == ["undecided"]
        assert "are NaN or infinite" in str(found).splitlines()[0]
        json.dumps(found.to_json(), allow_nan=False)
    sign, bound = ("<=", 1e9) if metric.less_is_better else (">=", 0)
    constraints = [f"{metric.name} {sign} {bound if metric.kind != 'share' else 0}"]
    assert gate(whole, whole, constraints=constraints, undecided="pass").passed
    assert not gate(whole, part, constraints=constraints, undecided="pass").passed


def test_no_interval_holds_them(task_runs):
    whole, part, none = (run.evaluation for run in task_runs)
    for metric in Candidate.from_run(task_runs[0]).quality.task.metrics:
        for found in (
            compute_quality_estimate(metric, part),
            compute_quality_estimate(metric, none),
            compute_quality_difference(metric, whole, part),
            compute_quality_difference(metric, part, whole),
            compute_quality_difference(metric, none, none),
        ):
            assert (found.low, found.high) == (-np.inf, np.inf), metric.name
