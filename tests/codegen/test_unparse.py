"""Code is the tree that it was made of, hides nothing, and has no parentheses that Python does
not need.
"""

from __future__ import annotations

import ast
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.codegen import unparse
from nnpipe.codegen.unparse import create_remark, generate_source

BINARY = ["|", "^", "&", "<<", ">>", "+", "-", "*", "/", "//", "%", "@", "**"]
COMPARED = ["==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in"]
UNARY = ["not {}", "-{}", "+{}", "~{}"]
FORMS = [
    *(f"{{}} {sign} {{}}" for sign in [*BINARY, *COMPARED]),
    *UNARY,
    "{} and {}",
    "{} or {}",
    "{} if {} else {}",
    "lambda: {}",
    "{}.b",
    "{}[0]",
    "{}()",
    "f({})",
    "[{}]",
    "f(*{})",
    "f(k={})",
    "a[{}:]",
]


@pytest.mark.parametrize("outer", FORMS)
def test_parentheses_stand_where_leaving_them_out_would_change_the_tree(outer):
    cases = []
    for inner, place in itertools.product(FORMS, range(outer.count("{}"))):
        operands = ["a"] * outer.count("{}")
        operands[place] = inner.replace("{}", "c")
        bare = outer.format(*operands)
        operands[place] = f"({operands[place]})"
        cases.append((bare, outer.format(*operands)))
    found = generate_source(
        ast.parse("\n".join(f"x = {within}" for _, within in cases))
    ).splitlines()
    for (bare, within), line in zip(cases, found, strict=True):
        try:
            needed = ast.dump(ast.parse(bare)) != ast.dump(ast.parse(within))
        except SyntaxError:
            needed = True
        assert ast.dump(ast.parse(line)) == ast.dump(ast.parse(f"x = {within}"))
        clearer = outer in UNARY and "**" in within  # where ruff puts some
        assert line.count("(") - bare.count("(") == (needed or clearer), (within, line)


@pytest.mark.parametrize(
    "text",
    [
        "x = (1,)",
        "a, b = c, d",
        "x = any(y for y in z)",
        "for a, b in c:\n    pass",
        "x = [(1, 2), f((3, 4))]",
    ],
)
def test_tuples_and_generators_have_the_parentheses_that_they_need(text):
    assert generate_source(ast.parse(text)) == f"{text}\n"


def test_text_that_looks_like_code_is_left_as_it_is():
    text = 'def f():\n    """Say so.\n\n    x = (1)\n    """\n    return "(a) or (b)"\n'
    assert generate_source(ast.parse(text)) == text


@given(st.one_of(st.text(), st.text("'\"\\\n\r\t{}\u202e𝒆\x00")))
def test_a_literal_gives_its_text_and_hides_nothing(value):
    found = generate_source(
        ast.Module([ast.Assign([ast.Name("x", ast.Store())], ast.Constant(value))], [])
    )
    assert ast.literal_eval(found.removeprefix("x = ")) == value
    assert found.removesuffix("\n").isprintable()


def test_comments_and_blocks_of_imports_stand_apart():
    body = ast.parse("import os\nimport torch\nx = 1\ndef f():\n    y = 2\n    return y").body
    body[-1].body.insert(1, create_remark("the answer"))
    found = generate_source(ast.Module(body, []))
    assert (
        found
        == "import os\n\nimport torch\n\nx = 1\n\n\ndef f():\n    y = 2\n\n    # the answer\n    return y\n"
    )


@pytest.mark.parametrize("text", ["one\ntwo", "a\u202eb"])
def test_a_comment_that_could_become_code_is_refused(text):
    with pytest.raises(TypeError, match="comment"):
        generate_source(ast.Module([create_remark(text)], []))


def test_without_ruff_the_code_is_the_same_and_in_long_lines(monkeypatch):
    module = ast.parse(f"x = f({', '.join(f'argument_{number}' for number in range(20))})")
    laid_out = generate_source(module)
    monkeypatch.setattr(unparse, "_find_ruff", lambda: None)
    plain = generate_source(module)
    assert len(laid_out.splitlines()) > 1 == len(plain.splitlines())
    assert ast.dump(ast.parse(plain)) == ast.dump(ast.parse(laid_out))
