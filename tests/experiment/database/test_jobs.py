"""What is known of a job is never replaced by what was seen earlier, in both backends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import MOST_METRICS
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase


def made(database: RunDatabase, name: str = "train.py"):
    return database.jobs.get(
        database.jobs.create(name, Configuration({"job": {"file": name}}), place="here")
    )


def test_from_its_beginning_to_its_end(database: RunDatabase) -> None:
    job = made(database)
    assert (job.state, job.run.status, job.run.process, job.fraction) == (
        "not started",
        "created",
        os.getpid(),
        None,
    )
    assert database.jobs.record_state(job, "creating", folder="/jobs/1", details={"work": 1})
    assert database.jobs.record_state(
        job, "in progress", fraction=0.255, process=(1, 2.0), host="box", details={"more": 2}
    )
    seen = database.jobs.get("train.py")
    assert (seen.state, seen.fraction, seen.folder, seen.details) == (
        "in progress",
        0.255,
        "/jobs/1",
        {"work": 1, "more": 2},
    )
    assert (seen.run.status, seen.run.done, seen.run.total, seen.run.host) == (
        "running",
        26,
        100,
        "box",
    )
    assert seen.run.started is not None
    assert database.jobs.record_state(job, "failed", reason="why\0", at=5.0)
    seen = database.jobs.get(job.id)
    assert (seen.run.status, seen.run.reason, seen.run.ended, seen.run.process) == (
        "failed",
        "why?",
        5.0,
        None,
    )
    assert database.runs.find("status = failed")[0].id == job.id


def test_what_has_ended_stays_so(database: RunDatabase) -> None:
    job = made(database)
    database.jobs.record_state(job, "completed", reason="")
    for state in ("in progress", "failed", "cancelled", "creating"):
        assert not database.jobs.record_state(job, state, reason="late")
    assert database.jobs.record_state(job, "completed", settled=True)
    seen = database.jobs.get(job.id)
    assert (seen.state, seen.run.reason, seen.settled) == ("completed", "", True)
    with pytest.raises(
        ConfigError, match="is completed; only what was cancelled or failed is resumed"
    ):
        database.jobs.begin_attempt(job)


def test_what_was_seen_of_an_earlier_attempt_is_not_taken(database: RunDatabase) -> None:
    job = made(database)
    database.jobs.record_state(job, "cancelled", settled=True)
    second = database.jobs.begin_attempt(job)
    assert (second.state, second.attempt, second.settled, second.run.ended) == (
        "creating",
        2,
        False,
        None,
    )
    with pytest.raises(ConfigError, match="is creating; only"):
        database.jobs.begin_attempt(job)
    assert not database.jobs.record_state(job, "cancelled")
    assert database.jobs.get(job.id).state == "creating"


def test_jobs_are_found(database: RunDatabase) -> None:
    run = database.runs.create("no job")
    first, second, third = made(database, "a"), made(database, "b"), made(database, "a")
    assert [job.id for job in database.jobs.find()] == [third.id, second.id, first.id]
    assert [job.id for job in database.jobs.find("a")] == [third.id, first.id]
    assert [job.id for job in database.jobs.find(limit=1)] == [third.id]
    with pytest.raises(ConfigError, match="is no job"):
        database.jobs.get(run)
    assert not database.jobs.is_abandoned(first)
    database.delete([first.id], even_if_running=True)
    assert [job.id for job in database.jobs.find("a")] == [third.id]


def test_a_job_may_bear_the_name_of_the_experiment_that_it_carries_out(
    database: RunDatabase,
) -> None:
    job = made(database, "digits")
    run = database.runs.find_or_create("digits", Configuration({"rate": 0.1}))
    assert run.id != job.id
    assert database.jobs.get("digits").id == job.id
    assert database.runs.get("digits").id == run.id
    database.runs.enter(run.id, "cancelled")
    assert database.runs.find_or_create("digits", Configuration({"rate": 0.1})).id == run.id


def test_two_who_look_at_once_share_the_room_for_figures(
    database: RunDatabase, opened: Callable[..., RunDatabase]
) -> None:
    job, together, others = made(database), threading.Barrier(4), [opened() for _ in range(4)]
    written = []

    def tell(number: int) -> None:
        figures = {f"{number} {n}": float(n) for n in range(MOST_METRICS - 50)} | {
            "loss": float(number)
        }
        together.wait()  # each knows the job as it was before the others told of it
        written.append(others[number].jobs.record_state(job, "in progress", figures=figures))

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == [True] * 4
    stored = database.jobs.get(job.id).run.statistics
    assert len(stored) == MOST_METRICS
    database.jobs.record_state(job, "in progress", figures={"another": 1.0, "loss": 7.0})
    assert dict(database.jobs.get(job.id).run.statistics) == {**stored, "loss": 7.0}


def test_figures_that_were_seen_before_its_end_replace_none_of_those_at_its_end(
    database: RunDatabase,
) -> None:
    job = made(database)
    database.jobs.record_state(job, "completed", figures={"loss": 0.1})
    assert not database.jobs.record_state(job, "in progress", figures={"loss": 0.9})
    assert dict(database.jobs.get(job.id).run.statistics) == {"loss": 0.1}
