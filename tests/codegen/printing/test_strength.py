"""Parentheses stand where Python needs them, and nowhere else."""

from __future__ import annotations

import ast
import itertools

import pytest

from nnpipe.codegen.printing import source_of
from nnpipe.codegen.printing.strength import BINARY, COMPARED, UNARY, strength_of

SIGNS = [sign for sign, _ in BINARY.values()]
FORMS = [
    *(f"{{}} {sign} {{}}" for sign in SIGNS), *(f"{sign}{{}}" for sign, _ in UNARY.values()),
    *(f"{{}} {sign} {{}}" for sign in COMPARED.values()), "{} and {}", "{} or {}", "{} if {} else {}", "lambda: {}",
    "{}.b", "{}[0]", "{}()", "f({})", "[{}]", "f(*{})", "f(k={})", "a[{}:]",
]  # fmt: skip

LOOSE = ("f(*{})", "a[{}:]")  # where parentheses may stand that need not, for clearness


def printed(text: str) -> str:
    return source_of(ast.parse(f"x = {text}")).removeprefix("x = ").rstrip("\n")


@pytest.mark.parametrize("outer", FORMS)
def test_parentheses_stand_where_leaving_them_out_would_change_the_tree(outer):
    places = outer.count("{}")
    for inner, place in itertools.product(FORMS, range(places)):
        operands = ["a"] * places
        operands[place] = inner.replace("{}", "c")
        bare = outer.format(*operands)
        operands[place] = f"({operands[place]})"
        within = outer.format(*operands)
        found = printed(within)
        assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(within))
        try:
            needed = ast.dump(ast.parse(bare)) != ast.dump(ast.parse(within))
        except SyntaxError:
            needed = True
        there = found.count("(") - bare.count("(")
        assert there == needed or (outer in LOOSE and there), (within, found)


def test_what_binds_stronger_has_the_larger_number():
    order = ["a if b else c", "lambda: a", "a or b", "a and b", "not a", "a < b", "a | b", "a ^ b", "a & b", "a << b"]
    order += ["a + b", "a * b", "-a", "a ** b", "a.b"]
    strengths = [strength_of(ast.parse(text, mode="eval").body) for text in order]
    assert strengths == sorted(set(strengths))
