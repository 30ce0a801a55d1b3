"""Many writers lose nothing, and whatever is wrong with a database is one line."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from shutil import which

import pytest
import sqlalchemy as sa

from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.experiment.database import _tables
from nnpipe.experiment.database._tables import SCHEMA
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.provenance import Origin
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import TrialResult

WRITERS = """
import os, sys
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
address, store, writers, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with RunDatabase(store + ".sqlite", store=store + ".store") as other:
    other.runs.find("status = completed")  # imports what each writer needs, once
reading, writing = os.pipe()
children = []
for writer in range(writers):
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # which ends when the last is started
        break
    children.append(child)
else:
    os.close(writing)
    sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
with RunDatabase(address, store=store) as database:
    for number in range(runs):
        run = database.runs.create(f"writer {writer}", Configuration({"writer": writer, "number": number}))
        database.runs.enter(run, "running")
        for epoch in range(3):
            database.figures.put_history(run, "training", [{"epoch": epoch, "value": writer * 1000 + number}])
        database.artifacts.put_state(run, "state", {"number": number})
        database.figures.put_statistics(run, {"number": number})
        database.runs.enter(run, "completed")
"""


@pytest.mark.slow
def test_ten_processes_that_write_at_once_lose_nothing(address, opened, tmp_path):
    """The database does not exist when they begin, so that they also make it at once."""
    writers, runs = 10, 4
    command = [
        sys.executable,
        "-c",
        WRITERS,
        address,
        str(tmp_path / "store"),
        str(writers),
        str(runs),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    database = opened()
    found = database.runs.find("status = completed")
    assert {(r.configuration["writer"], r.configuration["number"]) for r in found} == {
        (writer, number) for writer in range(writers) for number in range(runs)
    }
    assert len(found) == writers * runs
    for run in found:
        writer, number = run.configuration["writer"], run.configuration["number"]
        assert run.statistics == {"number": number}
        rows = list(database.figures.history(run.id, "training").rows())
        assert rows == [{"epoch": epoch, "value": writer * 1000 + number} for epoch in range(3)]
        assert database.artifacts.get_state(run.id, "state") == {"number": number}


def test_threads_share_a_database(database):
    def write(number):
        for _ in range(3):
            run = database.runs.create(f"thread {number}")
            database.figures.put_statistics(run, {"number": number})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.statistics["number"] for run in database.runs.find()) == sorted(
        [*range(5)] * 3
    )


def test_a_forked_process_uses_a_connection_of_its_own(database):
    database.runs.create("parent")
    process = multiprocessing.get_context("fork").Process(
        target=database.runs.create, args=("child",)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0
    database.runs.create("parent")
    assert [run.experiment for run in database.runs.find(order="created")] == [
        "parent",
        "child",
        "parent",
    ]


def test_a_transaction_is_kept_whole_or_not_at_all(database):
    def half():
        with database._connections.begin_write() as connection:
            connection.execute(sa.text("UPDATE nnpipe_about SET value = '7'"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    with database._connections.reading() as connection:
        assert connection.scalar(sa.text("SELECT value FROM nnpipe_about")) == str(SCHEMA)


def test_what_is_written_together_is_one_transaction(database):
    commits = []
    sa.event.listen(database._connections.engine, "commit", commits.append)
    run = database.runs.create("walk")
    with database.together():
        database.runs.enter(run, "running")
        database.put_origins(run, [Origin(path="a.B", module="a")])
    with database.together():
        database.figures.put_history(run, "steps", [{"step": 1}, {"step": 2, "height": 0.5}])
        database.figures.put_statistics(run, {"height": 0.5})
        database.runs.advance(run, 2, 2)
        assert database.figures.histories(run) == {"steps": 2}  # seen by this thread already
        with database.together():
            database.runs.enter(run, "completed")
    assert len(commits) == 3
    found = database.runs.get(run)
    assert (found.status, found.done, found.statistics) == ("completed", 2, {"height": 0.5})
    assert [*database.figures.history(run, "steps").rows()] == [
        {"step": 1},
        {"step": 2, "height": 0.5},
    ]


@pytest.mark.parametrize("caught", [False, True])
def test_of_what_is_written_together_nothing_is_kept_if_a_part_fails(database, caught):
    run = database.runs.create("walk")
    with pytest.raises(ConfigError, match="nothing was written" if caught else "cannot become"):  # noqa: PT012
        with database.together():
            database.figures.put_statistics(run, {"height": 0.5})
            with contextlib.suppress(ConfigError) if caught else contextlib.nullcontext():
                database.runs.enter(run, "completed")
    assert database.figures.statistics(run) == {}
    database.figures.put_statistics(run, {"height": 1})
    assert list(database.figures.statistics(run)) == ["height"]


def test_files_are_not_moved_within_a_transaction_that_may_be_undone(database):
    run = database.runs.create("walk")
    with (
        pytest.raises(ConfigError, match="before or after what is written together"),
        database.together(),
    ):
        database.artifacts.put_state(run, "state", {"x": 1})
    assert database.artifacts.list(run) == []


def test_a_file_is_not_packed_up_after_each_transaction(tmp_path):
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        database.runs.create("walk")
        database.runs.create("walk")
        # as long as it is open; to pack it costs two waits
        assert (tmp_path / "runs.sqlite-wal").stat().st_size > 0
    assert not (tmp_path / "runs.sqlite-wal").exists()


@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="the system does not list open files there"
)
def test_no_connection_to_a_file_is_carried_over_a_fork(tmp_path):
    def held():
        sys.exit(
            sum("runs.sqlite" in os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())
        )

    with RunDatabase(tmp_path / "runs.sqlite") as database:
        database.runs.create("before")
        process = multiprocessing.get_context("fork").Process(target=held)
        process.start()
        process.join(60)
    assert process.exitcode == 0


def test_what_is_read_is_of_one_moment(database):
    database.runs.create("one")
    with database._connections.reading() as connection:
        count = sa.text("SELECT count(*) FROM nnpipe_runs")
        assert connection.scalar(count) == 1
        database.runs.create("two")
        assert connection.scalar(count) == 1


def test_who_waits_too_long_is_told(opened):
    first, second = opened(), opened(patience=0.2)
    with first._connections.begin_write():
        with pytest.raises(
            ConfigError, match=r"another process has been writing for more than 0\.2 s"
        ) as caught:
            second.runs.create("late")
        assert "\n" not in str(caught.value)
        assert second.runs.find() == []  # readers need not wait
    second.runs.create("now")


def test_a_newer_schema_is_refused(opened, database):
    with database._connections.begin_write() as connection:
        connection.execute(sa.text("UPDATE nnpipe_about SET value = '99'"))
    with pytest.raises(
        ArtifactError, match=r"written by a newer nnpipe \(schema 99, not 5\): upgrade nnpipe"
    ):
        opened()


@pytest.mark.parametrize("schema", ["0", "-1", "x", "1" * 20])
def test_an_unknown_schema_is_refused(opened, database, schema):
    with database._connections.begin_write() as connection:
        connection.execute(sa.text("UPDATE nnpipe_about SET value = :v"), {"v": schema})
    with pytest.raises(ArtifactError, match="which this nnpipe does not read"):
        opened()


def test_an_older_schema_is_migrated_or_left_as_it_was(opened, database, monkeypatch):
    run = database.runs.create("old")
    with database._connections.begin_write() as connection:
        connection.execute(sa.text("ALTER TABLE nnpipe_runs RENAME COLUMN reason TO why"))
        connection.execute(sa.text("UPDATE nnpipe_about SET value = '0'"))

    def half(connection):
        connection.execute(sa.text("ALTER TABLE nnpipe_runs RENAME COLUMN why TO reason"))
        raise ZeroDivisionError

    monkeypatch.setitem(_tables.MIGRATIONS, 0, half)
    with pytest.raises(ZeroDivisionError):
        opened()
    monkeypatch.setitem(
        _tables.MIGRATIONS,
        0,
        lambda c: c.execute(sa.text("ALTER TABLE nnpipe_runs RENAME COLUMN why TO reason")),
    )
    assert opened().runs.get(run).experiment == "old"
    assert opened().runs.get(run).reason == ""


@pytest.mark.parametrize("schema", [1, 2])
def test_a_database_of_before_there_were_jobs_or_searches_gets_tables_for_them(
    opened, database, schema
):
    run = database.runs.create("old")
    with database._connections.begin_write() as connection:
        for table in ("reports", "trials", "searches", *(["jobs"] if schema == 1 else [])):
            connection.execute(sa.text(f"DROP TABLE nnpipe_{table}"))
        connection.execute(sa.text(f"UPDATE nnpipe_about SET value = '{schema}'"))
    again = opened()
    assert again.runs.get(run).experiment == "old"
    assert again.jobs.find() == []
    search = again.searches.open("new", {"y": "minimize"})
    assert list(again.searches.select_searches([run, search])) == [search]
    with pytest.raises(ConfigError, match="is no job"):
        again.jobs.get(run)
    with again._connections.reading() as connection:
        assert connection.scalar(sa.text("SELECT value FROM nnpipe_about")) == str(SCHEMA)


def test_a_database_of_before_devices_were_shared_gets_a_table_for_their_queues(opened, database):
    with database._connections.begin_write() as connection:
        connection.execute(sa.text("DROP TABLE nnpipe_device_tickets"))
        connection.execute(sa.text("UPDATE nnpipe_about SET value = '4'"))
    queues = opened().devices
    assert queues.advance(queues.ask("board", "anna", "a test", 10), 10) is True


def test_trials_of_before_results_had_intervals_and_files_have_none(opened, database):
    store = DatabaseTrials(database, database.searches.open("old", {"y": "minimize"}))
    store.enqueue({"x": 1})
    with database._connections.begin_write() as connection:
        for column in ("intervals", "files"):
            connection.execute(sa.text(f"ALTER TABLE nnpipe_trials DROP COLUMN {column}"))
        connection.execute(sa.text("UPDATE nnpipe_about SET value = '3'"))
    store = DatabaseTrials(opened(), "old")
    assert [(trial.configuration, trial.intervals, trial.files) for trial in store.trials()] == [
        ({"x": 1}, {}, "")
    ]
    lease = store.lease("one", lambda number: None, 1)
    store.finish(lease, TrialResult({"y": 1.0}, {"y": (0.0, 2.0)}))
    assert store.trials()[0].intervals == {"y": (0.0, 2.0)}


def test_nothing_is_made_where_nothing_may_be(opened, address, tmp_path):
    with pytest.raises(ConfigError, match=r"no such run database|holds no runs yet"):
        opened(create=False)
    assert not (tmp_path / "runs.sqlite").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "mysql://root:secret@host/x",
            "mysql://: a run database is a file of SQLite or postgresql://",
        ),
        ("sqlite://", "a run database is a file: sqlite:///runs.sqlite"),
        ("sqlite:///:memory:", "a run database is a file"),
        ("", "is a file or postgresql"),
        ("a\0b", "is a file or postgresql"),
        ("postgresql://user:secret@host:port/name", "this address cannot be read"),
        (
            "postgresql://user:secret@127.0.0.1:1/name",
            r"postgresql\+psycopg://user:\*\*\*@127.0.0.1:1/name: .*refused",
        ),
        ("postgresql://user:secret@/name?host=/nowhere", "/nowhere.*No such file"),
    ],
)
def test_bad_addresses_are_one_line_without_the_password(address, message):
    with pytest.raises(NNPipeError, match=message) as caught:
        Connections(address)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_no_run_database_is_refused_and_left_alone(tmp_path):
    (tmp_path / "text").write_text("not a database, but long enough for a header" * 50)
    (tmp_path / "folder").mkdir()
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE photos (name)")
    connection.close()
    before = (tmp_path / "other").read_bytes(), (tmp_path / "text").read_bytes()
    for name, message in (
        ("text", "damaged, or no SQLite database"),
        ("folder", "a folder"),
        ("other", "an SQLite database of something else"),
    ):
        with pytest.raises(NNPipeError, match=f"{name}: {message}"):
            RunDatabase(tmp_path / name)
    assert ((tmp_path / "other").read_bytes(), (tmp_path / "text").read_bytes()) == before


def test_a_damaged_file_is_told(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunDatabase(path) as database:
        for number in range(50):
            database.runs.create(f"run {number}")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with (
        pytest.raises(ArtifactError, match=r"runs\.sqlite: damaged"),
        RunDatabase(path) as database,
    ):
        database.runs.find()


@contextlib.contextmanager
def write_protected(path):
    """Keep everybody from writing to a file: root, who may write everywhere, by making it
    immutable.
    """
    if os.geteuid():
        path.chmod(stat.S_IRUSR)
        yield
        return
    made = (
        subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
        if which("chattr")
        else None
    )
    if made is None or made.returncode:
        pytest.skip("root may write everywhere, and this file system has no immutable files")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)


def test_a_file_that_may_not_be_written_can_be_read(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunDatabase(path) as database:
        run = database.runs.create("one")
    with write_protected(path), RunDatabase(path) as database:
        assert database.runs.get(run).experiment == "one"
        with pytest.raises(ConfigError, match="may not be written to"):
            database.runs.create("two")
