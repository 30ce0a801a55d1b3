"""The summary for programs holds what the report tells, in base units, and nothing that JSON
cannot.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from nnpipe.analysis.quality_intervals import compute_quality_estimate
from nnpipe.core.task import get_task
from nnpipe.measuring.quantities import find_quantity
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.sections.verdict import CandidateFailure
from nnpipe.report.writers.json_figures import build_json_summary

DOCS = Path(__file__).parents[3] / "docs" / "file-formats.md"


def summary(*runs, failures=()):
    return json.loads(
        json.dumps(build_json_summary(create_candidates(runs), "T", failures), allow_nan=False)
    )


def test_figures_are_those_of_the_run(make_run):
    run, other = make_run("one", calls=3000, size=1234), make_run("two", seed=2, wire=True)
    first, second = summary(run, other)["candidates"]
    latency = run.series["inference"]["latency_ns"]
    found = first["figures"]
    assert found["latency_median"]["value"] == pytest.approx(np.median(latency) / 1e9)
    assert found["latency_p90"]["value"] == pytest.approx(np.quantile(latency, 0.9) / 1e9)
    assert found["latency_mean"]["value"] == pytest.approx(latency.mean() / 1e9)
    assert found["throughput"]["value"] == pytest.approx(1e9 / latency.mean())
    assert found["size"] == {"value": 1234.0, "unit": "B", "count": None, "interval": None}
    for each in found.values():
        if each["interval"] is not None:
            assert each["interval"][0] <= each["value"] <= each["interval"][1]
            assert each["count"] > 0
    assert first["against_first"] is None
    difference = second["against_first"]["accuracy_difference"]
    truth, (mine, theirs) = (
        run.evaluation.arrays["truth"],
        (r.evaluation.arrays["predicted"] for r in (run, other)),
    )
    assert difference["value"] == pytest.approx(np.mean(theirs == truth) - np.mean(mine == truth))
    assert 0 <= first["front"]["share"] <= 1
    assert (
        second["figures"]["round_trip_median"]["value"]
        > second["figures"]["latency_median"]["value"]
    )


def test_every_metric_of_the_task_has_an_interval(make_run):
    run = make_run("one")
    found = summary(run)["candidates"][0]["figures"]
    for metric in get_task(run.evaluation.task).metrics:
        low, high = found[metric.name]["interval"]
        assert low < found[metric.name]["value"] <= high, metric.name
        estimate = compute_quality_estimate(metric, run.evaluation)
        assert (low, high) == (estimate.low, estimate.high), metric.name


def test_what_is_not_known_is_null_with_what_it_would_take(make_run):
    few = summary(make_run("few", calls=30))["candidates"][0]
    assert few["figures"]["latency_p99"]["value"] is None
    assert few["figures"]["latency_p99"]["calls_needed"] >= 299
    assert [doubt["kind"] for doubt in few["doubts"]] == ["too few"]
    bare = dataclasses.replace(
        make_run("bare"), series={}, evaluation=None, artifact={"sha256": 5}, timing={}
    )
    found = summary(bare, failures=[CandidateFailure(1, "lost", "it broke")])
    assert found["failed"] == [{"title": "lost", "reason": "it broke"}]
    (only,) = found["candidates"]
    assert all(each["value"] is None for each in only["figures"].values())
    assert (only["sha256"], only["front"], only["doubts"]) == (None, None, [])


def test_every_figure_is_documented(make_run):
    documented = set(re.findall(r"`([a-z0-9_.]+)`", DOCS.read_text("utf-8")))
    (found,) = summary(make_run("one", wire=True, gpu=True))["candidates"]
    assert set(found) - {"name"} <= documented
    assert all(find_quantity(name).meaning for name in found["figures"])
