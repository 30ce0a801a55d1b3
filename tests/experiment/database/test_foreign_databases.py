"""A database that somebody else made is read or refused in one line, in little time and memory."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios import jobs, runs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with a run, a search and a job."""
    found = tmp_path / "runs.sqlite"
    with RunDatabase(found, store=tmp_path / "store") as database:
        tree = Configuration({"rate": 0.1})
        run = database.runs.create("digits", tree)
        database.figures.put_statistics(run, {"accuracy": 0.9})
        database.figures.put_history(run, "training", [{"loss": 1.0, "step": 1}, {}, {"loss": 0.5}])
        trials = database.searches.trials(
            database.searches.open("widths", {"size": "minimize"}, tree)
        )
        trials.add(
            [({"x": 1}, "k", {"state": "finished", "results": '{"size": 5.0}'})], counted=True
        )
        database.jobs.create("train", tree, place="here")
    return found


def read_all(path: Path) -> str:
    """Return what the commands say that show all there is; each must succeed or refuse."""
    said = io.StringIO()
    at = ["--database", str(path)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for action in (
            ["list"],
            ["show", "digits"],
            ["show", "widths"],
            ["tree"],
            ["compare", "digits", "widths"],
        ):
            assert runs.main([*action, *at]) in (0, 2)
        for name in ("digits", "widths"):
            assert runs.main(["export", name, "--json", str(path.with_name("out.json")), *at]) in (
                0,
                2,
            )
        assert jobs.main(["list", *at]) in (0, 2)
    return said.getvalue()


def test_a_sound_database_is_shown(path: Path) -> None:
    said = read_all(path)
    assert "digits" in said
    assert "nnpipe runs:" not in said


WRONG = [
    ("runs", "experiment", b"\xff\xfe"),
    ("runs", "status", "flying"),
    ("runs", "status", 5),
    ("runs", "done", "x"),
    ("runs", "total", "x"),
    ("runs", "created", 1e300),
    ("runs", "created", "yesterday"),
    ("runs", "ended", -5.0),
    ("runs", "started", float("inf")),
    ("runs", "environment", "[]"),
    ("runs", "environment", "{"),
    ("runs", "environment", "[" * 100_000),
    ("runs", "configuration", "elsewhere"),
    ("runs", "process", "x"),
    ("configurations", "tree", "5"),
    ("configurations", "tree", "9" * 5000),
    ("statistics", "mean", "x"),
    ("statistics", "count", "x"),
    ("histories", "rows", 1 << 40),
    ("histories", "rows", -1),
    ("histories", "rows", "x"),
    ("histories", "rows", 1),
    ("points", "row", -1),
    ("points", "value", "x"),
    ("points", "value", float("inf")),
    ("points", "row", "x"),
    ("points", "kind", "x"),
    ("jobs", "details", "[]"),
    ("jobs", "fraction", "x"),
    ("jobs", "fraction", 1e300),
    ("jobs", "settled", 7),
    ("jobs", "attempt", "x"),
    ("searches", "objectives", "[]"),
    ("searches", "objectives", '{"size": 5}'),
    ("searches", "version", "x"),
    ("trials", "results", '{"size": "x"}'),
    ("trials", "results", "5"),
    ("trials", "intervals", '{"size": 5}'),
    ("trials", "configuration", "[]"),
    ("trials", "notes", "x"),
    ("trials", "state", 5),
    ("trials", "seconds", "x"),
]


@pytest.mark.parametrize(("table", "column", "value"), WRONG)
def test_a_wrong_value_is_told_with_the_file_or_shown_as_it_is(
    path: Path, table: str, column: str, value: Any
) -> None:
    changed = sqlite3.connect(path)
    changed.execute(f'UPDATE OR IGNORE nnpipe_{table} SET "{column}" = ?', (value,))
    changed.commit()
    changed.close()
    refusals = [line for line in read_all(path).splitlines() if line.startswith("nnpipe ")]
    assert all(path.name in line for line in refusals), refusals


def test_a_history_of_more_rows_than_values_claims_no_memory(path: Path) -> None:
    changed = sqlite3.connect(path)
    changed.execute("UPDATE nnpipe_histories SET rows = ?", (1 << 40,))
    changed.commit()
    changed.close()
    with (
        RunDatabase(path) as database,
        pytest.raises(ArtifactError, match="1,099,511,627,776 rows, of which it holds 3 values"),
    ):
        database.figures.history("digits", "training")


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        (
            "CREATE VIEW nnpipe_runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM "
            "n) SELECT i FROM n",
            "a view",
        ),
        (
            "CREATE TABLE nnpipe_runs (id TEXT, status TEXT AS (hex(zeroblob(1000000000))))",
            "is computed, not stored",
        ),
        ("CREATE TRIGGER nnpipe_runs AFTER UPDATE ON was BEGIN DELETE FROM was; END", "a trigger"),
    ],
)
def test_what_computes_instead_of_holding_is_refused(
    path: Path, statement: str, cause: str
) -> None:
    changed = sqlite3.connect(path)
    changed.execute("ALTER TABLE nnpipe_runs RENAME TO was")
    changed.execute(statement)
    changed.commit()
    changed.close()
    with pytest.raises(ArtifactError, match=cause) as caught:
        RunDatabase(path)
    assert path.name in str(caught.value)
