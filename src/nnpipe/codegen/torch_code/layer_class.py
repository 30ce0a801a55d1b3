"""The writer of a class for one layer: for nested layers, and for layers that cannot be inlined
in the network.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from nnpipe.codegen.syntax import (
    assign,
    attribute,
    build_class,
    build_dotted_name,
    call,
    fill_template,
    literal,
)
from nnpipe.codegen.syntax import build_function as define
from nnpipe.codegen.torch_code.code_blocks import (
    Closure,
    CodeBlock,
    Names,
    Scope,
    Script,
    read_closure,
    remove_intermediate_names,
)
from nnpipe.codegen.torch_code.expression_evaluation import apply_function
from nnpipe.codegen.torch_code.function_evaluation import evaluate_statements, inline_call
from nnpipe.codegen.torch_code.values import Expression, ModuleValue, Untranslatable, lift
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import list_variables
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape
from nnpipe.layers.vocabulary.regularisers import L1, L1L2, L2, Constraint, Regulariser

Change: TypeAlias = "tuple[str, ast.expr | None, bool]"
"""The name of a parameter or buffer in a module, its value or ``None`` to delete it, and whether
it is a buffer.
"""
ClassOf: TypeAlias = "Callable[[Any, Script], str]"
"""A function that writes the class of a layer into a script and returns its name."""
_UNSAID = ("self", "device", "dtype")


def build_constructor_call(
    module: Any, script: Script, class_of: ClassOf
) -> tuple[ast.expr, list[Change]]:
    """Return the expression that creates a module, and the changes to be made to it.

    Returns
    -------
    ast.expr
        The call of the constructor.
    list of Change
        The parameters and buffers that the module has in addition to those of a new one, or that it
        lacks.

    Raises
    ------
    Untranslatable
        If the class is not one of ``torch.nn``.
    """
    from torch import nn

    if isinstance(module, nn.ParameterDict):
        return call(
            "nn.ParameterDict",
            _build_dict({key: _build_parameter(value, script) for key, value in module.items()}),
        ), []
    if isinstance(module, nn.ModuleDict):
        parts = {key: _build_part_call(value, script, class_of) for key, value in module.items()}
        return call("nn.ModuleDict", _build_dict(parts)), []
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind:
        raise Untranslatable(f"there is no torch.nn.{kind.__name__}")
    args, named = _get_constructor_arguments(module)
    fresh = kind(*args, **named)
    written = [lift(value) for value in args], {key: lift(value) for key, value in named.items()}
    return call(f"nn.{kind.__name__}", *written[0], **written[1]), _find_differences(
        fresh, module, script
    )


def build_core_call(core: Any, script: Script, class_of: ClassOf) -> tuple[ast.expr, list[Change]]:
    """Return the expression that creates a layer's core, and the changes to be made to it.

    If the core is a layer, ``class_of`` writes a class for it into the script.
    """
    if hasattr(core, "layer") and hasattr(core, "call"):
        return call(class_of(core, script)), []
    return build_constructor_call(core, script, class_of)


def _build_part_call(module: Any, script: Script, class_of: ClassOf) -> ast.expr:
    made, changes = build_core_call(module, script, class_of)
    if changes:
        raise Untranslatable("a nested module has additional parameters")
    return made


def build_change_statements(owner: ast.expr, changes: list[Change]) -> list[ast.stmt]:
    """Return the statements that add parameters and buffers to a module or delete them."""
    found: list[ast.stmt] = []
    for name, value, buffer in changes:
        if value is None:
            found.append(ast.Delete([ast.Attribute(owner, name, ast.Del())]))
        elif buffer:
            found.append(ast.Expr(call(attribute(owner, "register_buffer"), literal(name), value)))
        else:
            found.append(assign(attribute(owner, name), value))
    return found


def _get_constructor_arguments(module: Any) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(type(module).__init__).parameters.values():
        if (
            parameter.name in _UNSAID
            or parameter.kind is inspect.Parameter.VAR_KEYWORD
            or parameter.name[0] == "_"
        ):
            continue
        value = getattr(module, parameter.name)
        if parameter.name == "bias" and not isinstance(value, bool):
            value = value is not None
        if parameter.default is inspect.Parameter.empty:
            args.append(value)
        elif not _is_default(value, parameter.default):
            named[parameter.name] = value
    return args, named


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, tuple) and not isinstance(default, tuple):
        return all(item == default for item in value)
    return bool(value == default)


def _find_differences(fresh: Any, module: Any, script: Script) -> list[Change]:
    was = {"parameter": dict(fresh.named_parameters()), "buffer": dict(fresh.named_buffers())}
    now = {"parameter": dict(module.named_parameters()), "buffer": dict(module.named_buffers())}
    gone = {name for kind in was for name in was[kind] if name not in now[kind]}
    found: list[Change] = [(name, None, False) for name in sorted(gone)]
    for kind, there in now.items():
        for name, value in there.items():
            if name not in was[kind]:
                buffer = kind == "buffer"
                found.append(
                    (
                        name,
                        _build_tensor(value, script) if buffer else _build_parameter(value, script),
                        buffer,
                    )
                )
    return found


def _build_dict(values: dict[str, ast.expr]) -> ast.expr:
    return ast.Dict([literal(key) for key in values], list(values.values()))


def _build_parameter(value: Any, script: Script) -> ast.expr:
    return call("nn.Parameter", _build_tensor(value, script))


def _build_tensor(value: Any, script: Script) -> ast.expr:
    constant = value.detach().flatten()[:1].tolist()
    maker = {(0.0,): "torch.zeros", (1.0,): "torch.ones"}.get(tuple(constant), "torch.empty")
    shape = [literal(extent) for extent in value.shape] or [ast.Tuple([], ast.Load())]
    return call(build_dotted_name(maker), *shape)


_ACTIVITY = """
for module in self.modules():
    for value in getattr(module, "activity", {}).values():
        total = total + value
