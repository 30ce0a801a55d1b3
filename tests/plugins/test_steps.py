"""Test data are divided into steps, and what does not go together is told before a model runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.plugins.plugin import TestData
from nnpipe.plugins.steps import as_array, iterate_steps


def divided(data, steps, expected=None):
    return list(iterate_steps(TestData(data, steps, expected), "mine.py"))


@given(count=st.integers(1, 50), steps=st.integers(1, 50), by_step=st.booleans())
def test_arrays_are_divided_without_losing_a_sample(count, steps, by_step):
    if steps > count:
        with pytest.raises(
            ConfigError, match=f"gave {count} samples, which cannot be divided into {steps} steps"
        ):
            divided(np.arange(count), steps)
        return
    expected = [str(n) for n in range(steps)] if by_step else [str(n) for n in range(count)]
    found = divided({"x": np.arange(count), "y": -np.arange(count)}, steps, expected)
    assert [step.number for step in found] == list(range(1, steps + 1))
    assert np.concatenate([step.data["x"] for step in found]).tolist() == list(range(count))
    assert np.concatenate([step.data["y"] for step in found]).tolist() == [-n for n in range(count)]
    assert [n for step in found for n in step.samples] == list(range(count))
    lengths = {len(step.samples) for step in found}
    assert max(lengths) - min(lengths) <= 1
    if by_step and steps != count:
        assert [step.expected for step in found] == expected
    else:
        assert [text for step in found for text in step.expected] == expected


def test_lists_hold_an_item_for_each_step():
    found = divided([[1.0], [2.0, 3.0]], 2, ["a", "b"])
    assert [(step.data, step.expected, step.samples) for step in found] == [
        ([1.0], "a", None),
        ([2.0, 3.0], "b", None),
    ]


def test_whatever_can_be_iterated_is_taken_only_as_far_as_there_are_steps():
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield np.full((2, 3), taken[-1])

    found = divided(endless(), 3)
    assert [step.data[0, 0] for step in found] == [0, 1, 2]
    assert taken == [0, 1, 2]


def test_steps_are_named_with_their_samples():
    assert [step.title for step in divided(np.zeros(5), 3)] == [
        "step 1 of 3 (sample 0)",
        "step 2 of 3 (samples 1 to 2)",
        "step 3 of 3 (samples 3 to 4)",
    ]
    assert [step.title for step in divided([1, 2], 2)] == ["step 1 of 2", "step 2 of 2"]


def failing():
    yield 1
    raise OSError("no more disk")


@pytest.mark.parametrize(
    ("data", "steps", "expected", "told"),
    [
        (5, 1, None, "gave a int as data; expected an array"),
        ("text", 1, None, "gave a str as data"),
        ({}, 1, None, "a dict of nothing"),
        (
            {"x": np.zeros(2), "y": np.zeros(3)},
            1,
            None,
            r"x: an array of shape \(2,\), y: an array of shape \(3,\)",
        ),
        ({"x": [1, 2]}, 1, None, "x: a list of 2; it must hold arrays"),
        (np.float32(1), 1, None, "the first axis must count samples"),
        ([1, 2], 3, None, "gave 2 items as data, and 3 steps"),
        ([1, 2], 2, [1], "gave 1 items as expected output, and 2 steps"),
        ([1, 2], 2, 7, "gave a int as expected output of 2 steps"),
        (
            np.zeros(4),
            2,
            np.zeros(3),
            r"an array of shape \(3,\) as expected output of 4 samples in 2 steps",
        ),
        (np.zeros(4), 2, {"a": np.zeros(4), "b": np.zeros(3)}, "a dict of 2 as expected output"),
        (iter([1]), 2, None, "the data of load_test_data ended after 1 of 2 steps"),
        (
            failing(),
            2,
            None,
            "the data of load_test_data failed at step 2 of 2: OSError: no more disk",
        ),
        (
            iter([1, 2]),
            2,
            iter([1]),
            "the expected output of load_test_data ended after 1 of 2 steps",
        ),
    ],
)
def test_what_does_not_go_together_is_told(data, steps, expected, told):
    with pytest.raises(ConfigError, match=rf"^mine\.py: .*{told}"):
        divided(data, steps, expected)


def test_tensors_are_divided_and_read_like_arrays():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.arange(4.0, requires_grad=True)
    parts = divided(tensor, 2)
    assert [as_array(part.data).tolist() for part in parts] == [[0, 1], [2, 3]]
    assert as_array([1, 2]).tolist() == [1, 2]
