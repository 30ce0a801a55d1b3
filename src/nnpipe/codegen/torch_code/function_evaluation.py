"""Partial evaluation of functions, which are inlined at their call or written as functions of the
script.

A function whose control flow is known is inlined: its statements become those
of the caller.  A function whose control flow depends on tensors becomes a
function of the script.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nnpipe.codegen.syntax import as_target
from nnpipe.codegen.syntax import build_function as define
from nnpipe.codegen.torch_code.code_blocks import (
    Closure,
    CodeBlock,
    Names,
    Scope,
    Script,
    list_parameters,
)
from nnpipe.codegen.torch_code.expression_evaluation import (
    apply_binary_operator,
    apply_function,
    evaluate,
    import_values,
    list_items,
    unpack_target,
)
from nnpipe.codegen.torch_code.values import Expression, ModuleValue, Untranslatable, lift
from nnpipe.core.messages import docstring_summary

_TURNS = 16
_NOTHING = object()


def inline_call(closure: Closure, given: list[Any], named: Mapping[str, Any], scope: Scope) -> Any:
    """Return the result of an inlined call.

    If the function cannot be inlined, it is written into the script, and the expression of its call
    is returned.

    Raises
    ------
    Untranslatable
        If the function can neither be inlined nor be written.
    """
    local = bind_arguments(closure, given, named)
    before = (
        scope.script.save_state(),
        scope.block.save_state() if scope.block is not None else None,
    )
    try:
        return _put_in(closure, dict(local), scope)
    except Untranslatable:
        scope.script.restore_state(before[0])
        if scope.block is not None and before[1] is not None:
            scope.block.restore_state(before[1])
        if isinstance(closure.node, ast.Lambda):
            raise
        return _write_function(closure, local, scope)


def bind_arguments(closure: Closure, given: list[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a function's parameters by name, including default values."""
    args, values = closure.node.args, [*closure.first, *given]
    plain = [parameter.arg for parameter in (*args.posonlyargs, *args.args)]
    found = dict(zip(plain, values, strict=False))
    if args.vararg:
        found[args.vararg.arg] = tuple(values[len(plain) :])
    outside = Scope({}, closure, Script(), None, inline_call)
    for parameter, default in zip(
        plain[len(plain) - len(args.defaults) :], args.defaults, strict=True
    ):
        if parameter not in found and parameter not in named:
            found[parameter] = evaluate(default, outside)
    for only, kw_default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if kw_default is not None and only.arg not in named:
            found[only.arg] = evaluate(kw_default, outside)
    return {**found, **named}


def _put_in(closure: Closure, local: dict[str, Any], scope: Scope) -> Any:
    """Return the result of a function whose statements are added to the block of the caller."""
    uses = _count_uses(closure.node)
    for parameter, value in local.items():
        if type(value) is Expression and not value.is_atomic and uses[parameter] > 1:
            if scope.block is None:
                raise Untranslatable("a statement cannot be added here")
            local[parameter] = scope.block.bind(value, parameter)
    if isinstance(closure.node, ast.Lambda):
        return evaluate(
            closure.node.body, Scope(local, closure, scope.script, scope.block, inline_call)
        )
    result = _run(closure.node.body, local, closure, scope, uses)
    return None if result is _NOTHING else result


def _run(
    body: list[ast.stmt], local: dict[str, Any], closure: Closure, outer: Scope, uses: Counter[str]
) -> Any:
    """Evaluate statements whose control flow is known.

    Return the value of their ``return`` statement, or ``_NOTHING`` if they end without one.
    ``local`` is updated.
    """
    for statement in body:
        scope = Scope(local, closure, outer.script, outer.block, inline_call)
        if isinstance(statement, ast.Return):
            return None if statement.value is None else evaluate(statement.value, scope)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            local.update(import_values(statement))
        elif isinstance(statement, ast.FunctionDef):
            around = {**closure.around, **local}
            local[statement.name] = Closure(statement, around, closure.globals, statement.name)
        elif isinstance(statement, ast.Assert) or _is_text(statement):
            continue
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            _assign(statement.targets[0], evaluate(statement.value, scope), local, scope, uses)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            value = apply_binary_operator(
                statement.op, local[statement.target.id], evaluate(statement.value, scope)
            )
            _assign(statement.target, value, local, scope, uses)
        elif isinstance(statement, ast.If):
            branch = statement.body if evaluate(statement.test, scope) else statement.orelse
            if (result := _run(branch, local, closure, outer, uses)) is not _NOTHING:
                return result
        elif isinstance(statement, ast.For) and not statement.orelse:
            items = list_items(evaluate(statement.iter, scope))
            if len(items) > _TURNS:
                raise Untranslatable("a loop is too long to be unrolled")
            for item in items:
                local.update(unpack_target(statement.target, item))
                if (result := _run(statement.body, local, closure, outer, uses)) is not _NOTHING:
                    return result
        else:
            raise Untranslatable(
                f"{type(statement).__name__} is not supported in an inlined function"
            )
    return _NOTHING


