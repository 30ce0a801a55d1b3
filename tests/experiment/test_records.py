"""Statistics, history, callbacks and status."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.history import History, Statistic, Statistics
from nnpipe.experiment.module import StateError
from nnpipe.experiment.state import State
from nnpipe.experiment.status import NEXT, Status
from nnpipe.experiment.triggers import CallbackFailed, Callbacks

PAIRS = st.lists(st.tuples(st.floats(-1e3, 1e3), st.just(0.0) | st.floats(0.01, 10)), max_size=30)


@given(PAIRS, st.integers(0, 30))
def test_statistics_of_parts_are_those_of_the_whole(pairs, cut):
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    whole = Statistic.from_values(values, weights)
    merged = Statistic.from_values(values[:cut], weights[:cut]).merge(
        Statistic.from_values(values[cut:], weights[cut:])
    )
    assert merged.count == whole.count == sum(w > 0 for w in weights)
    assert merged.weight == pytest.approx(whole.weight)
    assert merged.mean == pytest.approx(whole.mean, abs=1e-6)
    assert merged.spread == pytest.approx(whole.spread, rel=1e-6, abs=1e-3)
    assert (merged.least, merged.greatest) == (whole.least, whole.greatest)


def test_statistics_are_those_of_numpy():
    values = np.random.default_rng(0).normal(3, 2, 1000)
    statistics = Statistics()
    for part in np.split(values, [10, 400]):
        statistics.add("x", part)
    assert statistics["x"].mean == pytest.approx(values.mean())
    assert statistics["x"].deviation == pytest.approx(values.std())
    assert statistics.means() == {"x": pytest.approx(values.mean())}
    other = Statistics()
    other.load_state_dict(statistics.state_dict())
    assert other.state_dict() == statistics.state_dict()
    other.clear()
    assert len(other) == 0
    assert math.isnan(Statistic().deviation)


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [([1, 2], [1], "as many weights"), ([1], [-1], "cannot be negative")],
)
def test_bad_weights_are_refused(values, weights, message):
    with pytest.raises(ConfigError, match=message):
        Statistics().add("x", values, weights)


@pytest.mark.parametrize(
    "state",
    [
        5,
        {"x": 5},
        {1: {}},
        {"x": {"count": 1}},
        {"x": dict.fromkeys(("count", "weight", "mean", "spread", "least", "greatest"), "1")},
    ],
)
def test_what_are_no_statistics_are_refused(state):
    statistics = Statistics()
    statistics.add("y", 1.0)
    with pytest.raises(StateError):
        statistics.load_state_dict(state)
    assert statistics["y"].count == 1


def test_a_history_has_rows_and_columns():
    history = History()
    history.append(step=1, loss=np.float32(0.5))
    history.append(step=2, loss=0.25, accuracy=np.array([0.5]))
    assert history.names == ("step", "loss", "accuracy")
    np.testing.assert_array_equal(history["accuracy"], [np.nan, 0.5])
    assert history.best("loss") == 1
    assert history.best("loss", largest=True) == 0
    assert history.last == {"step": 2, "loss": 0.25, "accuracy": 0.5}
    assert (len(history), next(history.rows())) == (2, {"step": 1, "loss": 0.5})
    other = History()
    other.load_state_dict(history.state_dict())
    assert other.state_dict() == history.state_dict()


def test_a_history_takes_numbers_only():
    history = History()
    for value in ("0.5", None, [1], np.zeros(2)):
        with pytest.raises(ConfigError, match="loss: a history holds numbers"):
            history.append(loss=value)
    with pytest.raises(KeyError):
        _ = history["loss"]
    with pytest.raises(ConfigError, match="no row has a value of 'loss'"):
        history.best("loss")
    for state in ({}, {"rows": 5}, {"rows": [5]}, {"rows": [{"a": "b"}]}, 3):
        with pytest.raises(StateError):
            history.load_state_dict(state)


def test_callbacks_are_called_in_order_and_every_so_often():
    called = []
    callbacks = Callbacks("step", "end")
    callbacks.on("step", lambda n: called.append(("a", n)))
    callbacks.on("step", lambda n: called.append(("b", n)), every=2)
    callbacks.on("end", lambda: called.append("end"))
    for number in range(1, 4):
        callbacks.trigger("step", number)
    callbacks.trigger("end")
    assert called == [("a", 1), ("a", 2), ("b", 2), ("a", 3), "end"]
    other = Callbacks("step", "end")
    other.on("step", lambda n: called.append(("c", n)), every=2)
    other.load_state_dict(callbacks.state_dict())
    other.trigger("step", 4)
    assert called[-1] == ("c", 4)  # the fourth time, counting those before the restart


def test_a_callback_that_raises_stops_all_unless_told_otherwise(caplog):
    callbacks = Callbacks("step")
    callbacks.on("step", lambda: 1 / 0, on_error="log")
    with caplog.at_level(logging.ERROR):
        callbacks.trigger("step")
    assert "called at step, failed" in caplog.text
    callbacks.on("step", lambda: {}["gone"])
    after = []
    callbacks.on("step", lambda: after.append(1))
    with pytest.raises(CallbackFailed, match="called at step, failed: 'gone'") as caught:
        callbacks.trigger("step")
    assert isinstance(caught.value.__cause__, KeyError)
    assert not after


def test_callbacks_with_a_state_are_children():
    class Counter(State):
        def __call__(self, *arguments):
            self.count += 1

    callbacks = Callbacks("step")
    callbacks.on("step", Counter(count=0))
    callbacks.trigger("step")
    assert callbacks.state_dict() == {"times.step": {"count": 1}, "functions.0": {"count": 1}}


def test_unknown_triggers_are_named():
    callbacks = Callbacks("epoch_end")
    with pytest.raises(ConfigError, match="did you mean epoch_end"):
        callbacks.on("epoch_edn", print)
    with pytest.raises(ConfigError, match="at least 1"):
        callbacks.on("epoch_end", print, every=0)


@given(st.lists(st.sampled_from(list(NEXT)), max_size=8))
def test_a_status_goes_only_where_it_may(phases):
    status = Status()
    for phase in phases:
        before = status.phase
        if phase in NEXT[before]:
            status.enter(phase, "because")
            assert (status.phase, status.state.reason) == (phase, "because")
        else:
            with pytest.raises(ConfigError, match=f"what is {before}"):
                status.enter(phase)
            assert status.phase == before


def test_a_status_knows_how_far_it_is():
    status = Status()
    assert status.fraction is None
    status.advance(3, 12)
    assert status.fraction == 0.25
    status.advance(13)
    assert status.fraction == 1.0
    other = Status()
    other.load_state_dict(status.state_dict())
    assert other.fraction == 1.0
    with pytest.raises(StateError, match="no phase is called 'dreaming'"):
        other.load_state_dict({"state": {"phase": "dreaming", "done": 0, "total": 0, "reason": ""}})
