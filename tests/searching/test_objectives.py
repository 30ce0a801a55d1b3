"""Limits keep trials from being the best, and draw samplers to where they hold."""

from __future__ import annotations

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Limit, Objectives
from nnpipe.searching.samplers import parse_sampler
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import MemoryTrials, SearchTrial

OBJECTIVES = Objectives(
    {"size": "minimize"}, (Limit("loss", 0.1), Limit("accuracy", 0.5, at_most=False))
)


def trial(number: int, **values: float) -> SearchTrial:
    return SearchTrial(number=number, configuration={}, state="finished", values=values)


def test_a_trial_beyond_a_limit_is_neither_best_nor_on_the_front() -> None:
    trials = [
        trial(0, size=1, loss=0.2, accuracy=0.9),
        trial(1, size=2, loss=0.0, accuracy=0.4),
        trial(2, size=3, loss=0.1, accuracy=0.5),
    ]
    best = OBJECTIVES.best(trials, "size")
    assert best is not None
    assert best.number == 2
    assert [each.number for each in OBJECTIVES.find_front(trials)] == [2]


def test_values_with_limits_have_to_be_returned() -> None:
    assert OBJECTIVES.values({"size": 1, "loss": 0, "accuracy": 1, "more": 2}) == {
        "size": 1,
        "loss": 0,
        "accuracy": 1,
    }
    with pytest.raises(ConfigError, match="returned no 'accuracy'"):
        OBJECTIVES.values({"size": 1, "loss": 0})


@pytest.mark.parametrize("kind", ["tpe", "nsga2"])
def test_samplers_go_where_limits_hold(kind: str) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    space = SearchSpace.from_json({name: {"kind": "uniform", "low": 0, "high": 1} for name in "xy"})
    sampler = parse_sampler({"kind": kind, "population": 10} if kind == "nsga2" else kind)

    def share_within(limits: tuple[Limit, ...]) -> float:
        """Return the share of late trials within a limit that the objective pulls away from."""
        objectives, store = Objectives({"size": "minimize"}, limits), MemoryTrials()
        engine = SearchEngine(space, objectives, store, sampler)
        late = []
        for number in range(80):
            lease = store.lease("w", engine.propose, 80)
            assert lease is not None
            x = (lease.trial.configuration or {})["x"]
            store.finish(lease, objectives.values({"size": x, "loss": 1 - x}))
            late += [x >= 0.6] if number >= 40 else []
        return sum(late) / len(late)

    assert share_within(()) < 0.3 < 0.5 < share_within((Limit("loss", 0.4),))
