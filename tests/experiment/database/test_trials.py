"""Trials in the run database keep the contract of stores, in both backends."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from trial_store_contract import Make, TrialStoreContract

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import EarlierTrial, LeaseLost, Proposal


class TestDatabaseTrials(TrialStoreContract):
    @pytest.fixture
    def make(self, database: RunDatabase) -> Make:
        search = database.searches.open("squares", {"y": "minimize"})
        return lambda **options: DatabaseTrials(database, search, **options)


def test_a_search_goes_on_by_its_name_and_its_choices_may_grow(
    opened: Callable[..., RunDatabase],
) -> None:
    database = opened()
    database.runs.create("widths")  # a run of the same name is something else
    search = database.searches.open(
        "widths", {"y": "minimize"}, Configuration({"x": {"values": [1, 2]}})
    )
    trials = DatabaseTrials(database, search)
    for x in (1, 2):
        lease = trials.lease("one", lambda number, x=x: Proposal({"x": x}), 2)
        assert lease is not None
        trials.report(lease, 1, math.nan)
        trials.finish(lease, {"y": math.inf})
    again = opened()
    assert (
        again.searches.open(
            "widths", {"y": "minimize"}, Configuration({"x": {"values": [1, 2, 3]}})
        )
        == search
    )
    assert again.runs.get(search).configuration == {"x": {"values": [1, 2, 3]}}
    grown = DatabaseTrials(again, search)
    assert [(trial.configuration, trial.values) for trial in grown.trials()] == [
        ({"x": 1}, {"y": math.inf}),
        ({"x": 2}, {"y": math.inf}),
    ]
    assert math.isnan(grown.trials()[0].reports[0][1])
    assert again.searches.get(search).best == {}  # infinite values are no best ones
    assert grown.lease("one", lambda number: Proposal({"x": 3}), 3) is not None
    with pytest.raises(
        ConfigError, match=r'begun with the objectives \{"y": "minimize"\}, not \{"y": "maximize"\}'
    ):
        again.searches.open("widths", {"y": "maximize"})


def test_a_search_is_counted_by_state_and_deleted_with_its_trials(database: RunDatabase) -> None:
    search = database.searches.open("widths", {"y": "minimize"})
    trials = DatabaseTrials(database, search)
    trials.take_over([EarlierTrial({"x": 9}, {"y": 1.0}, "run 1")])
    lease = trials.lease("one", lambda number: Proposal({"x": 1}), 2)
    assert lease is not None
    trials.report(lease, 1, 0.5)
    found = database.searches.get("widths")
    assert (found.counts, found.taken_over) == ({"finished": 1, "running": 1}, 1)
    assert found.best == {"y": 1.0}
    for condition in ("best.y <= 1", "not best.y > 1 and trials.running = 1", "best.z = null"):
        assert [run.id for run in database.runs.find(condition, order="-best.y")] == [search]
    database.delete([search], even_if_running=True)
    for write in (lambda: trials.lease("one", lambda number: None, 9), trials.trials):
        with pytest.raises(ConfigError, match="has been deleted"):
            write()
    with pytest.raises(LeaseLost):
        trials.finish(lease, {"y": 0.0})
    with pytest.raises(ConfigError, match="is no search"):
        database.searches.get(database.runs.create("walk"))
