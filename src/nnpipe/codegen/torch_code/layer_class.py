"""The writer of a class for one layer: for nested layers, and for layers that cannot be inlined in the network."""

from __future__ import annotations

import ast
from typing import Any

from nnpipe.codegen.syntax import assign, call, class_, dotted, quoted
from nnpipe.codegen.syntax import function as define
from nnpipe.codegen.torch_code.code_blocks import CodeBlock, Names, Script
from nnpipe.codegen.torch_code.function_evaluation import statements_of
from nnpipe.codegen.torch_code.modules import changes_of, core_of
from nnpipe.codegen.torch_code.penalties import activity
from nnpipe.codegen.torch_code.sources import closure_of
from nnpipe.codegen.torch_code.values import Expression, ModuleValue
from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.regularisers import Regulariser

_SELF = ast.Name("self", ast.Load())


def layer_class(module: Any, script: Script, shapes: tuple[Shape, ...] = (), *, inner: bool = False) -> str:
    """Write the class of one layer into a script, and return its name.

    Parameters
    ----------
    module
        The layer as a PyTorch module.
    script
        The script that the class is added to.
    shapes
        Shapes of the inputs, if they are known; otherwise the layer has one input.
    inner
        Whether the layer is inside another layer, and so has to apply the regulariser of its outputs itself.
    """
    layer = module.layer
    start = quoted("super().__init__()")
    if module.core is not None:
        made, changes = core_of(module.core, script, inner_class)
        start += [assign(dotted("self.core"), made), *changes_of(dotted("self.core"), changes)]
    if not layer.trainable and module.variables:
        start += quoted("self.requires_grad_(False)")
    tensors, body = _forward(module, script, shapes)
    parts: list[ast.stmt] = [define("forward", ["self", *tensors], body)]
    if inner and isinstance(getattr(layer, "activity_regularizer", None), Regulariser):
        start += quoted("self.activity = {}")
        parts = [define("compute", ["self", *tensors], body), _watching(layer, tensors, script)]
    if len(start) > 1:
        parts.insert(0, define("__init__", ["self"], start))
    title = type(layer).__name__
    return script.define(title, class_(title, dotted("nn.Module"), parts))


def inner_class(module: Any, script: Script) -> str:
    """Write the class of a layer that is inside another layer, and return its name."""
    return layer_class(module, script, inner=True)


def _forward(module: Any, script: Script, shapes: tuple[Shape, ...]) -> tuple[list[str], list[ast.stmt]]:
    """Return the names of the tensors that a layer's function takes, and its remaining statements."""
    closure, count = closure_of(module.call), max(len(shapes), 1)
    args = closure.node.args
    plain = [parameter.arg for parameter in (*args.posonlyargs, *args.args)]
    names = Names({*plain, "self"})
    local: dict[str, Any] = dict(
        zip(plain, [*closure.first, ModuleValue(_SELF, None, module, dotted("self.core"))], strict=False)
    )
    tensors = [parameter for parameter in plain if parameter not in local][:count]
    local |= dict.fromkeys(plain[len(local) + len(tensors) :])  # parameters that are left out have their default, None
    more = [names.fresh(args.vararg.arg) for _ in range(count - len(tensors))] if args.vararg else []
    known = dict(zip([*tensors, *more], shapes, strict=False))
    values = {title: Expression(ast.Name(title, ast.Load()), known.get(title)) for title in (*tensors, *more)}
    local |= {title: values[title] for title in tensors}
    if args.vararg:
        local[args.vararg.arg] = tuple(values[title] for title in more)
    return [*tensors, *more], statements_of(closure, local, script, names)


def _watching(layer: Layer, tensors: list[str], script: Script) -> ast.stmt:
    """Return the method ``forward`` that calls ``compute`` and applies the regulariser to its output."""
    block = CodeBlock(Names({"self", *tensors}))
    given = (ast.Name(title, ast.Load()) for title in tensors)
    output = block.bind(Expression(call(dotted("self.compute"), *given)), "y")
    activity(layer, [output.node], script, block)
    return define("forward", ["self", *tensors], [*block.statements, ast.Return(output.node)])
