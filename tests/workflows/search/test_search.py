"""``nn.search``: any Python function, its failures, its reports, and what comes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tools.installed import needs

import nnpipe
from nnpipe.core.errors import ConfigError
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import MemoryTrials, SearchTrial

needs("optuna")

SPACE = {"x": {"kind": "uniform", "low": -1, "high": 1}, "n": {"kind": "int", "low": 1, "high": 9}}


def parabola(x: float, n: int = 3) -> float:
    return x * x + abs(n - 4)


def test_the_best_configuration_of_a_function_is_found() -> None:
    seen: list[SearchTrial] = []
    found = nnpipe.search(
        parabola, SPACE, objectives={"value": "minimize"}, trials=60, watch=seen.append
    )
    assert found.best.values["value"] < 0.3
    assert found.front == (found.best,)
    assert [trial.number for trial in seen] == list(range(60))
    assert "60 finished" in str(found)
    assert parabola(**found.arguments) == found.best.values["value"]


@pytest.mark.parametrize(
    "how", [{"space": {"n": {"kind": "int", "low": 6, "high": 9}}}, {"constraints": ["n >= 6"]}]
)
def test_what_the_space_has_come_to_exclude_is_never_the_best(how: dict[str, Any]) -> None:
    store = MemoryTrials()
    fixed = {"sampler": "random", "trials": 60, "objectives": {"value": "minimize"}}
    before = {"n": {"kind": "int", "low": 1, "high": 9}}
    found = nnpipe.search(lambda n: abs(n - 4), before, store=store, **fixed)
    assert found.best.configuration == {"n": 4}
    now = SearchSpace.from_json(how.get("space", before), how.get("constraints", ()))
    narrower = dataclasses.replace(found, space=now)
    assert narrower.best.configuration == {"n": 6}
    assert [trial.configuration for trial in narrower.front] == [{"n": 6}]
    assert narrower.arguments == {"n": 6}


def test_trials_of_a_store_are_gone_on_with_in_several_threads() -> None:
    store = MemoryTrials()
    nnpipe.search(
        parabola, SPACE, objectives={"value": "minimize"}, trials=5, sampler="random", store=store
    )
    found = nnpipe.search(
        parabola,
        SPACE,
        objectives={"value": "minimize"},
        trials=24,
        sampler="random",
        store=store,
        workers=3,
    )
    assert len(found.finished) == 24


def test_reports_let_the_pruner_end_trials() -> None:
    steps = []

    def trained(x: float, report: Callable[[int, float], None]) -> float:
        for epoch in range(1, 10):
            report(epoch, 1 - x * x)
            steps.append(epoch)
        return 1 - x * x

    found = nnpipe.search(
        trained,
        {"x": SPACE["x"]},
        objectives={"accuracy": "maximize"},
        sampler="random",
        trials=30,
        pruner="asha",
    )
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned
    assert len(steps) < 30 * 9 / 2
    assert all(trial.values["accuracy"] == trial.reports[-1][1] for trial in pruned)


def test_a_failed_trial_is_told_and_the_search_goes_on() -> None:
    def picky(x: float) -> float:
        if x > 0:
            raise ValueError("x is\ntoo large")
        return x

    found = nnpipe.search(
        picky, {"x": SPACE["x"]}, objectives={"value": "minimize"}, trials=12, sampler="random"
    )
    messages = {trial.message for trial in found.trials if trial.state == "failed"}
    assert messages == {"ValueError: x is too large"}
    assert found.best.values["value"] < 0
    assert nnpipe.search(
        lambda x: float("nan") if x > 0 else x,
        {"x": SPACE["x"]},
        objectives={"value": "minimize"},
        trials=12,
    ).finished


def test_values_have_names_where_there_are_several() -> None:
    goals: Any = {"gain": "maximize", "cost": "minimize"}
    found = nnpipe.search(
        lambda n: {"gain": n, "cost": n, "more": 0}, {"n": SPACE["n"]}, objectives=goals, trials=9
    )
    assert len(found.front) == 9
    with pytest.raises(ConfigError, match="best: name one of the objectives: gain, cost"):
        found.best  # noqa: B018


@pytest.mark.parametrize(
    ("space", "more", "said"),
    [
        ({"y": SPACE["x"]}, {}, "space: parabola takes no argument 'y'; it takes: x, n"),
        ({"n": SPACE["n"]}, {}, "space: parabola needs the argument 'x', which is no parameter"),
        (
            SPACE,
            {"objectives": {"loss": "least"}},
            "objectives.loss: expected minimize or maximize, found 'least'",
        ),
        (
            SPACE,
            {"objectives": None},
            "nothing says whether less of what the function returns is better",
        ),
        (SPACE, {"sampler": "tpee"}, "sampler: expected an object with a kind"),
        (SPACE, {"trials": 0}, "trials"),
        (SPACE, {"trials": 10**38}, "trials"),
        (
            SPACE,
            {"sampler": {"kind": "nsga2", "population": 10**38}},
            "sampler: population takes a number from 2 to 100000",
        ),
        (
            SPACE,
            {"sampler": {"kind": "grid", "points": 10**38}},
            "sampler: points takes a number from 1 to 100000",
        ),
        (SPACE, {"constraints": ["x <"]}, "constraints.0: 'x <' is no expression"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(space: Any, more: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        nnpipe.search(parabola, space, **{"objectives": {"value": "minimize"}, **more})
    assert "\n" not in str(error.value)


def test_a_function_that_always_fails_ends_the_search() -> None:
    def broken(x: float) -> float:
        raise RuntimeError("out of cheese")

    with pytest.raises(
        ConfigError,
        match="the first 5 trials failed, the last one with RuntimeError: out of cheese",
    ):
        nnpipe.search(broken, {"x": SPACE["x"]}, objectives={"value": "minimize"})


@pytest.mark.slow
def test_a_study_of_optuna_holds_the_very_values_states_and_reports(tmp_path: Path) -> None:
    import optuna

    space: Any = {
        "rate": {"kind": "power", "low": -4, "high": -1},
        "units": {"kind": "discrete", "values": [16, 64, 256], "ordered": True},
        "drop": {"kind": "uniform", "low": 0, "high": 0.5, "step": 0.1},
        "head": {"kind": "mapping", "values": {"small": {"n": 1}, "large": {"n": 9}}},
        "bias": {"kind": "bool"},
        "n": {"kind": "int", "low": 1, "high": 9, "when": "bias"},
    }

    def trained(
        rate: float, units: int, drop: float, head: Any, bias: bool, report: Any, n: int = 0
    ) -> float:
        if units == 16 and bias:
            raise ValueError("too small")
        for epoch in range(1, 10):
            report(epoch, rate * epoch)
        return rate + drop

    found = nnpipe.search(
        trained, space, trials=40, sampler="random", pruner="asha", objectives={"loss": "minimize"}
    )
    url = f"sqlite:///{tmp_path / 'study.db'}"
    found.to_optuna(url, "mine")
    study = optuna.load_study(study_name="mine", storage=url)
    states = {"finished": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    assert {trial.state for trial in found.trials} == states.keys()
    for ours, theirs in zip(found.trials, study.trials, strict=True):
        assert theirs.number == ours.number
        assert theirs.state.name == states[ours.state]
        assert theirs.params == ours.configuration
        assert theirs.intermediate_values == dict(ours.reports)
        assert theirs.user_attrs.get("message", "") == ours.message
        if ours.state == "finished":
            assert theirs.value == ours.values["loss"]
    distributions = {
        name: each for trial in study.trials for name, each in trial.distributions.items()
    }
    assert distributions["units"].choices == (16, 64, 256)
    assert (distributions["drop"].low, distributions["drop"].high, distributions["drop"].step) == (
        0,
        0.5,
        0.1,
    )
    assert distributions["rate"].log
    assert study.metric_names == ["loss"]
    with pytest.raises(ConfigError, match="there is a study 'mine' already"):
        found.to_optuna(url, "mine")


def test_a_search_is_a_study_of_optuna() -> None:
    study = nnpipe.search(parabola, SPACE, objectives={"value": "minimize"}, trials=12).to_optuna()
    assert len(study.trials) == 12
    assert study.best_value == min(trial.value for trial in study.trials)
