"""Statistics and histories come back as they were, NaN and infinity too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.history import Statistic, Statistics

# SQLite keeps no zero below zero
FLOATS = st.floats(allow_subnormal=True).map(lambda number: number + 0.0)
NUMBERS = st.booleans() | st.integers(-(2**53), 2**53) | FLOATS
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["loss", "Loss", "ä", "a.b", "%s"]), NUMBERS, max_size=4),
    max_size=5,
)


def same(one, other):
    return repr(one) == repr(other)  # NaN is itself, and 1, 1.0 and True are three


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=ROWS, second=ROWS, at=st.floats(0, 1))
def test_histories_come_back_and_are_continued_from_any_row(database, first, second, at):
    run = database.runs.create("digits")
    assert database.figures.put_history(run, "training", first) == len(first)
    begin = round(at * len(first))
    expected = [*first[:begin], *second]
    assert database.figures.put_history(run, "training", second, at=begin) == len(expected)
    found = list(database.figures.history(run, "training").rows())
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert same(dict(sorted(row.items())), dict(sorted(wanted.items())))
    assert database.figures.histories(run) == {"training": len(expected)}


def test_a_history_has_no_gaps_and_holds_numbers(database):
    run = database.runs.create("digits")
    database.figures.put_history(run, "h", [{"x": 1}])
    for rows, at, message in (
        ([{"x": 1}], 2, "row 2 does not follow the 1 rows"),
        ([{"x": 1}], -1, "row -1 does not follow"),
        ([{"x": 1}, {"x": "a"}], None, r"h\.x: expected a number, not str"),
        ([{"x": 2**53 + 1}], None, "beyond 2 to the power of 53"),
    ):
        with pytest.raises(ConfigError, match=message):
            database.figures.put_history(run, "h", rows, at=at)
    assert list(database.figures.history(run, "h").rows()) == [{"x": 1}]
    with pytest.raises(ConfigError, match="has no history 'other'"):
        database.figures.history(run, "other")


def test_long_histories_are_stored_in_bulk(database):
    run = database.runs.create("digits")
    rows = [{"step": step, "loss": 1 / (step + 1)} for step in range(25_000)]
    database.figures.put_history(run, "training", rows)
    found = database.figures.history(run, "training")
    assert np.array_equal(found["loss"], 1 / np.arange(1, 25_001))


def test_statistics_replace_those_of_their_name_and_keep_their_place(database):
    run = database.runs.create("digits")
    database.figures.put_statistics(run, {"b": 1, "a": math.nan, "c": np.float32(0.5)})
    database.figures.put_statistics(run, {"d": math.inf, "b": 2.5, "e": True})
    found = database.figures.statistics(run)
    assert list(found) == ["b", "a", "c", "d", "e"]
    assert found["b"] == Statistic(1, 1.0, 2.5, 0.0, 2.5, 2.5)
    means = database.runs.get(run).statistics
    assert same(dict(means), {"b": 2.5, "a": math.nan, "c": 0.5, "d": math.inf, "e": 1.0})


def test_running_statistics_are_stored_whole(database):
    run = database.runs.create("digits")
    statistics = Statistics()
    statistics.add("loss", [1.0, 2.0, 6.0], [1, 1, 2])
    database.figures.put_statistics(run, statistics)
    database.figures.put_statistics(run, {"empty": Statistic()})
    assert database.figures.statistics(run) == {"loss": statistics["loss"], "empty": Statistic()}


def test_statistics_are_all_stored_or_none(database):
    run = database.runs.create("digits")
    with pytest.raises(ConfigError, match="numbers, not str"):
        database.figures.put_statistics(run, {"a": 1, "b": "x"})
    assert database.figures.statistics(run) == {}
