"""Runs: the same answers from SQLite and PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.provenance import Origin
from nnpipe.experiment.status import NEXT

TREE = {
    "optimiser": {"class": "torch.optim.Adam", "arguments": {"lr": 0.01, "betas": [0.9, 0.999]}},
    "seed": 2**70,
}
HOSTILE = [
    "'; DROP TABLE nnpipe_runs; --",
    '"',
    "%s %(x)s :name ?",
    "\\",
    "äöü 漢字 🙂",
    "a\nb\tc",
    " ",
    "null",
    "{}",
    "$1",
]


def test_a_run_is_what_was_given(database):
    before = time.time()
    run = database.runs.create("digits", Configuration(TREE), environment={"python": "3.11"})
    found = database.runs.get(run)
    assert (found.id, found.experiment, found.status, found.reason) == (
        run,
        "digits",
        "created",
        "",
    )
    assert found.configuration == TREE
    assert found.environment == {"python": "3.11"}
    assert before <= found.created <= time.time()
    assert (found.started, found.ended, found.duration, found.process) == (None, None, None, None)
    assert (found.parents, found.statistics, found.done, found.total) == ((), {}, 0, 0)


def test_a_run_goes_its_way(database):
    run = database.runs.create("digits")
    database.runs.enter(run, "running")
    assert database.runs.get(run).process == os.getpid()
    database.runs.advance(run, 3, 10)
    database.runs.enter(run, "failed", "no more paper")
    found = database.runs.get(run)
    assert (found.status, found.reason, found.done, found.total, found.process) == (
        "failed",
        "no more paper",
        3,
        10,
        None,
    )
    assert found.duration >= 0
    database.runs.enter(run, "running")
    assert database.runs.get(run).ended is None
    database.runs.enter(run, "completed")
    with pytest.raises(ConfigError, match="is completed and cannot become running"):
        database.runs.enter(run, "running")
    with pytest.raises(ConfigError, match="cannot become asleep"):
        database.runs.enter(run, "asleep")
    assert set(NEXT) >= {"created", "running", "completed"}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_kept_as_they_are(database, text):
    run = database.runs.create(text, Configuration({text: {"value": text}}))
    database.runs.enter(run, "running")
    database.runs.enter(run, "failed", text)
    database.figures.put_statistics(run, {text: 1.5})
    database.figures.put_history(run, text, [{text: 2}])
    database.artifacts.put_arrays(run, text, {text: [1, 2]})
    found = database.runs.get(run)
    assert (found.experiment, found.reason, found.configuration) == (
        text,
        text,
        {text: {"value": text}},
    )
    assert found.statistics == {text: 1.5}
    assert list(database.figures.history(run, text).rows()) == [{text: 2}]
    assert database.artifacts.get_arrays(run, text)[text].tolist() == [1, 2]
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert [
        r.id for r in database.runs.find(f"experiment = {quoted} and statistics.{quoted} > 1")
    ] == [run]
    assert [r.id for r in database.runs.find(f"configuration.{quoted}.value = {quoted}")] == [run]
    assert database.runs.find(f"reason ~ {quoted} and not experiment ~ {quoted}") == []


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", "x" * 501])
def test_texts_that_a_backend_would_refuse_are_refused_by_both(database, text):
    with pytest.raises(ConfigError):
        database.runs.create(text)
    run = database.runs.create("digits")
    for call in (
        lambda: database.figures.put_statistics(run, {text: 1}),
        lambda: database.figures.put_history(run, text, []),
        lambda: database.figures.put_history(run, "h", [{text: 1}]),
        lambda: database.artifacts.put_state(run, text, {}),
    ):
        with pytest.raises(ConfigError):
            call()
    assert database.figures.statistics(run) == {}
    assert database.figures.histories(run) == {}
    assert database.artifacts.list(run) == []


def test_runs_are_found_by_identity_its_beginning_or_the_experiment(database):
    runs = [database.runs.create(name) for name in ("one", "two", "two")]
    assert database.runs.get(runs[0][:12]).id == runs[0]
    assert database.runs.get("one").id == runs[0]
    assert database.runs.get("two").id == runs[2]
    with pytest.raises(ConfigError, match=r"'tow'; did you mean two\?"):
        database.runs.get("tow")
    for bad in ("", "\0", "x' OR '1'='1"):
        with pytest.raises(ConfigError, match="no run"):
            database.runs.get(bad)
    many = [database.runs.create("many") for _ in range(17)]  # of 17, two begin with the same digit
    digits = [run[0] for run in (*runs, *many)]
    twice = next(digit for digit in digits if digits.count(digit) > 1)
    with pytest.raises(ConfigError, match=f"several runs begin with {twice}"):
        database.runs.get(twice)


def test_parents_are_kept_in_order_and_hold_back_deletion(database):
    first, second = database.runs.create("train"), database.runs.create("train")
    child = database.runs.create("test", parents=[second, first, second])
    assert database.runs.get(child).parents == (second, first)
    assert [run.id for run in database.runs.children(first)] == [child]
    with pytest.raises(ConfigError, match="no run or experiment is called 'nowhere'"):
        database.runs.create("test", parents=["nowhere"])
    assert len(database.runs.find()) == 3
    with pytest.raises(ConfigError, match=f"run {first[:12]} is a parent of {child[:12]}"):
        database.delete([first])
    assert len(database.runs.find()) == 3
    assert database.delete([first, child]) == [first, child]
    assert [run.id for run in database.runs.find()] == [second]


def test_deleting_leaves_nothing_behind(database, tmp_path):
    kept = database.runs.create("kept", Configuration({"a": 1}))
    gone = database.runs.create("gone", Configuration({"b": [1, {}]}))
    for run in (kept, gone):
        database.figures.put_statistics(run, {"x": 1})
        database.figures.put_history(run, "h", [{"x": 1}])
        database.artifacts.put_arrays(run, "same", {"x": [1]})
    database.artifacts.put_arrays(gone, "own", {"x": [2]})
    search = database.searches.open("search", {"y": "minimize"})
    trials = database.searches.trials(search)
    trials.take("worker", 60, 1)
    assert trials.report(0, 1, 1, 0.5, 60)
    database.delete(["gone", search], even_if_running=True)
    import sqlalchemy as sa

    from nnpipe.experiment.database._tables import get_tables

    with database._connections.reading() as connection:
        counts = {
            table.name.removeprefix("nnpipe_"): connection.scalar(
                sa.select(sa.func.count()).select_from(table)
            )
            for table in get_tables().metadata.tables.values()
        }
    assert counts == {
        "about": 1,
        "configurations": 1,
        "settings": 1,
        "runs": 1,
        "parents": 0,
        "statistics": 1,
        "histories": 1,
        "series": 1,
        "points": 1,
        "artifacts": 1,
        "origins": 0,
        "jobs": 0,
        "searches": 0,
        "trials": 0,
        "reports": 0,
        "device_tickets": 0,
    }
    assert len([path for path in (tmp_path / "store").rglob("*") if path.is_file()]) == 1
    assert database.artifacts.get_arrays(kept, "same")["x"].tolist() == [1]


def test_a_run_is_held_by_one_process(database, address):
    run = database.runs.create("digits")
    database.runs.acquire(run)
    with pytest.raises(ConfigError, match=f"is running in process {os.getpid()} on"):
        database.runs.acquire(run)
    with pytest.raises(ConfigError, match="is running; stop it first"):
        database.delete([run])
    assert database.runs.acquire(run, even_if_running=True).status == "running"
    database.delete([run], even_if_running=True)
    assert database.runs.find() == []


def test_a_run_whose_process_is_gone_can_be_taken_up(database, address):
    run = database.runs.create("digits")
    code = (
        "import os, signal, sys\nfrom nnpipe.experiment.database.database import RunDatabase\n"
        "RunDatabase(sys.argv[1]).runs.acquire(sys.argv[2])\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, address, run], timeout=60, check=False)
    assert database.runs.get(run).status == "running"
    assert database.runs.acquire(run).process != os.getpid()
    assert database.runs.get(run).process == os.getpid()


def test_configurations_that_are_alike_are_there_once(database):
    one = database.runs.create("a", Configuration({"x": 1, "y": 2}))
    two = database.runs.create("b", Configuration({"y": 2, "x": 1}))
    assert database.runs.get(one).configuration == database.runs.get(two).configuration
    import sqlalchemy as sa

    from nnpipe.experiment.database._tables import get_tables

    with database._connections.reading() as connection:
        assert (
            connection.scalar(sa.select(sa.func.count()).select_from(get_tables().configurations))
            == 1
        )


def test_origins_come_back(database):
    run = database.runs.create("digits")
    origins = [
        Origin(path="a.b", module="a", package="p", version="1"),
        Origin(path="c.d", module="c", commit="f" * 40, dirty=True, sha256="0" * 64),
    ]
    database.put_origins(run, origins)
    database.put_origins(run, origins)
    assert database.origins(run) == origins


def test_no_reason_is_lost_for_its_characters(database):
    run = database.runs.create("digits")
    database.runs.enter(run, "running")
    database.runs.enter(run, "failed", "a\0b \udcff")
    assert database.runs.get(run).reason == "a?b ?"
