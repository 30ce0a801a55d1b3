from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.messages import format_one_line


@given(st.text(), st.integers(1, 40))
def test_a_message_is_one_line_and_no_longer_than_asked(text: str, limit: int) -> None:
    found = format_one_line(text, limit)
    assert len(found) <= limit
    assert len(found.splitlines()) <= 1
    assert "  " not in found


@pytest.mark.parametrize(
    ("given", "told"), [(KeyError(), "KeyError"), (ValueError(" "), "ValueError"), ("", "str")]
)
def test_what_says_nothing_is_told_by_its_kind(given: object, told: str) -> None:
    assert format_one_line(given) == told


def test_a_message_that_fits_is_whole() -> None:
    assert format_one_line("x" * 300) == "x" * 300
    assert format_one_line("x" * 301) == "x" * 299 + "…"
