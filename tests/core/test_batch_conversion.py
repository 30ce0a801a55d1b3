"""Batches cross from real numbers to integers and back by the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.quantization import adapt, adapt_inputs, adapt_outputs
from nnpipe.core.tensors import IOSpec, TensorSpec

REAL = TensorSpec("x", (None,), "float32")
INT8 = TensorSpec("x", (None,), "int8", scale=0.5, zero_point=-3)


@given(arrays(np.float32, 20, elements=st.floats(-60, 60, width=32)))
def test_there_and_back_is_off_by_half_a_step_at_most(x: np.ndarray) -> None:
    stored = adapt({"x": x}, (REAL,), (INT8,))
    assert stored["x"].dtype == np.int8
    back = adapt(stored, (INT8,), (REAL,))["x"]
    assert back.dtype == np.float32
    assert np.abs(back - x).max() <= 0.25


def test_what_fits_already_is_passed_on() -> None:
    x = np.ones(3, np.float32)
    assert adapt({"x": x}, (REAL,), (REAL,))["x"] is x


def test_one_quantisation_becomes_another() -> None:
    other = TensorSpec("x", (None,), "uint8", scale=0.25, zero_point=128)
    stored = np.array([-3, -1], np.int8)
    np.testing.assert_array_equal(adapt({"x": stored}, (INT8,), (other,))["x"], [128, 132])


def test_only_the_element_type_may_differ() -> None:
    wide = TensorSpec("x", (None,), "float64")
    assert adapt({"x": np.ones(2, np.float32)}, (REAL,), (wide,))["x"].dtype == np.float64


def test_names_decide_not_order() -> None:
    a, b = TensorSpec("a", (None,), "float32"), TensorSpec("b", (None,), "float32")
    got = adapt({"a": np.zeros(1, np.float32), "b": np.ones(1, np.float32)}, (a, b), (b, a))
    assert list(got) == ["b", "a"]
    assert got["b"][0] == 1


def test_other_names_are_refused() -> None:
    other = TensorSpec("z", (None,), "float32")
    with pytest.raises(SpecMismatch, match="the model has the tensors x; its compiled form has z"):
        adapt_inputs({"x": np.ones(1, np.float32)}, IOSpec((REAL,), ()), IOSpec((other,), ()))
    with pytest.raises(SpecMismatch, match="tensors"):
        adapt_outputs({"z": np.ones(1, np.float32)}, IOSpec((), (REAL,)), IOSpec((), (other,)))
