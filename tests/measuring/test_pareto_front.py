import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.pareto_front import compute_front_shares, on_front

_FIGURES = st.integers(0, 3).map(float) | st.just(np.nan) | st.just(np.inf)
_TABLES = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=_FIGURES)
)


def by_all_pairs(values):
    """Apply the definition to every pair."""
    known = np.where(np.isnan(values), np.inf, values)
    one, other = known[..., :, None, :], known[..., None, :, :]
    return ~((other <= one).all(-1) & (other < one).any(-1)).any(-1)


def test_the_front_holds_what_nothing_beats():
    values = [[1, 9], [2, 5], [3, 5], [9, 1], [9, 2], [2, 5]]
    assert on_front(values).tolist() == [True, True, False, True, False, True]


def test_an_unknown_figure_is_beaten_by_a_known_one():
    assert on_front([[1, np.nan], [1, 3]]).tolist() == [False, True]
    assert on_front([[0.5, np.nan], [1, 3]]).tolist() == [True, True]


@given(_TABLES)
def test_the_front_is_what_the_definition_says(values):
    assert on_front(values).tolist() == by_all_pairs(values).tolist()
    assert on_front(values).any(-1).all()


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [4, 10**9])
def test_many_candidates_are_judged_as_by_all_pairs(objectives, steps):
    values = (
        np.random.default_rng(objectives)
        .integers(0, steps, (5, 150, objectives))
        .astype(np.float64)
    )
    values[1, :, -1] = -values[1, :, 0]  # here no candidate beats another that differs
    assert on_front(values).tolist() == by_all_pairs(values).tolist()


def test_shares_count_draws():
    rng = np.random.default_rng(0)
    draws = np.empty((4000, 3, 2))
    draws[:, 0] = [1.0, 1.0]
    draws[:, 1] = [2.0, 2.0]  # always beaten
    draws[:, 2, 0] = 1.0 + rng.choice([-0.1, 0.1], 4000)  # beaten half of the time
    draws[:, 2, 1] = 1.0
    shares = compute_front_shares(draws)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0.5, abs=0.05)
    assert shares[0] + shares[2] == pytest.approx(1)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (3,)])
def test_a_front_of_nothing_is_refused(shape):
    with pytest.raises(ConfigError, match="at least one candidate"):
        on_front(np.zeros(shape))


@pytest.mark.slow
@pytest.mark.parametrize("objectives", [2, 3])
def test_pairs_are_not_all_looked_at(objectives):
    values = np.random.default_rng(0).random((4000, objectives))
    tracemalloc.start()
    try:
        on_front(values)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4000**2 / 8  # not even a bit for each pair
