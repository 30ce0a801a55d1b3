"""Operators, attributes and items of what is known and of what is not."""

from __future__ import annotations

import ast

import pytest

from nnpipe.codegen.torch_code.expression_evaluation import (
    apply_binary_operator,
    apply_comparison,
    apply_unary_operator,
    get_attribute,
    get_item,
    list_items,
    unpack_target,
)
from nnpipe.codegen.torch_code.values import Expression, Untranslatable


def tensor(name: str, *shape: int | None) -> Expression:
    return Expression(ast.Name(name, ast.Load()), shape or None)


def written(value: Expression) -> str:
    return ast.unparse(value.node)


def test_what_is_known_is_computed_and_what_is_not_is_written():
    assert apply_binary_operator(ast.Pow(), 2, 5) == 32
    found = apply_binary_operator(ast.Mult(), tensor("x", None, 3), 2)
    assert (written(found), found.shape) == ("x * 2", (None, 3))
    assert apply_unary_operator(ast.USub(), 3) == -3
    assert written(apply_unary_operator(ast.USub(), tensor("x"))) == "-x"


def test_comparisons_in_a_row():
    assert apply_comparison([ast.Lt(), ast.LtE()], [1, 2, 2]) is True
    assert apply_comparison([ast.Lt(), ast.Lt()], [1, 2, 2]) is False
    assert written(apply_comparison([ast.Lt(), ast.Lt()], [0, tensor("x"), 1])) == "0 < x < 1"
    assert apply_comparison([ast.Is()], [tensor("x"), None]) is False  # a tensor is never None
    assert apply_comparison([ast.IsNot()], [tensor("x"), None]) is True


def test_keys_are_looked_up_in_what_was_made_for_the_occasion():
    parts = Expression(ast.Name("parts", ast.Load()), live={"gate": 3})
    assert apply_comparison([ast.In()], ["gate", parts]) is True
    assert apply_comparison([ast.NotIn()], ["gate", parts]) is False
    found = get_item(parts, "gate")
    assert (written(found), found.live) == ("parts['gate']", 3)


def test_shapes_are_known_axis_by_axis():
    x = tensor("x", None, 3)
    assert get_attribute(x, "ndim") == 2
    batch, width = get_attribute(x, "shape")
    assert (written(batch), width) == ("x.shape[0]", 3)
    assert get_attribute("text", "upper")() == "TEXT"


def test_items_are_written_with_slices_and_several_axes():
    x = tensor("x", None, 3)
    assert written(get_item(x, (slice(None, None, 2), None, -1))) == "x[::2, None, -1]"
    assert get_item([4, 5], 1) == 5
    with pytest.raises(Untranslatable, match="depends on a tensor"):
        get_item([4, 5], x)


def test_loops_and_assignments_go_over_what_is_known_alone():
    assert list_items({"a": 1}) == ["a"]
    target = ast.parse("a, (b, *c), d = 0").body[0].targets[0]
    assert unpack_target(target, (1, (2, 3, 4), 5)) == {"a": 1, "b": 2, "c": [3, 4], "d": 5}
    for refused in (lambda: list_items(tensor("x")), lambda: unpack_target(target, tensor("x"))):
        with pytest.raises(Untranslatable):
            refused()
