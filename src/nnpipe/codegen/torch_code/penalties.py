"""What regularisers add to a loss, and what constraints put weights back to, as methods of a network."""

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
    """Return a function without anything around it."""
    return Closure(ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None)), {}, {}, "network")


def methods(graph: NetworkGraph, parameters: dict[str, str], script: Script, watched: bool) -> list[ast.stmt]:
    """Return ``penalty`` and ``constrain``, each where a network needs it.

    ``watched`` says whether regularisers look at outputs, which the modules then keep.
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
    """Write down what a layer's outputs add to the loss; say whether there is any of that."""
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
        alike = isinstance(regulariser, (L1, L2, L1L2))  # sums, for which the order of axes does not count
        weight = Expression(place if alike else _as_keras(place, variable), shape=variable.shape)
        value = _computed(regulariser.penalty, weight, script, block)
        block.statements += quoted("total = total + VALUE", VALUE=value)
    block.statements += quoted(_ACTIVITY) if watched else []
    doc = "Give what regularisers add to the loss of the last call."
    return define("penalty", ["self"], [*block.statements, *quoted("return total")], doc)


def _constrain(weights: list[tuple[ast.expr, LayerVariable]], script: Script) -> ast.stmt:
    block = CodeBlock(Names({"self"}))
    for place, variable in weights:
        assert isinstance(variable.constraint, Constraint)
        weight = block.bind(Expression(_as_keras(place, variable), shape=variable.shape), "weight")
        value = _as_torch(_computed(variable.constraint.project, weight, script, block), variable)
        block.statements.append(ast.Expr(call(attribute(place, "copy_"), value)))
    made = define("constrain", ["self"], tidied(block.statements), "Put weights back to what their constraints allow.")
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
