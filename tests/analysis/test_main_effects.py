"""The shares of factors with known effects, on samples that are spread evenly and on samples
that crowd together.
"""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.factor_importance import Factor, compute_main_effects
from nnpipe.core.errors import SpecMismatch

WEIGHTS = np.array([3.0, 2.0, 1.0, 0.0])
SHARES = WEIGHTS**2 / (WEIGHTS**2).sum()


def factors(table):
    return [Factor(name, column) for name, column in zip("abcd", table.T, strict=False)]


@pytest.mark.parametrize("samples", [100, 1000])
@pytest.mark.parametrize("crowded", [False, True])
def test_the_shares_of_a_sum_are_its_terms_variances(samples, crowded):
    random = np.random.default_rng(3)
    table = random.uniform(size=(samples, 4))
    # As an adaptive search does: nearly all samples where the greatest term is greatest.
    if crowded:
        table[samples // 5 :, 0] = 1 - table[samples // 5 :, 0] / 20
    found = compute_main_effects(
        factors(table), table @ WEIGHTS + random.normal(scale=0.05, size=samples)
    )
    assert [effect.name for effect in found.effects] == ["a", "b", "c", "d"]
    assert [effect.share for effect in found.effects] == pytest.approx(SHARES, abs=0.04)
    assert sum(effect.share for effect in found.effects) == pytest.approx(1, abs=0.02)
    assert found.explained > 0.9


def test_a_bent_effect_without_a_slope_is_found():
    table = np.random.default_rng(0).uniform(size=(200, 2))
    found = compute_main_effects(factors(table), (table[:, 1] - 0.5) ** 2)
    assert found.effects[0].name == "b"
    assert found.effects[0].share > 0.99


def test_categories_count_by_their_means_and_not_by_their_order():
    random = np.random.default_rng(0)
    kind, other = random.integers(0, 3, 300), random.uniform(size=300)
    values = np.array([0.0, 9.0, 0.0])[kind] + other
    found = compute_main_effects(
        [Factor("other", other), Factor("kind", kind, categories=3)], values
    )
    assert found.effects[0].name == "kind"
    assert found.effects[0].share == pytest.approx(18 / (18 + 1 / 12), abs=0.01)


def test_a_factor_that_does_not_always_exist_counts_with_whether_it_exists():
    random = np.random.default_rng(0)
    momentum = np.where(random.uniform(size=400) < 0.5, np.nan, random.uniform(size=400))
    noise = random.uniform(size=400)
    found = compute_main_effects(
        [Factor("noise", noise), Factor("momentum", momentum)],
        np.where(np.isnan(momentum), 0.0, 5.0),
    )
    assert found.effects[0].name == "momentum"
    assert found.effects[0].share > 0.99


def test_noise_alone_is_not_explained():
    random = np.random.default_rng(0)
    found = compute_main_effects(factors(random.uniform(size=(200, 4))), random.normal(size=200))
    assert found.explained < 0.1
    assert all(effect.low <= effect.share <= effect.high for effect in found.effects)
    assert found.effects[0].share < 0.1


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_shares_are_of_the_whole_variance_with_noise_and_joint_effects(noise):
    random = np.random.default_rng(1)
    table = random.uniform(size=(2000, 4))
    joint = noise * (
        np.sign(table[:, 2] - 0.5) * np.sign(table[:, 3] - 0.5) + random.normal(size=2000)
    )
    found = {
        effect.name: effect.share
        for effect in compute_main_effects(factors(table), table[:, 0] + joint).effects
    }
    assert found["a"] == pytest.approx((1 / 12) / (1 / 12 + 2 * noise**2), abs=0.03)
    assert found["b"] + found["c"] + found["d"] < 0.02


def test_joint_effects_are_left_unexplained():
    table = np.random.default_rng(0).choice([0.0, 1.0], size=(400, 2))
    found = compute_main_effects(factors(table), (table[:, 0] == table[:, 1]).astype(float))
    assert found.explained < 0.1
    assert sum(effect.share for effect in found.effects) < 0.1


@pytest.mark.parametrize("samples", [0, 1, 3])
def test_few_samples_say_nothing(samples):
    found = compute_main_effects(
        factors(np.random.default_rng(0).uniform(size=(samples, 4))), np.arange(samples)
    )
    assert {(effect.share, effect.low, effect.high) for effect in found.effects} == {
        (0.0, 0.0, 0.0)
    }


def test_a_factor_or_a_value_that_never_varies_explains_nothing():
    varied = np.linspace(0, 1, 50)
    found = compute_main_effects(
        [Factor("same", np.full(50, 0.5)), Factor("varied", varied)], varied
    )
    assert [effect.name for effect in found.effects] == ["varied", "same"]
    assert [effect.share for effect in found.effects] == pytest.approx([1.0, 0.0], abs=1e-3)
    assert compute_main_effects([Factor("varied", varied)], np.full(50, 7.0)).effects[0].share == 0


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(SpecMismatch, match="finite"):
        compute_main_effects([Factor("a", np.zeros(2))], [0.0, float("nan")])
    with pytest.raises(SpecMismatch, match=r"a: .* positions for"):
        compute_main_effects([Factor("a", np.zeros(3))], [0.0, 1.0])
    with pytest.raises(SpecMismatch, match="too many"):
        compute_main_effects([Factor("a", np.arange(4), categories=5000)], np.arange(4.0))
