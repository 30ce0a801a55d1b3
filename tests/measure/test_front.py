import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nnpipe.core.errors import ConfigError
from nnpipe.measure.front import front_shares, on_front

_TABLES = st.tuples(st.integers(1, 7), st.integers(1, 3)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 3).map(float))
)


def test_the_front_holds_what_nothing_beats():
    values = [[1, 9], [2, 5], [3, 5], [9, 1], [9, 2], [2, 5]]
    assert on_front(values).tolist() == [True, True, False, True, False, True]


def test_an_unknown_figure_is_beaten_by_a_known_one():
    assert on_front([[1, np.nan], [1, 3]]).tolist() == [False, True]
    assert on_front([[0.5, np.nan], [1, 3]]).tolist() == [True, True]


@given(_TABLES)
def test_the_front_is_what_the_definition_says(values):
    expected = [
        not any(all(o <= m for o, m in zip(other, mine, strict=True)) and any(other < mine) for other in values)
        for mine in values
    ]
    assert on_front(values).tolist() == expected
    assert on_front(values).any()


def test_shares_count_draws():
    rng = np.random.default_rng(0)
    draws = np.empty((4000, 3, 2))
    draws[:, 0] = [1.0, 1.0]
    draws[:, 1] = [2.0, 2.0]  # always beaten
    draws[:, 2, 0] = 1.0 + rng.choice([-0.1, 0.1], 4000)  # beaten half of the time
    draws[:, 2, 1] = 1.0
    shares = front_shares(draws)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0.5, abs=0.05)
    assert shares[0] + shares[2] == pytest.approx(1)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (3,)])
def test_a_front_of_nothing_is_refused(shape):
    with pytest.raises(ConfigError, match="at least one candidate"):
        on_front(np.zeros(shape))