"""


def create_empty_closure() -> Closure:
    """Return an empty function without surrounding names."""
    return Closure(
        ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None)),
        {},
        {},
        "network",
    )


def build_penalty_methods(
    graph: NetworkGraph, parameters: dict[str, str], script: Script, watched: bool
) -> list[ast.stmt]:
    """Return the methods ``penalty`` and ``constrain``; each one only if the network needs it.

    ``watched`` says whether layers have regularisers of their outputs, whose penalties the modules
    store.
    """
    weights = [
        (build_dotted_name(f"self.{parameters[name]}"), v)
        for name, v in list_variables(graph).items()
    ]
    found: list[ast.stmt] = []
    regularised = [(place, v) for place, v in weights if isinstance(v.regulariser, Regulariser)]
    if regularised or watched:
        found.append(_build_penalty_method(regularised, script, watched))
    constrained = [(place, v) for place, v in weights if isinstance(v.constraint, Constraint)]
    if constrained:
        found.append(_build_constrain_method(constrained, script))
    return found


def add_activity_penalty(
    layer: Layer, outputs: list[ast.expr], script: Script, block: CodeBlock
) -> bool:
    """Add the statement that stores the penalty of a layer's outputs.

    Return whether the layer has a regulariser of its outputs; without one, nothing is added.
    """
    regulariser = getattr(layer, "activity_regularizer", None)
    if not isinstance(regulariser, Regulariser):
        return False
    total: ast.expr | None = None
    for output in outputs:
        value = _inline_function(regulariser.penalty, Expression(output), script, block)
        share = ast.BinOp(value, ast.Div(), call("max", call("len", output), literal(1)))
        total = share if total is None else ast.BinOp(total, ast.Add(), share)
    assert total is not None
    place = ast.Subscript(
        build_dotted_name("self.activity"), literal(layer.name or "layer"), ast.Store()
    )
    block.statements.append(ast.Assign([place], total))
    return True


def _build_penalty_method(
    weights: list[tuple[ast.expr, LayerVariable]], script: Script, watched: bool
) -> ast.stmt:
    block = CodeBlock(
        Names({"self", "total", "module", "value"}), fill_template("total = torch.zeros(())")
    )
    for place, variable in weights:
        regulariser = variable.regulariser
        assert isinstance(regulariser, Regulariser)
        # sums, which do not depend on the order of axes
        alike = isinstance(regulariser, (L1, L2, L1L2))
        weight = Expression(place if alike else _as_keras(place, variable), shape=variable.shape)
        value = _inline_function(regulariser.penalty, weight, script, block)
        block.statements += fill_template("total = total + VALUE", VALUE=value)
    block.statements += fill_template(_ACTIVITY) if watched else []
    doc = "Return the penalty of the regularisers for the last call."
    return define("penalty", ["self"], [*block.statements, *fill_template("return total")], doc)


def _build_constrain_method(
    weights: list[tuple[ast.expr, LayerVariable]], script: Script
) -> ast.stmt:
    block = CodeBlock(Names({"self"}))
    for place, variable in weights:
        assert isinstance(variable.constraint, Constraint)
        weight = block.bind(Expression(_as_keras(place, variable), shape=variable.shape), "weight")
        value = _as_torch(
            _inline_function(variable.constraint.project, weight, script, block), variable
        )
        block.statements.append(ast.Expr(call(attribute(place, "copy_"), value)))
    made = define(
        "constrain",
        ["self"],
        remove_intermediate_names(block.statements),
        "Project the weights to values that their constraints allow.",
    )
    made.decorator_list = [call("torch.no_grad")]
    return made


def _inline_function(
    function: Any, value: Expression, script: Script, block: CodeBlock
) -> ast.expr:
    return lift(
        apply_function(
            function, [value], {}, Scope({}, create_empty_closure(), script, block, inline_call)
        )
    )


def _as_keras(place: ast.expr, variable: LayerVariable) -> ast.expr:
    if variable.axes is None:
        return place if variable.torch_shape is None else _build_reshape(place, variable.shape)
    if variable.torch_shape is not None:
        place = _build_reshape(place, tuple(variable.shape[axis] for axis in variable.axes))
    order = [variable.axes.index(axis) for axis in range(len(variable.axes))]
    return call(attribute(place, "permute"), *(literal(axis) for axis in order))


def _as_torch(value: ast.expr, variable: LayerVariable) -> ast.expr:
    if variable.axes is not None:
        value = call(attribute(value, "permute"), *(literal(axis) for axis in variable.axes))
    return value if variable.torch_shape is None else _build_reshape(value, variable.torch_shape)


def _build_reshape(value: ast.expr, shape: tuple[int, ...]) -> ast.expr:
    return call(attribute(value, "reshape"), *(literal(extent) for extent in shape))


_SELF = ast.Name("self", ast.Load())


def write_layer_class(
    module: Any, script: Script, shapes: tuple[Shape, ...] = (), *, inner: bool = False
) -> str:
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
        Whether the layer is inside another layer, and so has to apply the regulariser of its
        outputs itself.
    """
    layer = module.layer
    start = fill_template("super().__init__()")
    if module.core is not None:
        made, changes = build_core_call(module.core, script, write_inner_class)
        start += [
            assign(build_dotted_name("self.core"), made),
            *build_change_statements(build_dotted_name("self.core"), changes),
        ]
    if not layer.trainable and module.variables:
        start += fill_template("self.requires_grad_(False)")
    tensors, body = _evaluate_forward(module, script, shapes)
    parts: list[ast.stmt] = [define("forward", ["self", *tensors], body)]
    if inner and isinstance(getattr(layer, "activity_regularizer", None), Regulariser):
        start += fill_template("self.activity = {}")
        parts = [
            define("compute", ["self", *tensors], body),
            _build_watched_forward(layer, tensors, script),
        ]
    if len(start) > 1:
        parts.insert(0, define("__init__", ["self"], start))
    title = type(layer).__name__
    return script.define(title, build_class(title, build_dotted_name("nn.Module"), parts))


