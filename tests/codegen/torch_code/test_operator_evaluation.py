"""Operators, attributes and items of what is known and of what is not."""

from __future__ import annotations

import ast

import pytest

from nnpipe.codegen.torch_code.expression_evaluation import (
    attribute_of,
    changed,
    combine,
    compared,
    item_of,
    known_items,
    unpacked,
)
from nnpipe.codegen.torch_code.values import Expression, Untranslatable


def tensor(name: str, *shape: int | None) -> Expression:
    return Expression(ast.Name(name, ast.Load()), shape or None)


def written(value: Expression) -> str:
    return ast.unparse(value.node)


def test_what_is_known_is_computed_and_what_is_not_is_written():
    assert combine(ast.Pow(), 2, 5) == 32
    found = combine(ast.Mult(), tensor("x", None, 3), 2)
    assert (written(found), found.shape) == ("x * 2", (None, 3))
    assert changed(ast.USub(), 3) == -3
    assert written(changed(ast.USub(), tensor("x"))) == "-x"


def test_comparisons_in_a_row():
    assert compared([ast.Lt(), ast.LtE()], [1, 2, 2]) is True
    assert compared([ast.Lt(), ast.Lt()], [1, 2, 2]) is False
    assert written(compared([ast.Lt(), ast.Lt()], [0, tensor("x"), 1])) == "0 < x < 1"
    assert compared([ast.Is()], [tensor("x"), None]) is False  # a tensor is never None
    assert compared([ast.IsNot()], [tensor("x"), None]) is True


def test_keys_are_looked_up_in_what_was_made_for_the_occasion():
    parts = Expression(ast.Name("parts", ast.Load()), live={"gate": 3})
    assert compared([ast.In()], ["gate", parts]) is True
    assert compared([ast.NotIn()], ["gate", parts]) is False
    found = item_of(parts, "gate")
    assert (written(found), found.live) == ("parts['gate']", 3)


def test_shapes_are_known_axis_by_axis():
    x = tensor("x", None, 3)
    assert attribute_of(x, "ndim") == 2
    batch, width = attribute_of(x, "shape")
    assert (written(batch), width) == ("x.shape[0]", 3)
    assert attribute_of("text", "upper")() == "TEXT"


def test_items_are_written_with_slices_and_several_axes():
    x = tensor("x", None, 3)
    assert written(item_of(x, (slice(None, None, 2), None, -1))) == "x[::2, None, -1]"
    assert item_of([4, 5], 1) == 5
    with pytest.raises(Untranslatable, match="depends on a tensor"):
        item_of([4, 5], x)


def test_loops_and_assignments_go_over_what_is_known_alone():
    assert known_items({"a": 1}) == ["a"]
    target = ast.parse("a, (b, *c), d = 0").body[0].targets[0]
    assert unpacked(target, (1, (2, 3, 4), 5)) == {"a": 1, "b": 2, "c": [3, 4], "d": 5}
    for refused in (lambda: known_items(tensor("x")), lambda: unpacked(target, tensor("x"))):
        with pytest.raises(Untranslatable):
            refused()
