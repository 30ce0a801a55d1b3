"""Data as a plugin holds them go into a model, and its outputs come back as many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.testing.fakes import FakeSession
from nnpipe.workflows.testrun.predictor import Predictor

FLOATS = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
PAIR = IOSpec(
    (TensorSpec("a", (None, 1), "float32"), TensorSpec("b", (None, 1), "int64")),
    (TensorSpec("c", (None, 1), "float32"), TensorSpec("d", (None, 1), "int64")),
)
BYTES = IOSpec(
    (TensorSpec("x", (None, 2), "int8", 0.5, 3),), (TensorSpec("y", (None, 2), "int8", 0.5, 3),)
)


class Wrapper(ModelWrapper):
    """Doubles before the model and adds one after it."""

    def __init__(self, io: IOSpec) -> None:
        object.__setattr__(self, "_build_io", io)

    @property
    def io(self) -> IOSpec:
        return self._build_io

    def preprocess(self, inputs):
        return {name: array * 2 for name, array in inputs.items()}

    def postprocess(self, outputs):
        return {name: array + 1 for name, array in outputs.items()}

    def build(self) -> Any: ...
    def load(self, live: LiveModel, path: Any) -> None: ...
    def save(self, live: LiveModel, path: Any) -> Any: ...
    def session(self, live: LiveModel) -> Any: ...


def predictor(io: IOSpec, session_io: IOSpec | None = None, **options: Any) -> Predictor:
    return Predictor(FakeSession(session_io or io), Wrapper(io), **options)


def fixed(size: int) -> IOSpec:
    return IOSpec(
        (TensorSpec("x", (size, 2), "float32"),), (TensorSpec("y", (size, 2), "float32"),)
    )


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("session_io", [FLOATS, fixed(1), fixed(4)])
def test_any_number_of_samples_comes_back_in_order(count, session_io):
    data = np.arange(2.0 * count).reshape(count, 2)
    found = predictor(FLOATS, session_io, size=4).predict(data)
    np.testing.assert_array_equal(found, data * 2 + 1)
    assert found.dtype == np.float32


def test_calls_are_no_larger_than_asked_for():
    session = FakeSession(FLOATS, function=lambda array: np.full_like(array, len(array)))
    found = Predictor(session, Wrapper(FLOATS), processed=False, size=4).predict(np.zeros((9, 2)))
    assert found[:, 0].tolist() == [4] * 8 + [1]


def test_several_inputs_go_by_name_and_several_outputs_come_by_name():
    data = {"b": [[1], [2]], "a": np.array([[0.5], [1.5]])}
    found = predictor(PAIR).predict(data)
    assert found["c"].tolist() == [[2], [4]]
    assert found["d"].tolist() == [[3], [5]]


def test_without_processing_the_model_gets_the_data_themselves():
    assert predictor(FLOATS, processed=False).predict([[1, 2]]).tolist() == [[1, 2]]


def test_a_quantised_model_is_given_and_gives_real_numbers():
    data = np.array([[1.0, -2.5]])
    assert predictor(BYTES, processed=False).predict(data).tolist() == [[1, -2.5]]
    compiled = predictor(FLOATS, BYTES, processed=False)
    assert compiled.predict(data).tolist() == [[1, -2.5]]
    assert predictor(BYTES, processed=False).predict(np.array([[5, -2]], np.int8)).tolist() == [
        [1, -2.5]
    ]


@pytest.mark.parametrize(
    ("io", "data", "told"),
    [
        (FLOATS, np.zeros((0, 2)), "expected samples"),
        (FLOATS, np.float32(1), "x: a single float32; the first axis must count samples"),
        (FLOATS, np.zeros(2), r"tensor 'x' has shape \(2\), expected \(\?, 2\)"),
        (FLOATS, object(), "x: object holds objects, not numbers"),
        (FLOATS, [[1], [2, 3]], "x: list is no array"),
        (FLOATS, {"z": np.zeros((1, 2))}, "expected inputs x; given: z"),
        (FLOATS, [["a", "b"]], "Wrapper cannot preprocess x of <U1"),
        (PAIR, np.zeros((1, 1)), "the model takes a, b: give a dict"),
        (
            PAIR,
            {"a": np.zeros((1, 1)), "b": np.zeros((2, 1))},
            "as many for each input; found a: 1, b: 2",
        ),
        (
            PAIR,
            {"a": np.zeros((1, 1)), "b": np.full((1, 1), 0.3)},
            "tensor 'b' has float64 elements, expected int64",
        ),
    ],
)
def test_what_the_model_does_not_take_is_told(io, data, told):
    with pytest.raises(SpecMismatch, match=told):
        predictor(io).predict(data)


def test_outputs_that_do_not_tell_samples_apart_are_told():
    session = FakeSession(FLOATS, function=lambda array: array.sum(0, keepdims=True))
    alone = Predictor(session, Wrapper(FLOATS), processed=False, size=2)
    assert alone.predict(np.ones((2, 2))).tolist() == [[2, 2]]
    with pytest.raises(SpecMismatch, match=r"output 'y' of shape .* does not tell samples apart"):
        alone.predict(np.ones((4, 2)))
