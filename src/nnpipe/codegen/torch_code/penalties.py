"""The writer of a network's methods for the penalties of regularisers and for the constraints of weights."""

from __future__ import annotations

import ast
from typing import Any

from nnpipe.codegen.syntax import attribute, call, dotted, literal, quoted
from nnpipe.codegen.syntax import function as define
from nnpipe.codegen.torch_code.call_evaluation import called
from nnpipe.codegen.torch_code.code_blocks import CodeBlock, Names, Script
from nnpipe.codegen.torch_code.function_evaluation import inlined
from nnpipe.codegen.torch_code.scope import Scope
from nnpipe.codegen.torch_code.simplification import tidied
from nnpipe.codegen.torch_code.sources import Closure
from nnpipe.codegen.torch_code.values import Expression, lift
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import variables_of
from nnpipe.layers.vocabulary.constraints import Constraint
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable
from nnpipe.layers.vocabulary.regularisers import L1, L1L2, L2, Regulariser

_ACTIVITY = """
for module in self.modules():
    for value in getattr(module, "activity", {}).values():
        total = total + value
"""


def nowhere() -> Closure:
    """Return an empty function without surrounding names."""
    return Closure(ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None)), {}, {}, "network")


def methods(graph: NetworkGraph, parameters: dict[str, str], script: Script, watched: bool) -> list[ast.stmt]:
    """Return the methods ``penalty`` and ``constrain``; each one only if the network needs it.

    ``watched`` says whether layers have regularisers of their outputs, whose penalties the modules store.
    """
    weights = [(dotted(f"self.{parameters[name]}"), v) for name, v in variables_of(graph).items()]
    found: list[ast.stmt] = []
    regularised = [(place, v) for place, v in weights if isinstance(v.regulariser, Regulariser)]
    if regularised or watched:
        found.append(_penalty(regularised, script, watched))
    constrained = [(place, v) for place, v in weights if isinstance(v.constraint, Constraint)]
    if constrained:
        found.append(_constrain(constrained, script))
    return found


def activity(layer: Layer, outputs: list[ast.expr], script: Script, block: CodeBlock) -> bool:
    """Add the statement that stores the penalty of a layer's outputs.

    Return whether the layer has a regulariser of its outputs; without one, nothing is added.
    """
    regulariser = getattr(layer, "activity_regularizer", None)
    if not isinstance(regulariser, Regulariser):
        return False
    total: ast.expr | None = None
    for output in outputs:
        value = _computed(regulariser.penalty, Expression(output), script, block)
        share = ast.BinOp(value, ast.Div(), call("max", call("len", output), literal(1)))
        total = share if total is None else ast.BinOp(total, ast.Add(), share)
    assert total is not None
    place = ast.Subscript(dotted("self.activity"), literal(layer.name or "layer"), ast.Store())
    block.statements.append(ast.Assign([place], total))
    return True


def _penalty(weights: list[tuple[ast.expr, LayerVariable]], script: Script, watched: bool) -> ast.stmt:
    block = CodeBlock(Names({"self", "total", "module", "value"}), quoted("total = torch.zeros(())"))
    for place, variable in weights:
        regulariser = variable.regulariser
        assert isinstance(regulariser, Regulariser)
        alike = isinstance(regulariser, (L1, L2, L1L2))  # sums, which do not depend on the order of axes
        weight = Expression(place if alike else _as_keras(place, variable), shape=variable.shape)
        value = _computed(regulariser.penalty, weight, script, block)
        block.statements += quoted("total = total + VALUE", VALUE=value)
    block.statements += quoted(_ACTIVITY) if watched else []
    doc = "Return the penalty of the regularisers for the last call."
    return define("penalty", ["self"], [*block.statements, *quoted("return total")], doc)


def _constrain(weights: list[tuple[ast.expr, LayerVariable]], script: Script) -> ast.stmt:
    block = CodeBlock(Names({"self"}))
    for place, variable in weights:
        assert isinstance(variable.constraint, Constraint)
        weight = block.bind(Expression(_as_keras(place, variable), shape=variable.shape), "weight")
        value = _as_torch(_computed(variable.constraint.project, weight, script, block), variable)
        block.statements.append(ast.Expr(call(attribute(place, "copy_"), value)))
    made = define(
        "constrain", ["self"], tidied(block.statements), "Project the weights to values that their constraints allow."
    )
    made.decorator_list = [call("torch.no_grad")]
    return made


def _computed(function: Any, value: Expression, script: Script, block: CodeBlock) -> ast.expr:
    return lift(called(function, [value], {}, Scope({}, nowhere(), script, block, inlined)))


def _as_keras(place: ast.expr, variable: LayerVariable) -> ast.expr:
    if variable.axes is None:
        return place if variable.torch_shape is None else _reshaped(place, variable.shape)
    if variable.torch_shape is not None:
        place = _reshaped(place, tuple(variable.shape[axis] for axis in variable.axes))
    order = [variable.axes.index(axis) for axis in range(len(variable.axes))]
    return call(attribute(place, "permute"), *(literal(axis) for axis in order))


def _as_torch(value: ast.expr, variable: LayerVariable) -> ast.expr:
    if variable.axes is not None:
        value = call(attribute(value, "permute"), *(literal(axis) for axis in variable.axes))
    return value if variable.torch_shape is None else _reshaped(value, variable.torch_shape)


def _reshaped(value: ast.expr, shape: tuple[int, ...]) -> ast.expr:
    return call(attribute(value, "reshape"), *(literal(extent) for extent in shape))
