"""A search begins with what earlier runs and searches of the database know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.workflows.search.run_file import read_search, run_search

needs("optuna")
needs("sqlalchemy")

MODULE = "def trained(rate, units=4):\n    return rate + units\n"
SPACE = {
    "rate": {"kind": "uniform", "low": 0, "high": 1},
    "units": {"kind": "int", "low": 1, "high": 9},
}


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDatabase]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "warm_search_module.py").write_text(MODULE, "utf-8")
    with RunDatabase("runs.sqlite") as opened:
        yield opened


def settings(**changes: Any) -> Any:
    return read_search(
        {
            "title": "second",
            "function": "warm_search_module.trained",
            "objectives": {"value": "minimize"},
            "space": SPACE,
            "sampler": "random",
            "trials": 3,
            "warm_start": "experiment = first or experiment = single",
            **changes,
        }
    )


def test_finished_trials_and_runs_are_known_and_do_not_count(database: RunDatabase) -> None:
    first = run_search(settings(title="first", trials=4, warm_start=None, seed=1), database)
    for rate, units in ((0.5, 3), (0.25, 99)):  # the second is not of the space
        run = database.runs.create(
            "single", Configuration({"rate": rate, "units": units, "more": True})
        )
        database.figures.put_statistics(run, {"value": rate + units, "other": 1.0})
    database.runs.create("single", Configuration({"rate": 0.75, "units": 1}))  # has no value
    for trials in (3, 5):  # going on takes nothing over again
        found = run_search(settings(trials=trials), database)
        known = [trial for trial in found.trials if trial.origin]
        assert len(found.trials) == len(known) + trials
        assert [trial.configuration for trial in known] == [
            *(trial.configuration for trial in first.trials),
            {"rate": 0.5, "units": 3},
        ]
        assert [trial.values for trial in known] == [
            *(t.values for t in first.trials),
            {"value": 3.5},
        ]
        assert known[0].origin.startswith("trial 0 of search ")
        assert known[-1].origin.startswith("run ")
    assert database.searches.get("second").taken_over == 5
    assert "units" in str(found.importance())


def test_trials_of_repeated_configurations_are_taken_over_once(database: RunDatabase) -> None:
    run_search(settings(title="first", trials=2, warm_start=None), database)
    for _ in range(2):
        found = run_search(settings(repeats=True), database)
    assert [bool(trial.origin) for trial in found.trials] == [True, True, False, False, False]


def test_a_second_search_takes_nothing_over_that_the_first_one_took_over(
    database: RunDatabase,
) -> None:
    run_search(settings(title="first", trials=2, warm_start=None), database)
    run_search(settings(), database)
    run_search(settings(title="third", seed=7, warm_start="experiment != third"), database)
    origins = [trial.origin for trial in DatabaseTrials(database, "third").trials() if trial.origin]
    assert len(set(origins)) == len(origins) == 5


def test_a_condition_that_cannot_be_read_names_its_place() -> None:
    with pytest.raises(ConfigError, match="warm_start: condition"):
        settings(warm_start="experiment ~")
