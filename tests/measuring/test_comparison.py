"""The result file of a comparison: whole, read as it was written, and suspicious of others."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.measuring.comparison import Comparison, compute_block_quantiles, read_result, with_turns
from nnpipe.measuring.interleaving import Block, Record, Turn
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run


def run(title):
    return Run(title, (), {}, {}, {}, {"batch_size": 2}, {})


def record(*times, starts=9, rounds=3, calls=4):
    turns = [
        Turn(start, round_, place, place, 1000 * (start * rounds + round_), block(time, calls))
        for start in range(starts)
        for round_ in range(rounds)
        for place, time in enumerate(times)
    ]
    return Record(turns)


def block(time, calls):
    return Block(np.arange(calls) * time, np.full(calls, time), idle_cpu_ns=30, idle_ns=1000)


@pytest.fixture
def comparison():
    found = record(100, 110, 130)
    runs = tuple(with_turns(run(title), found, place) for place, title in enumerate("ABC"))
    return Comparison(
        "three",
        ComparisonPlan(margin=0.01),
        runs,
        {"C": "crashed"},
        ("nnpipe", "compare"),
        "2026-01-01",
        12.5,
    )


def test_a_run_with_turns_has_all_calls_and_when_they_were(comparison):
    series = comparison.runs[1].series["inference"]
    assert len(series) == 9 * 3 * 4
    assert series["latency_ns"].tolist() == [110] * len(series)
    assert series["samples"].tolist() == [2] * len(series)
    assert series["start_ns"][:6].tolist() == [0, 110, 220, 330, 1000, 1110]
    assert series["start"][:13].tolist() == [0] * 12 + [1]
    assert series["round"][:9].tolist() == [0] * 4 + [1] * 4 + [2]
    assert set(series["place"].tolist()) == {1}
    assert comparison.runs[1].timing["idle_cpu_percent"] == 3.0


def test_a_candidate_that_never_ran_has_no_calls():
    assert len(with_turns(run("D"), record(100), 1).series["inference"]) == 0


def test_what_is_written_is_read(comparison, tmp_path):
    comparison.write(tmp_path / "c.json")
    found = Comparison.read(tmp_path / "c.json")
    assert found.plan == comparison.plan
    assert found.to_json() == comparison.to_json()
    assert isinstance(read_result(tmp_path / "c.json"), Comparison)


def test_verdicts_are_of_those_that_did_not_fail_and_stand_in_the_file(comparison):
    (found,) = comparison.compare_pairs()
    assert (found.first, found.second, found.ratio) == (0, 1, pytest.approx(1.1))
    assert found.interval is None  # with three candidates nine starts are too few
    (told,) = comparison.to_json()["verdicts"]
    assert (told["first"], told["second"], told["more_starts"]) == ("A", "B", 1)


def test_parts_of_calls_are_compared_by_themselves():
    def with_parts(turn):
        part = 2 * turn.block.latency_ns if turn.candidate else turn.block.latency_ns // 2
        unknown = np.where(np.arange(len(part)) == 0, -1, part)
        return replace(turn, block=replace(turn.block, parts_ns={"ttft": unknown, "tpot": part}))

    found = Record([with_parts(turn) for turn in record(100, 110, starts=12).turns])
    runs = tuple(with_turns(run(title), found, place) for place, title in enumerate("AB"))
    comparison = Comparison("two", ComparisonPlan(), runs)
    assert comparison.parts == ("tpot", "ttft")
    (whole,), (part,) = comparison.compare_pairs(), comparison.compare_pairs(part="ttft")
    assert whole.ratio == pytest.approx(1.1)
    assert part.ratio == pytest.approx(4.4)
    assert Comparison.from_json(comparison.to_json()).compare_pairs(part="tpot")[
        0
    ].ratio == pytest.approx(4.4)
    never = Record(
        [replace(t, block=replace(t.block, parts_ns={"ttft": np.full(4, -1)})) for t in found.turns]
    )
    silent = tuple(with_turns(run(title), never, place) for place, title in enumerate("AB"))
    assert Comparison("two", ComparisonPlan(), silent).compare_pairs(part="ttft") == []


def test_a_quantile_of_blocks_that_are_too_short_is_none(comparison):
    assert comparison.compare_pairs(0.9) == []
    assert compute_block_quantiles(comparison.runs[0], 0.9) == {}
    longer = with_turns(run("A"), record(100, calls=10), 0)
    assert compute_block_quantiles(longer, 0.9)[8] == dict.fromkeys(range(3), 100.0)


def test_candidates_are_found_by_title(comparison):
    assert comparison.run_of("B").title == "B"
    with pytest.raises(ConfigError, match="no candidate is called 'X'; there are A, B, C"):
        comparison.run_of("X")


def test_one_kind_of_file_is_not_taken_for_the_other(comparison, tmp_path):
    comparison.write(tmp_path / "c.json")
    run("A").write(tmp_path / "r.json")
    with pytest.raises(ArtifactError, match=r"c\.json: the result of a comparison, not of one run"):
        Run.read(tmp_path / "c.json")
    with pytest.raises(ArtifactError, match=r"r\.json: the result of one run, not of a comparison"):
        Comparison.read(tmp_path / "r.json")
    assert isinstance(read_result(tmp_path / "r.json"), Run)


def spoilt(comparison, **changes):
    return json.loads(json.dumps(comparison.to_json())) | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 7},
        {"kind": "poem"},
        {"plan": {"confidence": 3}},
        {"plan": {"no_such": 1}},
        {"plan": []},
        {"runs": {}},
        {"runs": [1]},
        {"runs": [[]] * 2000},
        {"failures": 3},
        {"seconds": "soon"},
        {"seconds": None},
    ],
)
def test_a_spoilt_file_is_told_in_one_line(comparison, changes, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(spoilt(comparison, **changes)))
    with pytest.raises(ArtifactError, match=r"^[^\n]*c\.json: [^\n]+$"):
        Comparison.read(path)


@pytest.mark.parametrize("missing", ["plan", "runs", "failures", "seconds", "title"])
def test_what_is_missing_is_named(comparison, missing, tmp_path):
    data = spoilt(comparison)
    del data[missing]
    (tmp_path / "c.json").write_text(json.dumps(data))
    with pytest.raises(ArtifactError, match=f"'{missing}' is missing"):
        Comparison.read(tmp_path / "c.json")


@pytest.mark.parametrize(("column", "value"), [("start", -1), ("round", 1 << 11)])
def test_numbers_of_turns_are_bounded(comparison, column, value):
    data = spoilt(comparison)
    from nnpipe.measuring.result_json import pack

    data["runs"][0]["series"]["inference"][column] = pack(np.full(108, value, np.int32))
    with pytest.raises(ArtifactError, match=f"a {column} that is no number of one"):
        Comparison.from_json(data)


def test_a_run_without_turns_is_no_part_of_a_comparison(comparison):
    data = spoilt(comparison)
    data["runs"][0] = run("A").to_json()
    with pytest.raises(ArtifactError, match="does not say when its turns were"):
        Comparison.from_json(data)


def test_failures_are_errors_that_can_be_told():
    found = Record(failures={0: NNPipeError("gone")})
    assert found.compute_medians(1) == [{}]
