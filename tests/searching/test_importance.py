"""Importance: the right order on random and adaptive samples, and Optuna's contract of
evaluators.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.tools.installed import needs

import nnpipe
from nnpipe.core.errors import ConfigError
from nnpipe.searching.importance import AdditiveImportanceEvaluator

needs("optuna")

from optuna.testing.pytest_importance import (  # noqa: E402
    BasicImportanceEvaluatorTestCase,
    ConditionalImportanceEvaluatorTestCase,
    MultiObjectiveImportanceEvaluatorTestCase,
)

WEIGHTS = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0}
SPACE = {name: {"kind": "uniform", "low": 0, "high": 1} for name in WEIGHTS}


def added(**values: float) -> float:
    return sum(WEIGHTS[name] * value for name, value in values.items())


@pytest.mark.parametrize(
    ("sampler", "trials"),
    [
        ("random", 100),
        ("tpe", 100),
        *(pytest.param(kind, 1000, marks=pytest.mark.slow) for kind in ("random", "tpe")),
    ],
)
def test_the_shares_of_a_sum_are_in_the_right_order(sampler: str, trials: int) -> None:
    found = nnpipe.search(
        added, SPACE, objectives={"value": "minimize"}, sampler=sampler, trials=trials
    )
    begin = time.process_time()
    effects = found.importance().effects
    if trials == 1000:
        assert time.process_time() - begin < 1
    assert [effect.name for effect in effects.effects] == ["a", "b", "c", "d"]
    assert [effect.share for effect in effects.effects] == pytest.approx(
        [9 / 14, 4 / 14, 1 / 14, 0], abs=0.02
    )


def test_choices_and_conditions_count_and_are_shown() -> None:
    space: Any = {
        "kind": {"kind": "discrete", "values": ["sgd", "adam"]},
        "momentum": {"kind": "uniform", "low": 0, "high": 1, "when": "kind == 'sgd'"},
        "idle": {"kind": "uniform", "low": 0, "high": 1},
    }
    found = nnpipe.search(
        lambda kind, idle, momentum=0.0: 10.0 * (kind == "adam") + momentum,
        space,
        sampler="random",
        trials=60,
        objectives={"value": "minimize"},
    )
    importance = found.importance()
    assert importance.effects.effects[0].name == "kind"
    assert importance.effects.effects[0].share > 0.9
    assert {row.name for row in importance.ped_anova} == {"kind", "momentum", "idle"}
    assert "idle" in str(importance)
    with pytest.raises(ConfigError, match="there is no objective 'loss'"):
        found.importance("loss")


@pytest.mark.slow
def test_fanova_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    found = nnpipe.search(
        added, SPACE, objectives={"value": "minimize"}, sampler="random", trials=20
    )
    with caplog.at_level(logging.WARNING, "nnpipe"):
        shares = found.importance_by("fanova")
    assert set(shares) == set(WEIGHTS)
    assert "rank parameters wrongly" in caplog.text


class TestAdditiveImportanceEvaluator(
    BasicImportanceEvaluatorTestCase,
    ConditionalImportanceEvaluatorTestCase,
    MultiObjectiveImportanceEvaluatorTestCase,
):
    @pytest.fixture
    def evaluator(self) -> Callable[[], Any]:
        return AdditiveImportanceEvaluator
