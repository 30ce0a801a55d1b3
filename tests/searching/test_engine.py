"""The engine: what it proposes follows from the trials, new every time, within conditions and
constraints.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.samplers import SAMPLERS, parse_sampler
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import MemoryTrials, build_configuration_key

needs("optuna")

ENTRIES: dict[str, Any] = {
    "rate": {"kind": "power", "low": -4, "high": -1},
    "optimiser": {"kind": "discrete", "values": ["sgd", "adam"]},
    "momentum": {
        "kind": "uniform",
        "low": 0,
        "high": 0.9,
        "step": 0.1,
        "when": "optimiser == 'sgd'",
    },
    "units": {"kind": "int", "low": 1, "high": 64, "log": True},
    "size": {"kind": "discrete", "values": [1, 2, 4, 8], "ordered": True},
}
CONSTRAINTS = ["units * size <= 256"]
FAST = [kind for kind in SAMPLERS if kind not in ("gp", "grid")]


def loss(configuration: dict[str, Any]) -> float:
    adam = configuration["optimiser"] == "adam"
    return (
        abs(configuration["units"] - 20) / 20
        + configuration["rate"]
        + configuration.get("momentum", 0.5)
        + adam
    )


def continued(store: MemoryTrials, sampler: Any, limit: int, seed: int = 0) -> list[dict[str, Any]]:
    """Carry on a search with a new engine, and return all configurations."""
    space = SearchSpace.from_json(ENTRIES, CONSTRAINTS)
    engine = SearchEngine(
        space, Objectives({"loss": "minimize"}), store, parse_sampler(sampler), seed=seed
    )
    while lease := store.lease("worker", engine.propose, limit):
        assert lease.trial.configuration is not None
        space.check(lease.trial.configuration)
        assert space.allows(lease.trial.configuration)
        store.finish(lease, {"loss": loss(dict(lease.trial.configuration))})
    return [dict(trial.configuration or {}) for trial in store.trials()]


@pytest.mark.parametrize("kind", FAST)
def test_a_search_that_starts_again_goes_on_as_if_it_had_not_ended(kind: str) -> None:
    sampler = {"kind": kind, "population": 4} if kind in ("nsga2", "cmaes") else kind
    at_once = continued(MemoryTrials(), sampler, 36)
    store = MemoryTrials()
    for limit in (7, 19, 36):
        parts = continued(store, sampler, limit)
    assert parts == at_once
    assert len({build_configuration_key(each) for each in parts}) == 36
    assert continued(MemoryTrials(), sampler, 10, seed=1) != at_once[:10]


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_a_finite_space_is_gone_through_once(sampler: str) -> None:
    space = SearchSpace.from_json(
        {"a": {"kind": "int", "low": 1, "high": 4}, "b": {"kind": "bool"}}, ["not b or a > 2"]
    )
    store = MemoryTrials()
    engine = SearchEngine(space, Objectives({"loss": "minimize"}), store, parse_sampler(sampler))
    while lease := store.lease("worker", engine.propose, 100):
        store.finish(lease, {"loss": 0.0})
    found = [dict(trial.configuration or {}) for trial in store.trials()]
    assert sorted(found, key=str) == sorted(space.iter_configurations(), key=str)
    assert len(found) == 6


def test_noise_allows_a_configuration_again() -> None:
    space = SearchSpace.from_json({"b": {"kind": "bool"}})
    store = MemoryTrials(repeats=True)
    engine = SearchEngine(space, Objectives({"loss": "minimize"}), store, parse_sampler("random"))
    while lease := store.lease("worker", engine.propose, 6):
        store.finish(lease, {"loss": 0.0})
    assert len(store.trials()) == 6


def test_trials_of_a_smaller_space_count_after_choices_were_added() -> None:
    store = MemoryTrials()
    for values in ([1, 2], [1, 2, 3]):
        space = SearchSpace.from_json({"a": {"kind": "discrete", "values": values}})
        engine = SearchEngine(space, Objectives({"loss": "minimize"}), store, parse_sampler("tpe"))
        while lease := store.lease("worker", engine.propose, 10):
            store.finish(lease, {"loss": 0.0})
    assert sorted(trial.configuration["a"] for trial in store.trials() if trial.configuration) == [
        1,
        2,
        3,
    ]


def test_a_search_may_have_several_objectives() -> None:
    space = SearchSpace.from_json({"a": {"kind": "uniform", "low": 0, "high": 1}})
    goals = Objectives({"gain": "maximize", "cost": "minimize"})
    store = MemoryTrials()
    engine = SearchEngine(space, goals, store, parse_sampler({"kind": "nsga2", "population": 4}))
    while lease := store.lease("worker", engine.propose, 20):
        a = (lease.trial.configuration or {})["a"]
        store.finish(lease, {"gain": min(a, 0.5), "cost": a})
    front = goals.find_front(store.trials())
    assert all((trial.configuration or {})["a"] <= 0.5 or trial is front[0] for trial in front)
    with pytest.raises(ConfigError, match="evolution has one objective, and there are 2"):
        SearchEngine(space, goals, store, parse_sampler("evolution"))
    with pytest.raises(ConfigError, match="prune_by: name one of the objectives: gain, cost"):
        SearchEngine(space, goals, store, parse_sampler("random"), prune_by=None, pruner=_median())


def test_constraints_that_allow_next_to_nothing_are_said() -> None:
    space = SearchSpace.from_json({"a": {"kind": "uniform", "low": 0, "high": 1}}, ["a > 2"])
    store = MemoryTrials()
    engine = SearchEngine(space, Objectives({"loss": "minimize"}), store, parse_sampler("random"))
    with pytest.raises(ConfigError, match="the constraints allow no new one"):
        store.lease("worker", engine.propose, 1)


def _median() -> Any:
    from nnpipe.searching.pruners import MedianPruner

    return MedianPruner()
