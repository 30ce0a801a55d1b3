"""Texts as literals give the text again, in one line that can be seen."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from nnpipe.codegen.printing.literals import text


@given(st.one_of(st.text(), st.text("'\"\\\n\r\t{}\u202e𝒆\x00")))
def test_a_literal_gives_its_text_and_hides_nothing(value):
    found = text(value)
    assert ast.literal_eval(found) == value
    assert found.isprintable()


def test_quotes_are_those_that_need_fewer_escapes():
    assert text("it's") == '"it\'s"'
    assert text('say "no"') == "'say \"no\"'"
    assert text("both ' and \"") == '"both \' and \\""'
