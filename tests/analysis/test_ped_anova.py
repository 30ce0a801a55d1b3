"""PED-ANOVA: the same shares as Optuna's, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tools.installed import needs

from nnpipe.analysis.factor_importance import Factor, ped_anova
from nnpipe.core.errors import SpecMismatch


@pytest.mark.parametrize(("sampler", "trials"), [("random", 80), ("tpe", 60), ("random", 15)])
def test_shares_are_those_of_optuna(sampler: str, trials: int) -> None:
    needs("optuna")
    import nnpipe

    space: Any = {
        "a": {"kind": "uniform", "low": 0, "high": 1},
        "b": {"kind": "power", "low": -4, "high": -1},
        "n": {"kind": "int", "low": 1, "high": 9},
        "c": {"kind": "discrete", "values": ["x", "y", "z"]},
        "m": {"kind": "uniform", "low": 0, "high": 1, "when": "c == 'x'"},
    }

    def value(a: float, b: float, n: int, c: str, m: float = 0.0) -> float:
        return 3 * a - np.log10(b) + n / 9 + (c == "x") * (1 + m)

    found = nnpipe.search(
        value, space, objectives={"v": "maximize"}, sampler=sampler, trials=trials
    )
    ours = {row.name: row.share for row in found.importance().ped_anova}
    assert ours == pytest.approx(found.importance_by("ped-anova"), abs=1e-6)


def test_what_decides_comes_first_and_its_interval_holds_its_share() -> None:
    random = np.random.default_rng(0)
    positions = random.random((400, 3))
    kind = random.integers(0, 4, 400)
    losses = 4 * positions[:, 0] + positions[:, 1] + 0.01 * random.normal(size=400)
    factors = [
        *(Factor(name, positions[:, place]) for place, name in enumerate("abc")),
        Factor("kind", kind, 4),
    ]
    rows = ped_anova(factors, losses)
    assert [row.name for row in rows[:2]] == ["a", "b"]
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert all(row.low <= row.share <= row.high for row in rows)
    assert rows[0].low > max(row.high for row in rows[2:])


def test_a_factor_that_exists_more_often_among_the_best_matters() -> None:
    random = np.random.default_rng(1)
    there = random.random(300) < 0.5
    losses = np.where(there, 0.0, 1.0) + 0.1 * random.random(300)
    factors = [
        Factor("sometimes", np.where(there, random.random(300), np.nan)),
        Factor("idle", np.where(random.random(300) < 0.5, random.random(300), np.nan)),
    ]
    assert [row.name for row in ped_anova(factors, losses)] == ["sometimes", "idle"]


def test_without_samples_nothing_matters_and_what_does_not_fit_is_refused() -> None:
    assert ped_anova([Factor("a", np.array([0.5]))], [1.0])[0].share == 0.0
    assert ped_anova([Factor("a", np.full(9, 0.5))], np.arange(9.0))[0].share == pytest.approx(
        0.0, abs=1
    )
    with pytest.raises(SpecMismatch, match="losses must be finite"):
        ped_anova([], [np.nan, 1.0])
    with pytest.raises(SpecMismatch, match=r"a: \(2,\) positions"):
        ped_anova([Factor("a", np.zeros(2))], [1.0, 2.0, 3.0])