def _assign(
    target: ast.expr, value: Any, local: dict[str, Any], scope: Scope, uses: Counter[str]
) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, Expression):
        if scope.block is None:
            raise Untranslatable("a statement cannot be added here")
        names = [
            scope.block.names.fresh(part.id) for part in target.elts if isinstance(part, ast.Name)
        ]
        if len(names) != len(target.elts):
            raise Untranslatable("a tensor is unpacked")
        scope.block.statements.append(
            ast.Assign(
                [ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())], value.node
            )
        )
        found = [Expression(ast.Name(n, ast.Load())) for n in names]
        local.update({part.id: item for part, item in zip(target.elts, found, strict=True)})  # type: ignore[attr-defined]
        return
    for name, item in unpack_target(target, value).items():
        if type(item) is Expression and not item.is_atomic and uses[name] > 1:
            if scope.block is None:
                raise Untranslatable("a statement cannot be added here")
            item = scope.block.bind(item, name)
        local[name] = item


def _count_uses(node: ast.AST) -> Counter[str]:
    return Counter(
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# -- functions that are written into the script ---------------------------------------------------


def _write_function(closure: Closure, local: dict[str, Any], scope: Scope) -> Expression:
    """Write a function into the script, and return its call with the arguments that are not
    known.
    """
    given = {name: value for name, value in local.items() if isinstance(value, Expression)}
    for name, value in local.items():
        if isinstance(value, tuple) and any(isinstance(item, Expression) for item in value):
            given[name] = Expression(lift(value))
    inner: dict[str, Any] = dict(local)
    for name, value in given.items():
        itself = ast.Name(name, ast.Load())
        if isinstance(value, ModuleValue):
            raise Untranslatable("a function needs its module")
        inner[name] = Expression(itself, value.shape, value.live)
    body = evaluate_statements(closure, inner, scope.script)
    made = define(closure.name.strip("_"), list(given), body, _get_doc_line(closure.node))
    title = scope.script.define(closure.name.strip("_"), made)
    return Expression(
        ast.Call(ast.Name(title, ast.Load()), [value.node for value in given.values()], [])
    )


def evaluate_statements(
    closure: Closure, local: dict[str, Any], script: Script, taken: Names | None = None
) -> list[ast.stmt]:
    """Return the remaining statements of a function, in which parameters that are not known keep
    their names.
    """
    node = closure.node
    names = Names(
        {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        | {a.arg for a in list_parameters(node)}
    )
    names.taken |= taken.taken if taken else set()
    block = CodeBlock(names)
    if isinstance(node, ast.Lambda):
        block.statements.append(
            ast.Return(lift(evaluate(node.body, Scope(local, closure, script, block, inline_call))))
        )
        return block.statements
    _StatementWriter(closure, script, _find_changing_names(node)).write(node.body, local, block)
    return block.statements


class _StatementWriter:
    """A writer of the statements that remain of a function after partial evaluation."""

    def __init__(self, closure: Closure, script: Script, changing: frozenset[str]) -> None:
        self.closure, self.script, self.changing = closure, script, changing

    def write(self, body: list[ast.stmt], local: dict[str, Any], block: CodeBlock) -> bool:
        """Write statements into a block, and return whether they end with a ``return`` that is
        always reached.
        """
        for statement in body:
            scope = Scope(local, self.closure, self.script, block, inline_call)
            if isinstance(statement, ast.Return):
                value = None if statement.value is None else lift(evaluate(statement.value, scope))
                block.statements.append(ast.Return(value))
                return True
            if isinstance(statement, ast.If):
                if self._write_branch(statement, local, block, scope):
                    return True
            elif isinstance(statement, ast.For):
                self._write_loop(statement, local, block, scope)
            elif isinstance(statement, (ast.Assign, ast.AugAssign)):
                self._write_assignment(statement, local, block, scope)
            elif isinstance(statement, ast.Expr) and not _is_text(statement):
                block.statements.append(
                    ast.Expr(lift(self._evaluate_effect(statement.value, scope)))
                )
            else:
                _run([statement], local, self.closure, scope, Counter())
        return False

    def _write_branch(
        self, node: ast.If, local: dict[str, Any], block: CodeBlock, scope: Scope
    ) -> bool:
        test = evaluate(node.test, scope)
        if not isinstance(test, Expression):
            return self.write(node.body if test else node.orelse, local, block)
        parts = []
        for body in (node.body, node.orelse):
            inner = CodeBlock(block.names)
            self.write(body, dict(local), inner)
            parts.append(inner.statements)
        block.statements.append(ast.If(test.node, *parts))
        return False

    def _write_loop(
        self, node: ast.For, local: dict[str, Any], block: CodeBlock, scope: Scope
    ) -> None:
        over = evaluate(node.iter, scope)
        if not isinstance(over, Expression):
            over = Expression(lift(over))
        inner, within = CodeBlock(block.names), dict(local)
        for name in _list_target_names(node.target):
            within[name] = Expression(ast.Name(name, ast.Load()))
        self.write(node.body, within, inner)
        block.statements.append(ast.For(as_target(node.target), over.node, inner.statements, []))

    def _write_assignment(
        self,
        node: ast.Assign | ast.AugAssign,
        local: dict[str, Any],
        block: CodeBlock,
        scope: Scope,
    ) -> None:
        value = evaluate(node.value, scope)
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        if isinstance(node, ast.AugAssign):
            target_name = node.target.id  # type: ignore[union-attr]
            before = evaluate(ast.Name(target_name, ast.Load()), scope)
            value = apply_binary_operator(node.op, before, value)
        names = _list_target_names(target)
        if not self.changing.intersection(names) and not isinstance(value, Expression):
            local.update(unpack_target(target, value))
            return
        changed = isinstance(value, Expression) and self.changing.intersection(
            _list_target_names(value.node)
        )
        if (
            isinstance(value, Expression)
            and value.is_atomic
            and not changed
            and not self.changing.intersection(names)
        ):
            local.update(unpack_target(target, value))
            return
        block.statements.append(ast.Assign([as_target(target)], lift(value)))
        for name in names:
            kept = (
                value
                if isinstance(value, Expression) and isinstance(target, ast.Name)
                else Expression(ast.Constant(0))
            )
            shape = None if name in self.changing else kept.shape
            local[name] = Expression(ast.Name(name, ast.Load()), shape)

    def _evaluate_effect(self, node: ast.expr, scope: Scope) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = evaluate(node.func.value, scope)
            if isinstance(owner, Expression):
                given = [evaluate(argument, scope) for argument in node.args]
                return apply_function(
                    Expression(ast.Attribute(owner.node, node.func.attr, ast.Load())),
                    given,
                    {},
                    scope,
                )
        raise Untranslatable("the effect of a statement is not known")


def _find_changing_names(node: ast.FunctionDef) -> frozenset[str]:
    """Return the names that are assigned more than once or in a loop, or whose methods are
    called as statements.
    """
    counts: Counter[str] = Counter(a.arg for a in list_parameters(node))
    inside: set[str] = set()
    for item in ast.walk(node):
        if isinstance(item, (ast.Assign, ast.AugAssign)):
            for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
                counts.update(_list_target_names(target))
        if isinstance(item, ast.For):
            for part in ast.walk(item):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    inside.add(part.id)
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
            function = item.value.func
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                inside.add(function.value.id)
    return frozenset(inside | {name for name, count in counts.items() if count > 1})


def _list_target_names(target: ast.expr) -> list[str]:
    return [item.id for item in ast.walk(target) if isinstance(item, ast.Name)]


def _get_doc_line(node: ast.AST) -> str:
    """Return the summary of a function's docstring; the empty string if it has none."""
    return docstring_summary(ast.get_docstring(node)) if isinstance(node, ast.FunctionDef) else ""
