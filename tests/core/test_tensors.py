"""Specifications hold what they promise."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import DTYPES, IOSpec, TensorSpec, check_batch, get_batch_size


def specs() -> st.SearchStrategy[TensorSpec]:
    """Any specification."""
    scale = st.floats(1e-30, 1e30)
    quantisation = st.one_of(
        st.just((None, None, None)),
        st.tuples(scale, st.integers(-128, 127), st.none()),
        st.lists(st.tuples(scale, st.integers(-128, 127)), min_size=1, max_size=4).map(
            lambda rows: (tuple(s for s, _ in rows), tuple(z for _, z in rows), 0)
        ),
    )
    shape = st.lists(st.none() | st.integers(0, 1000), max_size=5).map(tuple)
    return st.builds(
        lambda name, shape, dtype, q: TensorSpec(name, shape, dtype, *q),
        st.text(min_size=1),
        shape,
        st.sampled_from(sorted(DTYPES)),
        quantisation,
    )


@given(
    st.lists(specs(), max_size=4, unique_by=lambda s: s.name),
    st.lists(specs(), max_size=4, unique_by=lambda s: s.name),
)
def test_json_gives_the_same_specification_back(
    inputs: list[TensorSpec], outputs: list[TensorSpec]
) -> None:
    io = IOSpec(tuple(inputs), tuple(outputs))
    assert IOSpec.from_json(json.loads(json.dumps(io.to_json()))) == io


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_foreign_json_is_refused_by_the_right_error(data: object) -> None:
    with pytest.raises(SpecMismatch):
        IOSpec.from_json(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TensorSpec("", (1,), "float32"), "needs a name"),
        (lambda: TensorSpec("x", (1,), "float31"), "'float31' is no element type"),
        (lambda: TensorSpec("x", (-1,), "float32"), "-1 is no axis length"),
        (lambda: TensorSpec("x", (True,), "float32"), "True is no axis length"),
        (lambda: TensorSpec("x", (1,), "int8", scale=0.0), "above zero"),
        (lambda: TensorSpec("x", (1,), "int8", zero_point=3), "without a scale"),
        (lambda: TensorSpec("x", (2,), "int8", scale=(1.0, 2.0)), "need an axis"),
        (
            lambda: TensorSpec("x", (2,), "int8", scale=(1.0, 2.0), zero_point=(1,), axis=0),
            "as many zero points",
        ),
    ],
)
def test_an_impossible_specification_is_refused_at_birth(build: object, message: str) -> None:
    with pytest.raises(SpecMismatch, match=message):
        build()  # type: ignore[operator]


def test_a_scale_without_zero_point_means_zero() -> None:
    assert TensorSpec("x", (1,), "int8", scale=0.5).zero_point == 0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), np.float64), "'x' has float64 elements, expected float32"),
        (np.zeros((2, 4), np.float32), r"'x' has shape \(2, 4\), expected \(\?, 3\)"),
        (np.zeros((3,), np.float32), r"'x' has shape \(3\), expected \(\?, 3\)"),
    ],
)
def test_a_wrong_array_is_named(array: np.ndarray, message: str) -> None:
    with pytest.raises(SpecMismatch, match=message):
        TensorSpec("x", (None, 3), "float32").check(array)


def test_a_free_axis_takes_any_length() -> None:
    for length in (0, 1, 7):
        TensorSpec("x", (None, 3), "float32").check(np.zeros((length, 3), np.float32))


def test_a_batch_holds_exactly_the_tensors_named() -> None:
    wanted = (TensorSpec("a", (None,), "int64"), TensorSpec("b", (None,), "int64"))
    whole = {"b": np.zeros(2, np.int64), "a": np.zeros(2, np.int64)}
    check_batch(wanted, whole)
    for wrong in ({"a": whole["a"]}, whole | {"c": whole["a"]}, {"a": whole["a"], "c": whole["b"]}):
        with pytest.raises(SpecMismatch, match="expected inputs a, b; given: "):
            check_batch(wanted, wrong, "input")


def test_two_tensors_of_one_name_are_refused() -> None:
    spec = TensorSpec("x", (1,), "float32")
    with pytest.raises(SpecMismatch, match="two inputs bear one name"):
        IOSpec((spec, spec), ())
    IOSpec((spec,), (spec,))


def test_batch_size_counts_samples() -> None:
    assert get_batch_size({"x": np.zeros((5, 2))}) == 5
    assert get_batch_size({"x": np.zeros(())}) == 1
    assert get_batch_size({}) == 0


@pytest.mark.parametrize("dtype", ["string", "bfloat16"])
def test_what_numpy_has_no_word_for_is_no_float64(dtype: str) -> None:
    with pytest.raises(SpecMismatch, match=f"has float64 elements, expected {dtype}"):
        TensorSpec("x", (2,), dtype).check(np.zeros(2))
