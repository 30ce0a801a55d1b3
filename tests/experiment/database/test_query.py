"""Conditions select the same runs in SQLite and PostgreSQL, and the ones that Python would."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.query import (
    FieldComparison,
    Junction,
    Negation,
    QueryField,
    parse_condition,
)

RUNS = {
    "a1": (
        {"lr": 0.1, "model": {"class": "Linear"}, "flag": True},
        {"accuracy": 0.5, "loss": math.nan},
    ),
    "A2": (
        {"lr": 1, "model": {"class": "linear"}, "flag": 1},
        {"accuracy": 0.75, "loss": math.inf},
    ),
    "b%_": (
        {"lr": "0.1", "model": {"class": "Conv2d"}, "flag": None},
        {"accuracy": 1.0, "top 5": 1.0},
    ),
    "ä": ({"lr": 1e300, "layers": [8, 16], "flag": False}, {"loss": -math.inf}),
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(request, tmp_path_factory):
    if request.param == "sqlite":
        address = str(tmp_path_factory.mktemp("query") / "runs.sqlite")
    else:
        address = request.getfixturevalue("schema_of_postgresql")()
    with RunDatabase(address) as database:
        for name, (tree, statistics) in RUNS.items():
            run = database.runs.create(name, Configuration(tree))
            database.figures.put_statistics(run, statistics)
        yield database


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("", "a1 A2 b%_ ä"),
        ("statistics.accuracy > 0.5", "A2 b%_"),
        ("statistics.accuracy>=0.5 and statistics.accuracy<1", "a1 A2"),
        ("statistics.accuracy != 0.5", "A2 b%_"),
        ("not statistics.accuracy > 0.5", "a1 ä"),
        ("not not statistics.accuracy > 0.5", "A2 b%_"),
        ("statistics.loss > 0", "A2"),
        ("statistics.loss < 0", "ä"),
        ("statistics.loss = null", "a1 b%_"),
        ("statistics.loss != null", "A2 ä"),
        ("statistics.loss = inf", "A2"),
        ('statistics."top 5" = 1', "b%_"),
        ("statistics.'top 5' = 1", "b%_"),
        ("experiment = 'a1' and status = 'created'", "a1"),
        ("configuration.lr = '0.1'", "b%_"),
        ("configuration.lr = 0.1", "a1"),
        ('configuration.lr = "0.1"', "b%_"),
        ("configuration.lr >= 0.1", "a1 A2 ä"),
        ("configuration.flag = true", "a1"),
        ("configuration.flag = 1", "A2"),
        ("configuration.flag = null", "b%_"),
        ("configuration.layers.1 = 16", "ä"),
        ("configuration.model.class = Linear", "a1"),
        ("configuration.model.class ~ inea", "a1 A2"),
        ("configuration.model.class ~ Line", "a1"),
        ("configuration.model.class != Linear", "A2 b%_"),
        ("experiment < a", "A2"),
        ("experiment > b", "b%_ ä"),
        ("experiment ~ %", "b%_"),
        ("experiment ~ _", "b%_"),
        ("experiment = ä or experiment = a1 and status = created", "a1 ä"),
        ("(experiment = ä or experiment = a1) and status != created", ""),
        ("ended = null and created > 2020-01-01 AND created < 2999-01-01T00:00", "a1 A2 b%_ ä"),
        ("duration > 0 or started != null", ""),
        ("done = 0 and parent = null", "a1 A2 b%_ ä"),
    ],
)
def test_conditions_select(filled, condition, names):
    found = filled.runs.find(condition, order="created")
    assert [run.experiment for run in found] == names.split()


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("created", "a1 A2 b%_ ä"),
        ("-created", "ä b%_ A2 a1"),
        ("experiment", "A2 a1 b%_ ä"),
        ("statistics.loss", "ä A2 b%_ a1"),
        ("-statistics.loss", "A2 ä b%_ a1"),
        ("configuration.lr", "a1 A2 ä b%_"),
        ("-duration", "ä b%_ A2 a1"),
        ("parent", "ä b%_ A2 a1"),
    ],
)
def test_runs_come_in_order_and_those_without_last(filled, order, names):
    assert [run.experiment for run in filled.runs.find(order=order)] == names.split()
    assert [run.experiment for run in filled.runs.find(order=order, limit=2)] == names.split()[:2]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("statu = 1", r"runs have no field 'statu'; did you mean status\?"),
        ("statistics > 1", "runs have no field 'statistics'; known: .*statistics.NAME"),
        ("status", "expected one of = != .* after 'status', found nothing"),
        ("status =", "expected a value after 'status =', found nothing"),
        ("status = a status = b", "no run has the status 'a'; there are: created, "),
        ("host = a host = b", "expected 'and', 'or' or the end after 'host = a', found 'host'"),
        ("status = compleated", r"no run has the status 'compleated'; did you mean completed\?"),
        ("status != 'done'", "no run has the status 'done'; there are"),
        ("(host = a", r"expected '\)' after .*, found nothing"),
        ("= a", "expected a field, found '='"),
        ("done > many", "done is a number, and 'many' is not"),
        ("statistics.x > nan", "nothing compares with NaN"),
        ("created > soon", "'soon' is no date"),
        ("configuration.x < null", "only = and != go with null"),
        ("configuration.x ~ 5", "put the text into quotes"),
        ('status = "a', "cannot read '\"a'; quotes come in pairs"),
        ("experiment = 'a", 'cannot read "\'a"; quotes come in pairs'),
        ("(" * 60 + "status = a", "nested more than 50 deep"),
        ("not " * 60 + "status = a", "nested more than 50 deep"),
        ("x" * 10_001, "too long"),
    ],
)
def test_what_is_no_condition_is_told_with_its_place(condition, message):
    with pytest.raises(ConfigError, match=message):
        parse_condition(condition)


def test_limits_are_checked(filled):
    assert filled.runs.find(limit=0) == []
    with pytest.raises(ConfigError, match="limit"):
        filled.runs.find(limit=-1)


def test_words_are_read_by_their_rank():
    a, b, c = (FieldComparison(QueryField("done"), "=", float(number)) for number in (1, 2, 3))
    assert parse_condition("done=1 or done=2 and not done=3") == Junction(
        "or", (a, Junction("and", (b, Negation(c))))
    )
    assert parse_condition("(done=1 or done=2) and done=3") == Junction(
        "and", (Junction("or", (a, b)), c)
    )
    assert parse_condition(r'experiment="a\"b\\ (c)"') == FieldComparison(
        QueryField("experiment"), "=", r'a"b\ (c)'
    )
    assert parse_condition(r"experiment='a\'b\\ (\"c\")'") == FieldComparison(
        QueryField("experiment"), "=", r"""a'b\ ("c")"""
    )
    assert parse_condition("""experiment="it's" """) == FieldComparison(
        QueryField("experiment"), "=", "it's"
    )


@given(
    st.text(max_size=100)
    | st.lists(st.sampled_from(["(", ")", "done", "=", "1", "and", "not", '"', "'", "\\", "~"]))
)
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ConfigError):
        parse_condition(text if isinstance(text, str) else " ".join(text))
