"""Partial evaluation of expressions."""

from __future__ import annotations

import ast
import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from types import MethodType, ModuleType
from typing import Any, TypeAlias

from nnpipe.codegen.syntax import literal
from nnpipe.codegen.torch_code.code_blocks import Closure, Scope, read_closure
from nnpipe.codegen.torch_code.values import (
    Expression,
    Method,
    ModuleValue,
    Untranslatable,
    is_known,
    is_python,
    is_torch_module,
    lift,
)

Known: TypeAlias = "tuple[int | None, ...] | None"
_ALIKE = (
    "abs",
    "clamp",
    "flip",
    "clamp_max",
    "clamp_min",
    "contiguous",
    "cos",
    "exp",
    "float",
    "long",
    "rsqrt",
    "sigmoid",
    "softmax",
    "sqrt",
    "square",
    "tanh",
    "where",
)
# Functions of torch.nn.functional that change the number of axes.
_OTHER = ("embedding", "one_hot", "scaled_dot_product_attention")


def infer_binary_shape(op: ast.operator, left: Any, right: Any) -> Known:
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


def infer_call_shape(function: Expression, given: list[Any], named: dict[str, Any]) -> Known:
    """Return the shape of the result of a call; ``None`` if it is not known."""
    if isinstance(function, Method):
        return _infer_method_shape(function, given)
    first = given[0].shape if given and isinstance(given[0], Expression) else None
    if first is None:
        return None
    module = type(function.live).__module__
    if module.startswith("torch.nn.modules"):
        return None if type(function.live).__name__ == "Embedding" else (None,) * len(first)
    node = function.node
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "F"
    ):
        return (None,) * len(first) if node.attr not in _OTHER else None
    return None


def _infer_method_shape(function: Method, given: list[Any]) -> Known:
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


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_TORCH = {"torch": "torch", "torch.nn": "nn", "torch.nn.functional": "F"}


def apply_unary_operator(op: ast.unaryop, value: Any) -> Any:
    """Return the result of a unary operator."""
    if isinstance(value, Expression):
        return Expression(ast.UnaryOp(op, value.node), shape=value.shape)
    return UNARY[type(op)](value)


def apply_binary_operator(op: ast.operator, left: Any, right: Any) -> Any:
    """Return the result of a binary operator."""
    if isinstance(left, Expression) or isinstance(right, Expression):
        return Expression(
            ast.BinOp(lift(left), op, lift(right)), shape=infer_binary_shape(op, left, right)
        )
    return BINARY[type(op)](left, right)


def apply_comparison(ops: Sequence[ast.cmpop], operands: Sequence[Any]) -> Any:
    """Return the result of a chain of comparisons, which has one operand more than operators."""
    live = operands[-1].live if isinstance(operands[-1], Expression) else None
    if len(ops) == 1 and isinstance(ops[0], (ast.In, ast.NotIn)) and live is not None:
        return COMPARED[type(ops[0])](operands[0], live)
    identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in ops)
    if not identity and any(isinstance(item, Expression) for item in operands):
        return Expression(
            ast.Compare(lift(operands[0]), list(ops), [lift(item) for item in operands[1:]])
        )
    return all(
        COMPARED[type(op)](a, b) for op, a, b in zip(ops, operands, operands[1:], strict=False)
    )


