"""A gate from Python judges results in memory as it judges files, and as the command does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.measuring.comparison import with_turns
from nnpipe.measuring.interleaving import Block, Record, Turn
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.series import Series
from nnpipe.scenarios.gate import main


def run(
    title: str = "model", median: float = 1e6, calls: int = 2000, right: int = 900, seed: int = 0
) -> nn.Run:
    latency = (median * np.exp(np.random.default_rng(seed).normal(0, 0.05, calls))).astype(np.int64)
    columns = {
        "start_ns": np.cumsum(latency) - latency,
        "latency_ns": latency,
        "samples": np.ones(calls, np.int64),
    }
    truth = np.zeros(1000, np.int64)
    arrays = {"truth": truth, "predicted": np.where(np.arange(1000) < right, 0, 1)}
    return nn.Run(
        title,
        (),
        components={"dataset": {"class": "Digits", "arguments": {}}},
        frameworks={},
        host={"cpu": {"model": "Abacus"}},
        timing={"batch_size": 1},
        series={"inference": Series(columns)},
        evaluation=nn.Evaluation("classification", arrays, ("cat", "dog")),
    )


def comparison(**times: float) -> nn.Comparison:
    random = np.random.default_rng(0)
    turns = []
    for start in range(12):
        for place, time in enumerate(times.values()):
            latency = (time * np.exp(random.normal(0, 0.005, 20))).astype(np.int64)
            block = Block(np.cumsum(latency) - latency, latency)
            turns.append(Turn(start, 0, place, place, len(turns) * 10_000_000, block))
    runs = tuple(with_turns(run(title), Record(turns), place) for place, title in enumerate(times))
    return nn.Comparison("c", ComparisonPlan(), runs, created="today")


LIMITS: dict[str, Any] = {"max_slowdown": 0.02, "max_accuracy_loss": 0.005}


@pytest.mark.parametrize(
    ("new", "passed"), [(run(seed=1), True), (run(median=1.05e6, right=850), False)]
)
def test_runs_files_and_the_command_agree(
    new: nn.Run, passed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = nn.gate(run("old"), new, **LIMITS)
    assert found.passed is passed
    old_path, new_path, written = (
        tmp_path / name for name in ("old.json", "new.json", "gate.json")
    )
    run("old").write(old_path)
    new.write(new_path)
    assert nn.gate(old_path, new_path, **LIMITS).criteria == found.criteria
    argv = ["--max-slowdown", "2%", "--max-accuracy-loss", "0.5%", "--output", str(written)]
    assert main([str(old_path), str(new_path), *argv]) == (0 if passed else 1)
    assert json.loads(written.read_text()) == found.to_json()
    told = capsys.readouterr().out
    found.show()
    assert capsys.readouterr().out == told


def test_candidates_of_a_comparison_are_paired() -> None:
    whole = comparison(old=1e6, new=1.001e6, bad=1.04e6)
    found = nn.gate((whole, "old"), (whole, "new"), max_slowdown=0.02)
    assert "paired in 12 starts" in found.criteria[0].basis
    assert found.passed
    assert not nn.gate((whole, "old"), (whole, "bad"), max_slowdown=0.02).passed
    with pytest.raises(nn.ConfigError, match="no candidate is called 'worse'"):
        nn.gate((whole, "old"), (whole, "worse"), max_slowdown=0.02)


@pytest.mark.parametrize("undecided", ["pass", "fail"])
def test_what_cannot_be_decided_counts_as_it_is_told(undecided: Any) -> None:
    found = nn.gate(
        run(calls=60), run(calls=60, median=1.015e6, seed=1), max_slowdown=0.02, undecided=undecided
    )
    assert found.criteria[0].status == "undecided"
    assert found.passed is (undecided == "pass")
    assert f"counts as {undecided}" in str(found)


def test_what_is_in_doubt_is_told() -> None:
    found = nn.gate(run(calls=20), run(calls=20), max_slowdown=0.02)
    assert any("too few" in doubt for doubt in found.doubts)
    assert str(found).count("\nmind: ") == len(found.doubts)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "nothing to check"),
        ({"max_slowdown": 20}, "gate: max_slowdown takes a number from -0.99 to 10, not 20"),
        ({"max_slowdown": float("nan")}, "gate: max_slowdown takes a number from"),
        ({"max_accuracy_loss": -1.0}, "gate: max_accuracy_loss takes a number from"),
        (
            {"max_slowdown": 0.1, "confidence": 95},
            "gate: confidence takes a number from 0.5 to 0.9999, not 95",
        ),
        ({"max_slowdown": "2%"}, "gate: max_slowdown takes a number or None, not '2%'"),
        (
            {"max_slowdown": 0.1, "undecided": "skip"},
            "gate: undecided takes 'pass' or 'fail', not 'skip'",
        ),
        ({"max_slowdown": 0.1, "new": 3}, "gate: new takes "),
        ({"max_slowdown": 0.1, "baseline": "gone.json"}, "gone.json: no such result file"),
    ],
)
def test_bad_values_are_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(nn.NNPipeError) as error:
        nn.gate(**{"baseline": run(), "new": run(), **given})
    assert str(error.value).startswith(told)
    assert len(str(error.value).splitlines()) == 1


def test_a_constraint_is_kept_or_not_by_the_new_result_itself() -> None:
    board = {"flash_bytes": 32816, "ram_bytes": 16648}
    new = replace(run("new"), timing={**run("new").timing, "session": {"board": board}})
    found = nn.gate(
        run("old"), new, constraints=["flash <= 32 KiB", "ram <= 64 KiB", "energy <= 1 J"]
    )
    assert [criterion.status for criterion in found.criteria] == ["fail", "pass", "undecided"]
    assert (
        str(found.criteria[0]).replace("\xa0", " ")
        == "fail: flash is 32.8 kB, flash <= 32 KiB is wanted (exact)"
    )
    assert "name a meter" in str(found.criteria[2])
    with pytest.raises(nn.ConfigError, match="unknown metric 'flush'"):
        nn.gate(run("old"), new, constraints=["flush <= 1 KiB"])
