"""``nnpipe gate`` lets through what is as good, stops what is worse, and says when it cannot
tell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.comparison import Comparison, with_turns
from nnpipe.measuring.interleaving import Block, Record, Turn
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.scenarios.gate import main

HOST = {"cpu": {"model": "Abacus", "affinity": [0, 1]}, "system": {"machine": "brass"}}


def evaluation(right: int, samples: int = 1000) -> Evaluation:
    truth = np.zeros(samples, np.int64)
    predicted = np.where(np.arange(samples) < right, 0, 1)
    return Evaluation("classification", {"truth": truth, "predicted": predicted}, ("cat", "dog"))


def run(
    title: str = "model",
    median: float = 1e6,
    calls: int = 2000,
    right: int = 900,
    seed: int = 0,
    **changes: Any,
) -> Run:
    latency = (median * np.exp(np.random.default_rng(seed).normal(0, 0.05, calls))).astype(np.int64)
    columns = {
        "start_ns": np.cumsum(latency) - latency,
        "latency_ns": latency,
        "samples": np.ones(calls, np.int64),
    }
    given: dict[str, Any] = {
        "components": {"dataset": {"class": "Digits", "arguments": {}}},
        "host": HOST,
        "timing": {"batch_size": 1},
        "evaluation": evaluation(right),
        **changes,
    }
    return Run(title, (), frameworks={}, series={"inference": Series(columns)}, **given)


def comparison(tmp_path: Path, name: str, starts: int = 12, seed: int = 0, **times: float) -> str:
    """Candidates that took turns, with a luck of 0.3 % in each start and 0.5 % in each round."""
    random = np.random.default_rng(seed)
    turns = []
    for start in range(starts):
        luck = {title: np.exp(random.normal(0, 0.003)) for title in times}
        for round_ in range(10):
            for place, (title, time) in enumerate(times.items()):
                latency = (time * luck[title] * np.exp(random.normal(0, 0.005, 5))).astype(np.int64)
                block = Block(np.cumsum(latency) - latency, latency)
                turns.append(Turn(start, round_, place, place, len(turns) * 10_000_000, block))
    record = Record(turns)
    runs = tuple(with_turns(run(title), record, place) for place, title in enumerate(times))
    Comparison(name, ComparisonPlan(), runs, created=str(seed)).write(tmp_path / f"{name}.json")
    return str(tmp_path / f"{name}.json")


@pytest.fixture
def gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def pass_through(baseline: Run | str, new: Run | str, *argv: str) -> tuple[int, str, str]:
        paths = []
        for name, given in (("baseline", baseline), ("new", new)):
            if isinstance(given, Run):
                given.write(tmp_path / f"{name}.json")
            paths.append(str(tmp_path / f"{name}.json") if isinstance(given, Run) else given)
        status = main([*paths, *argv])
        told = capsys.readouterr()
        return status, told.out, told.err

    return pass_through


def test_what_is_as_good_passes(gate: Any) -> None:
    status, told, _ = gate(
        run(), run(seed=1), "--max-slowdown", "2%", "--max-accuracy-loss", "0.5%"
    )
    assert status == 0
    lines = told.splitlines()
    assert lines[0].startswith("pass: slowdown ")
    assert "at most 2 % allowed (2,000 and 2,000 calls, one start each" in lines[0]
    assert lines[1] == (
        "pass: accuracy loss 0.00 points [-0.20, 0.20], at most 0.5 points allowed (0 lost and 0 "
        "won of 1,000 samples)"
    )


def test_what_is_slower_or_less_accurate_fails(gate: Any) -> None:
    status, told, _ = gate(
        run(),
        run(median=1.05e6, right=850, seed=1),
        "--max-slowdown",
        "2%",
        "--max-accuracy-loss",
        "0.5%",
    )
    assert status == 1
    assert told.splitlines()[0].startswith("fail: slowdown 5.")
    assert told.splitlines()[1].startswith("fail: accuracy loss 5.00 points [")


def test_one_criterion_that_fails_is_enough(gate: Any) -> None:
    status, told, _ = gate(
        run(), run(right=850), "--max-slowdown", "2%", "--max-accuracy-loss", "0.5%"
    )
    assert status == 1
    assert [line.partition(":")[0] for line in told.splitlines()] == ["pass", "fail"]


@pytest.mark.parametrize(
    ("choice", "status"), [((), 1), (("--undecided", "fail"), 1), (("--undecided", "pass"), 0)]
)
def test_what_the_data_cannot_decide_says_what_would(
    gate: Any, choice: tuple[str, ...], status: int
) -> None:
    found, told, _ = gate(
        run(calls=60), run(calls=60, median=1.015e6, seed=1), "--max-slowdown", "2%", *choice
    )
    assert found == status
    assert told.startswith("undecided: slowdown ")
    assert (
        " more calls of each would decide; counts as " + (choice[1] if choice else "fail") in told
    )


def test_the_number_of_calls_that_would_decide_does(gate: Any) -> None:
    _, told, _ = gate(
        run(calls=300), run(calls=300, median=1.012e6, seed=1), "--max-slowdown", "2%"
    )
    assert told.startswith("undecided")
    more = int(told.partition("about ")[2].partition(" more")[0].replace(",", ""))
    calls = 300 + 2 * more
    status, told, _ = gate(
        run(calls=calls), run(calls=calls, median=1.012e6, seed=1), "--max-slowdown", "2%"
    )
    assert status == 0, told


def test_few_samples_cannot_exclude_a_loss(gate: Any) -> None:
    few = {"evaluation": evaluation(90, 100)}
    status, told, _ = gate(run(**few), run(seed=1, **few), "--max-accuracy-loss", "0.5%")
    assert status == 1
    assert told.startswith("undecided: accuracy loss 0.00 points")
    assert "more samples would decide" in told


def test_two_candidates_of_a_comparison_are_paired(gate: Any, tmp_path: Path) -> None:
    path = comparison(tmp_path, "c", old=1e6, new=1.001e6, bad=1.04e6)
    status, told, _ = gate(f"{path}#old", f"{path}#new", "--max-slowdown", "2%")
    assert (status, told.partition(":")[0]) == (0, "pass")
    assert "paired in 12 starts" in told
    assert gate(f"{path}#old", f"{path}#bad", "--max-slowdown", "2%")[0] == 1


def test_a_comparison_that_looked_often_has_the_wider_interval(gate: Any, tmp_path: Path) -> None:
    def width(argv: list[str], path: str) -> float:
        out = tmp_path / "gate.json"
        gate(f"{path}#old", f"{path}#new", "--max-slowdown", "2%", "--output", str(out), *argv)
        low, high = json.loads(out.read_text())["criteria"][0]["interval"]
        return float(high - low)

    path = comparison(tmp_path, "c", old=1e6, new=1.001e6)
    assert (
        width([], path)
        == width(["--confidence", "90%"], path)
        < width(["--confidence", "99.9%"], path)
    )


def test_candidates_of_two_comparisons_are_held_against_each_other_by_starts(
    gate: Any, tmp_path: Path
) -> None:
    one = comparison(tmp_path, "one", seed=1, model=1e6)
    two = comparison(tmp_path, "two", seed=2, model=1e6, bad=1.05e6)
    status, told, _ = gate(f"{one}#model", f"{two}#model", "--max-slowdown", "2%")
    assert (status, told.partition(":")[0]) == (0, "pass")
    assert "12 and 12 starts at different times" in told
    assert gate(f"{one}#model", f"{two}#bad", "--max-slowdown", "2%")[0] == 1
    few = comparison(tmp_path, "few", starts=3, seed=3, model=1e6)
    _, told, _ = gate(f"{one}#model", f"{few}#model", "--max-slowdown", "2%")
    assert "3 more starts of each would decide" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"host": {**HOST, "cpu": {"model": "Slide rule", "affinity": [0, 1]}}}, "CPU differ"),
        ({"timing": {"batch_size": 8}}, "batch size differ"),
        ({"components": {"dataset": {"class": "Letters", "arguments": {}}}}, "dataset differ"),
    ],
)
def test_only_like_is_compared_with_like(gate: Any, changes: dict[str, Any], told: str) -> None:
    status, found, _ = gate(run(), run(**changes), "--max-slowdown", "2%")
    assert status == 1
    assert found.startswith("undecided: slowdown cannot be told")
    assert told in found


def test_accuracies_on_other_samples_are_not_compared(gate: Any) -> None:
    other = Evaluation(
        "classification", {"truth": np.ones(1000, int), "predicted": np.ones(1000, int)}, ("a", "b")
    )
    status, told, _ = gate(run(), run(evaluation=other), "--max-accuracy-loss", "1%")
    assert status == 1
    assert told.startswith("undecided: accuracy loss cannot be told")
    assert "not judged on the same samples" in told


def test_a_doubtful_measurement_is_named(gate: Any) -> None:
    _, told, _ = gate(run(calls=20), run(calls=20), "--max-slowdown", "2%")
    assert "new.json is in doubt (too few)" in told


BOTH = ("--max-slowdown", "2%", "--max-accuracy-loss", "1%")
UNPREDICTED = Evaluation("classification", {"truth": np.zeros(5, np.int64)}, ("cat", "dog"))


@pytest.mark.parametrize(
    ("new", "argv", "told"),
    [
        (run(), (), "nothing to check"),
        ("gone.json", BOTH, "gone.json: no such result file"),
        (run(evaluation=None), BOTH, "holds no judged predictions"),
        (run(evaluation=UNPREDICTED), BOTH, "new.json: the evaluation has no array 'predicted'"),
        (run(calls=0), BOTH, "nothing was timed"),
        (run(median=0.0), BOTH, "took no time"),
        (run(), ("--max-slowdown", "0.02"), "expected a percentage such as 2%"),
        (run(), ("--max-slowdown", "2%", "--confidence", "20%"), "--confidence"),
        (run(), ("--max-slowdown", "5000%"), "is out of range"),
        (run(), ("--max-slowdown", "nan%"), "expected a percentage"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    gate: Any, new: Run | str, argv: tuple[str, ...], told: str
) -> None:
    status, _, error = gate(run(), new, *argv)
    assert status == 2
    assert told in error
    assert error.count("\n") == 1


def test_a_candidate_must_be_named_and_be_there(gate: Any, tmp_path: Path) -> None:
    path = comparison(tmp_path, "c", old=1e6, new=1e6)
    assert "name one, " in gate(path, f"{path}#new", *BOTH)[2]
    assert (
        "no candidate is called 'newer'; there are old, new"
        in gate(f"{path}#old", f"{path}#newer", *BOTH)[2]
    )
    run().write(tmp_path / "r.json")
    assert "is called 'model', not 'x'" in gate(f"{tmp_path}/r.json#x", f"{path}#new", *BOTH)[2]
    assert gate(f"{tmp_path}/r.json#model", f"{path}#new", "--max-accuracy-loss", "1%")[0] == 0
