"""A comparison in words: nothing is claimed that its interval does not bear."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

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
from nnpipe.measuring.comparison import Comparison, with_turns
from nnpipe.measuring.interleaving import Block, Record, Turn
from nnpipe.measuring.paired_comparison import ComparisonPlan, Verdict
from nnpipe.measuring.run import Run
from nnpipe.report.document import Tiles
from nnpipe.report.render import render
from nnpipe.report.sections.comparison import (
    build_comparison_table,
    compute_quality_gaps,
    describe_comparison,
    describe_quality_gap,
    describe_time_verdict,
    find_leader,
)
from nnpipe.report.writers.tables import to_text
from nnpipe.tasks.generation.task import Generation

NAMES = ("A", "B", "C")


def verdict(
    kind="faster", ratio=1.031, interval=(1.0273, 1.0349), starts=12, more=0, first=0, second=1
):
    return Verdict(first, second, kind, ratio, interval, starts, more)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (verdict(), "A is faster than B: B takes 3.1 % [2.7, 3.5] longer."),
        (
            verdict(ratio=1.031, interval=(1.0302, 1.0316)),
            "A is faster than B: B takes 3.10 % [3.02, 3.16] longer.",
        ),
        (
            verdict(ratio=2.3456, interval=(2.3, 2.4), first=1, second=2),
            "B is faster than C: C takes 2.346 times [2.300, 2.400] as long.",
        ),
        (
            verdict("same", 1.001, (0.996, 1.004)),
            "A and B are the same within 1.0 %: B takes 0.1 % [−0.4, 0.4] longer.",
        ),
        (
            verdict("undecided", 1.001, (0.99, 1.008), more=40),
            "A and B cannot be told apart: B takes 0.1 % [−1.0, 0.8] longer, 1.0 % at most; "
            "about 40 more starts (2.0 min) would be needed.",
        ),
        (
            verdict("undecided", 1.0, (0.99, 1.008), more=None),
            "A and B cannot be told apart: B takes 0.0 % [−1.0, 0.8] longer, 1.0 % at most; "
            "no number of starts that anybody would make tells such a difference.",
        ),
        (
            verdict("undecided", 1.2, None, starts=7, more=1),
            "A and B cannot be told apart: 7 starts support no interval; 1 more start (3.0 s) "
            "would be needed.",
        ),
    ],
)
def test_a_verdict_is_one_sentence(found, told):
    assert describe_time_verdict(found, NAMES, ComparisonPlan(margin=0.01), 3.0) == told


def test_the_fastest_is_ahead_in_most_pairs():
    found = [verdict(first=2, second=0), verdict(first=2, second=1), verdict(first=0, second=1)]
    assert find_leader(found) == 2


def run(title, right, samples=400, **timing):
    truth = np.zeros(samples, int)
    predicted = np.where(np.arange(samples) < right, 0, 1)
    evaluation = Evaluation("classification", {"truth": truth, "predicted": predicted}, ("x", "y"))
    return Run(title, (), {}, {}, {}, {"batch_size": 1, **timing}, {}, evaluation=evaluation)


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        (390, 390, "A and B are right and wrong on the same of 400 samples."),
        (390, 350, "A has a better accuracy than B, by 10.00 [6.98, 12.92] points on 400 samples"),
        (350, 390, "B has a better accuracy than A, by 10.00 [6.98, 12.92] points on 400 samples"),
        (390, 388, "The accuracy of A and of B cannot be told apart on 400 samples: −0.50 ["),
    ],
)
def test_accuracies_are_told_by_what_differs(one, two, told):
    (gap,) = compute_quality_gaps(run("A", one), run("B", two), 0.95)
    assert gap is not None
    found = describe_quality_gap(gap, "A", "B")
    assert found.startswith(told)
    if "cannot" in told:
        assert "more samples would be needed" in found
    if "better" in told:
        assert found.endswith("(McNemar p < 0.0001).")


def test_accuracies_on_other_samples_are_not_compared():
    assert compute_quality_gaps(run("A", 5), run("B", 5, samples=300), 0.95) == ()
    assert compute_quality_gaps(run("A", 5), Run("B", (), {}, {}, {}, {}, {}), 0.95) == ()


@pytest.fixture
def comparison():
    random = np.random.default_rng(0)
    turns = []
    for start in range(12):
        for round_ in range(4):
            for place, time in enumerate((1e5, 1.1e5, 1e5)):
                latency = (time * np.exp(random.normal(0, 0.003, 12))).astype(np.int64)
                block = Block(
                    np.cumsum(latency) - latency, latency, idle_cpu_ns=9 * place, idle_ns=100
                )
                turns.append(Turn(start, round_, place, place, len(turns) * 10_000_000, block))
    runs = tuple(
        with_turns(run(title, 390), Record(turns), place) for place, title in enumerate("ABC")
    )
    return Comparison(
        "three", ComparisonPlan(margin=0.01), runs, {"D\n": "crashed\nbadly"}, seconds=24.0
    )


def test_all_that_is_to_be_told_is_told(comparison):
    told = describe_comparison(comparison)
    assert all("\n" not in line for line in told)
    best, other = ("A", "C") if told[0].startswith("A") else ("C", "A")
    assert any(line.startswith(f"{best} is faster than B: B takes ") for line in told)
    assert any(
        "cannot be told apart: 12 starts" in line or f"{best} and {other} are the same" in line
        for line in told
    )
    assert sum("are right and wrong on the same of 400 samples" in line for line in told) == 2
    assert any(
        line.startswith("Mind that C kept 18 % of a core busy while others had their turn")
        for line in told
    )
    assert told[-1] == "D fell out: crashed badly"


def answers(lengths):
    """Answers of so many tokens, each a millisecond."""
    count, most = len(lengths), max(lengths)
    times = np.where(np.arange(most) < np.array(lengths)[:, np.newaxis], 1_000_000, -1)
    predictions = {
        "text": np.array(["x"] * count, object),
        TOKENS: np.where(times < 0, -1, 5),
        TOKEN_NS: times,
        REQUEST_NS: np.where(times < 0, 0, times).sum(axis=1),
        PROMPT_TOKENS: np.full(count, 12),
        REFERENCE_TOKENS: np.full(count, 4),
        LOG_LIKELIHOOD: np.full(count, -4.0),
    }
    truth = {"sample": np.arange(count), "answer": np.array([""] * count, object)}
    return Generation().evaluate(predictions, truth, DatasetSpec(Generation.name, (), ()))


def test_answers_of_unlike_lengths_have_no_fastest(comparison):
    lengths = {"A": [8] * 20, "B": [32] * 20, "C": [8] * 20}
    runs = tuple(
        dataclasses.replace(run, evaluation=answers(lengths[run.title])) for run in comparison.runs
    )
    told = describe_comparison(dataclasses.replace(comparison, runs=runs))
    unlike = [line for line in told if "not of the same work" in line]
    assert len(unlike) == 1
    assert "8.0 and 32.0 tokens" in unlike[0] or "32.0 and 8.0 tokens" in unlike[0]
    assert not any("faster than B" in line or "B is faster" in line for line in told)
    page = render([run for run in runs if run.title != "C"], "T")
    tiles = next(block for block in page.sections[0].blocks if isinstance(block, Tiles)).items
    assert not any("times as fast" in tile.note for tile in tiles)


def test_the_table_has_a_row_for_each_that_ran_and_ratios_to_the_fastest(comparison):
    table = build_comparison_table(comparison)
    text = to_text(table)
    assert [cell[0].text for cell in table.cells()] == ["A", "B", "C"]
    ratios = dict(zip("ABC", (row[2].text for row in table.cells()), strict=True))
    assert sorted(ratios.values())[0] == "1"
    assert ratios["B"].startswith(("1.10", "1.09"))
    assert "p90 by the fastest's" in text
    assert "97.50" in text


def test_a_doubt_stands_beside_the_name_in_the_table(comparison):
    assert "Doubts" not in build_comparison_table(comparison).header
    runs = list(comparison.runs)
    truth = np.arange(400) % 10
    constant = dataclasses.replace(
        runs[1].evaluation,
        class_names=tuple("0123456789"),
        arrays={"truth": truth, "predicted": np.zeros_like(truth)},
    )
    runs[1] = dataclasses.replace(runs[1], evaluation=constant)
    runs[2] = dataclasses.replace(
        runs[2], timing={**runs[2].timing, "settings": ["TVM without tuning"]}
    )
    found = dataclasses.replace(comparison, runs=tuple(runs))
    table = build_comparison_table(found)
    assert table.header[1] == "Doubts"
    assert [row[1].text for row in table.cells()] == ["–", "chance, constant", "settings"]
    assert (
        "Mind that C is not as its makers would run it: TVM without tuning."
        in describe_comparison(found)
    )


def test_where_nobody_ran_nothing_is_claimed():
    assert describe_comparison(Comparison("none", ComparisonPlan(), ())) == [
        "Nothing could be compared: fewer than two candidates ran."
    ]


def test_figures_of_a_part_are_not_set_beside_those_of_all_without_saying_so(comparison):
    first, *others = comparison.runs
    part = dataclasses.replace(first, evaluation=first.evaluation.take(np.arange(100)))
    told = describe_comparison(dataclasses.replace(comparison, runs=(part, *others)))
    assert any(
        "cannot be compared (A: classification, 100 samples; B: classification, 400" in line
        for line in told
    )
    assert not any(
        "not all judged on the same samples" in line for line in describe_comparison(comparison)
    )