def get_attribute(value: Any, attr: str) -> Any:
    """Return an attribute of a value, or the expression of the attribute if it is not known."""
    if is_torch_module(value):
        found = getattr(value, attr)
        if is_torch_module(found):
            return found
        return Expression(
            ast.Attribute(ast.Name(_TORCH[value.__name__], ast.Load()), attr, ast.Load()),
            live=found,
        )
    if isinstance(value, ModuleValue) and attr == "core":
        assert value.core is not None
        return Expression(value.core, live=value.live.core)
    if isinstance(value, Expression):
        if attr == "ndim" and value.shape is not None:
            return len(value.shape)
        if attr == "shape" and value.shape is not None:
            whole = ast.Attribute(value.node, "shape", ast.Load())
            return tuple(
                Expression(ast.Subscript(whole, literal(axis), ast.Load()))
                if extent is None
                else extent
                for axis, extent in enumerate(value.shape)
            )
        live = getattr(value.live, attr, None)
        if isinstance(live, (int, tuple)) and attr in ("ndim", "shape"):
            return live
        node = ast.Attribute(value.node, attr, ast.Load())
        return (
            Expression(node, live=live) if _is_module_or_tensor(live) else Method(node, owner=value)
        )
    return getattr(value, attr)


def _is_module_or_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.nn.Module, torch.Tensor))


def get_item(value: Any, index: Any) -> Any:
    """Return an item of a value, or the expression of the item if it is not known."""
    if isinstance(value, Expression):
        live = value.live[index] if value.live is not None and is_known(index) else None
        return Expression(ast.Subscript(value.node, _build_index(index), ast.Load()), live=live)
    if not is_known(index):
        raise Untranslatable("an index depends on a tensor")
    return value[index]


def _build_index(value: Any) -> ast.expr:
    if isinstance(value, slice):
        parts = (
            None if part is None else lift(part) for part in (value.start, value.stop, value.step)
        )
        return ast.Slice(*parts)
    if isinstance(value, tuple):
        return ast.Tuple([_build_index(item) for item in value], ast.Load())
    return lift(value)


def list_items(value: Any) -> list[Any]:
    """Return the items that a loop iterates over; raise :class:`Untranslatable` if they are not
    known.
    """
    if isinstance(value, Expression):
        raise Untranslatable("a loop iterates over a tensor")
    return list(value)


def unpack_target(target: ast.expr, value: Any) -> dict[str, Any]:
    """Return the values that an assignment gives to each name of its target."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not isinstance(target, ast.Tuple) or isinstance(value, Expression):
        raise Untranslatable("a tensor is unpacked")
    found: dict[str, Any] = {}
    items = list(value)
    for place, part in enumerate(target.elts):
        if isinstance(part, ast.Starred):
            after = len(target.elts) - place - 1
            found |= unpack_target(part.value, items[place : len(items) - after])
            items[place : len(items) - after] = [None]
        else:
            found |= unpack_target(part, items[place])
    return found


_OPERATORS = {function: kind for kind, function in BINARY.items()}
# Functions that accept containers with values that are not known yet.
_STRUCTURAL = (
    zip,
    reversed,
    enumerate,
    tuple,
    list,
    range,
    len,
    dict,
    any,
    all,
    max,
    min,
    sum,
    sorted,
    isinstance,
    next,
)


def apply_function(function: Any, given: list[Any], named: dict[str, Any], scope: Scope) -> Any:
    """Return the result of a call, or the expression of the call if the result is not known.

    Raises
    ------
    Untranslatable
        If the call depends on a tensor in a way that cannot be written as code.
    """
    if isinstance(function, Expression):
        if _is_identity_dropout(function, given):
            return given[0]
        if isinstance(function, Method) and _is_identity_movedim(function, given):
            return function.owner
        keywords = [ast.keyword(key, lift(value)) for key, value in named.items()]
        args = [lift(value) for value in given]
        return Expression(
            ast.Call(function.node, args, keywords), shape=infer_call_shape(function, given, named)
        )
    if function in _OPERATORS and not named:
        return apply_binary_operator(_OPERATORS[function](), *given)
    if function is getattr and len(given) == 2 and isinstance(given[1], str):
        return get_attribute(given[0], given[1])
    if function is reduce:
        return reduce(lambda a, b: apply_function(given[0], [a, b], {}, scope), *given[1:])
    if isinstance(function, Closure):
        return scope.inline(function, given, named, scope)
    if is_python(function):
        known = (
            is_known(given) and is_known(named) and not any(isinstance(v, Closure) for v in given)
        )
        return (
            function(*given, **named)
            if known
            else scope.inline(read_closure(function), given, named, scope)
        )
    if is_known(given) and is_known(named):
        return function(*given, **named)
    if function in _STRUCTURAL or isinstance(function, MethodType):
        return _apply_to_containers(function, given, named)
    method = getattr(function, "__self__", None)
    if isinstance(method, (list, dict, tuple)):
        return function(*given, **named)
    return Expression(
        ast.Call(
            lift(function),
            [lift(v) for v in given],
            [ast.keyword(k, lift(v)) for k, v in named.items()],
        )
    )


def _is_identity_dropout(function: Expression, given: list[Any]) -> bool:
    """Return whether a call is ``F.dropout`` with a rate of 0."""
    return (
        ast.unparse(function.node) == "F.dropout"
        and len(given) > 1
        and is_known(given[1])
        and given[1] == 0
    )


def _is_identity_movedim(function: Method, given: list[Any]) -> bool:
    """Return whether a call is ``movedim`` from an axis to itself."""
    moves = isinstance(function.node, ast.Attribute) and function.node.attr == "movedim"
    return moves and len(given) == 2 and is_known(given) and given[0] == given[1]


def _apply_to_containers(function: Any, given: list[Any], named: dict[str, Any]) -> Any:
    try:
        found = function(*given, **named)
        return list(found) if isinstance(found, Iterator) else found
    except (TypeError, Untranslatable):
        if function in (max, min, len, range, list, tuple, sum):
            return Expression(ast.Call(lift(function), [lift(v) for v in given], []))
        raise Untranslatable(f"{function} of a tensor") from None


def evaluate(node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression, or the remaining expression if the value is not known.

    Raises
    ------
    Untranslatable
        If the expression can neither be evaluated nor be written as code.
    """
    method = _CASES.get(type(node))
    if method is None:
        raise Untranslatable(f"{type(node).__name__} is not supported")
    return method(node, scope)


