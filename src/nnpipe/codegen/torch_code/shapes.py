"""The known shapes of expressions, which suffice to know the number of axes of a tensor."""

from __future__ import annotations

import ast
from typing import Any, TypeAlias

from nnpipe.codegen.torch_code.values import Expression, Method

Known: TypeAlias = "tuple[int | None, ...] | None"
_ALIKE = (
    "abs", "clamp", "flip", "clamp_max", "clamp_min", "contiguous", "cos", "exp", "float", "long", "rsqrt", "sigmoid",
    "softmax", "sqrt", "square", "tanh", "where",
)  # fmt: skip
# Functions of torch.nn.functional that change the number of axes.
_OTHER = ("embedding", "one_hot", "scaled_dot_product_attention")


def merged(op: ast.operator, left: Any, right: Any) -> Known:
    """Return the shape of the result of a binary operator; ``None`` if it is not known."""
    if isinstance(op, ast.MatMult):
        return None
    given = [item.shape for item in (left, right) if isinstance(item, Expression)]
    if len(given) == 1:
        return given[0]
    one, two = given
    if one is None or two is None:
        return None
    rank = max(len(one), len(two))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(two)) + two, strict=True)
    return tuple(b if a == 1 else a if b in (1, a) else a or b for a, b in pairs)


def of_call(function: Expression, given: list[Any], named: dict[str, Any]) -> Known:
    """Return the shape of the result of a call; ``None`` if it is not known."""
    if isinstance(function, Method):
        return _of_method(function, given)
    first = given[0].shape if given and isinstance(given[0], Expression) else None
    if first is None:
        return None
    module = type(function.live).__module__
    if module.startswith("torch.nn.modules"):
        return None if type(function.live).__name__ == "Embedding" else (None,) * len(first)
    node = function.node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "F":
        return (None,) * len(first) if node.attr not in _OTHER else None
    return None


def _of_method(function: Method, given: list[Any]) -> Known:
    assert isinstance(function.node, ast.Attribute)
    assert function.owner is not None
    name, shape = function.node.attr, function.owner.shape
    if name in ("new_ones", "new_zeros") and given and isinstance(given[0], tuple):
        return tuple(extent if isinstance(extent, int) else None for extent in given[0])
    if name == "reshape" and given and all(type(extent) is int for extent in given):
        return tuple(None if extent == -1 else extent for extent in given)
    if name == "new_tensor" and given and isinstance(given[0], (int, float)):
        return ()
    if shape is None:
        return None
    if name in _ALIKE:
        return shape
    if name == "permute" and sorted(given) == list(range(len(shape))):
        return tuple(shape[axis] for axis in given)
    if name == "movedim" and all(isinstance(axis, int) for axis in given):
        rest = [extent for axis, extent in enumerate(shape) if axis != given[0] % len(shape)]
        place = given[1] % len(shape)
        return (*rest[:place], shape[given[0]], *rest[place:])
    return None