def write_inner_class(module: Any, script: Script) -> str:
    """Write the class of a layer that is inside another layer, and return its name."""
    return write_layer_class(module, script, inner=True)


def _evaluate_forward(
    module: Any, script: Script, shapes: tuple[Shape, ...]
) -> tuple[list[str], list[ast.stmt]]:
    """Return the names of the tensors that a layer's function takes, and its remaining
    statements.
    """
    closure, count = read_closure(module.call), max(len(shapes), 1)
    args = closure.node.args
    plain = [parameter.arg for parameter in (*args.posonlyargs, *args.args)]
    names = Names({*plain, "self"})
    local: dict[str, Any] = dict(
        zip(
            plain,
            [*closure.first, ModuleValue(_SELF, None, module, build_dotted_name("self.core"))],
            strict=False,
        )
    )
    tensors = [parameter for parameter in plain if parameter not in local][:count]
    # parameters that are left out have their default, None
    local |= dict.fromkeys(plain[len(local) + len(tensors) :])
    more = (
        [names.fresh(args.vararg.arg) for _ in range(count - len(tensors))] if args.vararg else []
    )
    known = dict(zip([*tensors, *more], shapes, strict=False))
    values = {
        title: Expression(ast.Name(title, ast.Load()), known.get(title))
        for title in (*tensors, *more)
    }
    local |= {title: values[title] for title in tensors}
    if args.vararg:
        local[args.vararg.arg] = tuple(values[title] for title in more)
    return [*tensors, *more], evaluate_statements(closure, local, script, names)


def _build_watched_forward(layer: Layer, tensors: list[str], script: Script) -> ast.stmt:
    """Return the method ``forward`` that calls ``compute`` and applies the regulariser to its
    output.
    """
    block = CodeBlock(Names({"self", *tensors}))
    given = (ast.Name(title, ast.Load()) for title in tensors)
    output = block.bind(Expression(call(build_dotted_name("self.compute"), *given)), "y")
    add_activity_penalty(layer, [output.node], script, block)
    return define("forward", ["self", *tensors], [*block.statements, ast.Return(output.node)])