def _evaluate_constant(node: Any, scope: Scope) -> Any:
    return node.value


def _evaluate_name(node: Any, scope: Scope) -> Any:
    return scope.value(node.id)


def _evaluate_attribute(node: Any, scope: Scope) -> Any:
    return get_attribute(evaluate(node.value, scope), node.attr)


def _evaluate_subscript(node: Any, scope: Scope) -> Any:
    return get_item(evaluate(node.value, scope), evaluate(node.slice, scope))


def _evaluate_slice(node: Any, scope: Scope) -> Any:
    parts = [
        None if part is None else evaluate(part, scope)
        for part in (node.lower, node.upper, node.step)
    ]
    return slice(*parts)


def _evaluate_sequence(node: Any, scope: Scope) -> Any:
    found = list(_evaluate_items(node.elts, scope))
    return tuple(found) if isinstance(node, ast.Tuple) else found


def _evaluate_items(nodes: list[ast.expr], scope: Scope) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, ast.Starred):
            value = evaluate(node.value, scope)
            if isinstance(value, Expression):
                yield Expression(ast.Starred(value.node, ast.Load()))
            else:
                yield from value
        else:
            yield evaluate(node, scope)


def _evaluate_dict(node: Any, scope: Scope) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        item = evaluate(value, scope)
        found |= item if key is None else {evaluate(key, scope): item}
    return found


def _evaluate_formatted_string(node: Any, scope: Scope) -> Any:
    found = []
    for part in node.values:
        value = evaluate(part.value if isinstance(part, ast.FormattedValue) else part, scope)
        if not isinstance(value, (str, int)):
            raise Untranslatable("a string depends on a tensor")
        found.append(str(value))
    return "".join(found)


def _evaluate_unary(node: Any, scope: Scope) -> Any:
    return apply_unary_operator(node.op, evaluate(node.operand, scope))


