"""A plugin's functions are told apart by reading; nothing is run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.plugins.plugin import SIGNATURES, find_problems


@pytest.mark.parametrize(
    "source",
    [
        "def process_dataset(x, y): return x, y",
        "def process_dataset(y, x): return x, y",
        "def process_dataset(x, y, scale=2, *, shift=0, **rest): return x, y",
        "def process_dataset(*, x, y): return x, y",
        "def load_test_data(path): return [], 1",
        "def process_model_output(model_input, model_output): pass",
        "def process_model_output(model_input, expected_output, model_output): pass",
        "def process_model_output(model_input, model_output, expected_output=None): pass",
        "x = 1\ndef process_dataset(x, y):\n    def inner(): yield 1\n    return x, y",
    ],
)
def test_signatures_that_can_be_called(source):
    assert find_problems(source.encode(), "mine.py") == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def process_dataset(x): pass", "(x) in line 1"),
        ("def process_dataset(x, z): pass", "(x, z) in line 1"),
        ("def process_dataset(x, y, z): pass", "(x, y, z) in line 1"),
        ("def process_dataset(x, y, /): pass", "cannot be given by name"),
        ("def process_dataset(x, y, *, z): pass", "(x, y, *, z) in line 1"),
        ("def process_dataset(*x): pass", "(*x) in line 1"),
        ("async def process_dataset(x, y): pass", "an async function in line 1"),
        ("def process_dataset(x, y): yield x", "a generator in line 1"),
        ("@cache\ndef process_dataset(x, y): pass", "a decorated function"),
        ("process_dataset = print", "something else of that name in line 1"),
        ("from os import system as process_dataset", "something else of that name"),
        ("class process_dataset: pass", "something else of that name"),
        (
            "def process_dataset(x, y): pass\nprocess_dataset = None",
            "something else of that name in line 2",
        ),
        ("if True:\n    process_dataset = 1", "something else"),
        ("def other(): pass", "none of them"),
        ("", "none of them"),
        ("def (", "invalid syntax"),
        ("x = 1\x00", "null byte"),
    ],
)
def test_others_are_told_with_what_was_found(source, found):
    (problem,) = find_problems(source.encode(), "mine.py")
    assert found in problem.found.replace(
        "source code string cannot contain null bytes", "null byte"
    )
    assert str(problem).startswith("mine.py: ")
    assert problem.expected in str(problem)


def test_all_problems_are_told_at_once():
    source = b"def process_dataset(x): pass\nasync def load_test_data(path): pass"
    found = find_problems(source, "mine.py", needed=["process_model_output"])
    assert [problem.function for problem in found] == list(SIGNATURES)
    assert "no such function" in str(found[-1])


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes_are_read_without_a_crash(source):
    assert find_problems(source, "mine.py")