def _evaluate_binary(node: Any, scope: Scope) -> Any:
    return apply_binary_operator(node.op, evaluate(node.left, scope), evaluate(node.right, scope))


def _evaluate_comparison(node: Any, scope: Scope) -> Any:
    return apply_comparison(
        node.ops, [evaluate(item, scope) for item in (node.left, *node.comparators)]
    )


def _evaluate_boolean(node: Any, scope: Scope) -> Any:
    stops = isinstance(node.op, ast.Or)
    left: list[ast.expr] = []
    for item in node.values:
        value = evaluate(item, scope if not left else scope.inner({}))
        if isinstance(value, Expression):
            left.append(value.node)
            continue
        if bool(value) is stops:
            if left:
                raise Untranslatable("a condition depends on a tensor")
            return value
        last = value
    if not left:
        return last
    return Expression(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))


def _evaluate_conditional(node: Any, scope: Scope) -> Any:
    test = evaluate(node.test, scope)
    if not isinstance(test, Expression):
        return evaluate(node.body if test else node.orelse, scope)
    inner = scope.inner({})
    one, other = evaluate(node.body, inner), evaluate(node.orelse, inner)
    if is_known(one) and is_known(other) and one == other:
        return one
    return Expression(ast.IfExp(test.node, lift(one), lift(other)))


def _evaluate_lambda(node: Any, scope: Scope) -> Any:
    return Closure(node, {**scope.closure.around, **scope.local}, scope.closure.globals, "function")


def _evaluate_comprehension(node: Any, scope: Scope) -> Any:
    return list(_iterate_comprehension(node.elt, list(node.generators), scope))


def _iterate_comprehension(
    element: ast.expr, parts: list[ast.comprehension], scope: Scope
) -> Iterator[Any]:
    if not parts:
        yield evaluate(element, scope)
        return
    for item in list_items(evaluate(parts[0].iter, scope)):
        # Iterations run in order, so statements may come before them as before any other
        # expression.
        inner = replace(scope, local={**scope.local, **unpack_target(parts[0].target, item)})
        if all(evaluate(test, inner) for test in parts[0].ifs):
            yield from _iterate_comprehension(element, parts[1:], inner)


def _evaluate_call(node: Any, scope: Scope) -> Any:
    function = evaluate(node.func, scope)
    given = list(_evaluate_items(node.args, scope))
    named: dict[str, Any] = {}
    for item in node.keywords:
        value = evaluate(item.value, scope)
        named |= value if item.arg is None else {item.arg: value}
    return apply_function(function, given, named, scope)


def import_values(node: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    """Return the values that an import inside a function binds, by name."""
    found: dict[str, Any] = {}
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            found[alias.asname or alias.name] = getattr(module, alias.name)
        else:
            module = importlib.import_module(alias.name)
            root: ModuleType = (
                module if alias.asname else importlib.import_module(alias.name.partition(".")[0])
            )
            found[alias.asname or alias.name.partition(".")[0]] = root
    return found


_CASES: dict[type[ast.expr], Callable[[Any, Scope], Any]] = {
    ast.Constant: _evaluate_constant,
    ast.Name: _evaluate_name,
    ast.Attribute: _evaluate_attribute,
    ast.Subscript: _evaluate_subscript,
    ast.Slice: _evaluate_slice,
    ast.Tuple: _evaluate_sequence,
    ast.List: _evaluate_sequence,
    ast.Dict: _evaluate_dict,
    ast.UnaryOp: _evaluate_unary,
    ast.BinOp: _evaluate_binary,
    ast.Compare: _evaluate_comparison,
    ast.BoolOp: _evaluate_boolean,
    ast.IfExp: _evaluate_conditional,
    ast.Lambda: _evaluate_lambda,
    ast.Call: _evaluate_call,
    ast.JoinedStr: _evaluate_formatted_string,
    ast.GeneratorExp: _evaluate_comprehension,
    ast.ListComp: _evaluate_comprehension,
}
