"""The writer of ``torch.nn`` modules as the calls that create them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from nnpipe.codegen.syntax import assign, attribute, call, dotted, literal
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.codegen.torch_code.values import Untranslatable, lift

Change: TypeAlias = "tuple[str, ast.expr | None, bool]"
"""The name of a parameter or buffer in a module, its value or ``None`` to delete it, and whether it is a buffer."""
ClassOf: TypeAlias = "Callable[[Any, Script], str]"
"""A function that writes the class of a layer into a script and returns its name."""
_UNSAID = ("self", "device", "dtype")


def constructor(module: Any, script: Script, class_of: ClassOf) -> tuple[ast.expr, list[Change]]:
    """Return the expression that creates a module, and the changes to be made to it.

    Returns
    -------
    ast.expr
        The call of the constructor.
    list of Change
        The parameters and buffers that the module has in addition to those of a new one, or that it lacks.

    Raises
    ------
    Untranslatable
        If the class is not one of ``torch.nn``.
    """
    from torch import nn

    if isinstance(module, nn.ParameterDict):
        return call("nn.ParameterDict", _dict({key: _parameter(value, script) for key, value in module.items()})), []
    if isinstance(module, nn.ModuleDict):
        parts = {key: _part(value, script, class_of) for key, value in module.items()}
        return call("nn.ModuleDict", _dict(parts)), []
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind:
        raise Untranslatable(f"there is no torch.nn.{kind.__name__}")
    args, named = _arguments(module)
    fresh = kind(*args, **named)
    written = [lift(value) for value in args], {key: lift(value) for key, value in named.items()}
    return call(f"nn.{kind.__name__}", *written[0], **written[1]), _differences(fresh, module, script)


def core_of(core: Any, script: Script, class_of: ClassOf) -> tuple[ast.expr, list[Change]]:
    """Return the expression that creates a layer's core, and the changes to be made to it.

    If the core is a layer, ``class_of`` writes a class for it into the script.
    """
    if hasattr(core, "layer") and hasattr(core, "call"):
        return call(class_of(core, script)), []
    return constructor(core, script, class_of)


def _part(module: Any, script: Script, class_of: ClassOf) -> ast.expr:
    made, changes = core_of(module, script, class_of)
    if changes:
        raise Untranslatable("a nested module has additional parameters")
    return made


def changes_of(owner: ast.expr, changes: list[Change]) -> list[ast.stmt]:
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


def _arguments(module: Any) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(type(module).__init__).parameters.values():
        if parameter.name in _UNSAID or parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.name[0] == "_":
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


def _differences(fresh: Any, module: Any, script: Script) -> list[Change]:
    was = {"parameter": dict(fresh.named_parameters()), "buffer": dict(fresh.named_buffers())}
    now = {"parameter": dict(module.named_parameters()), "buffer": dict(module.named_buffers())}
    gone = {name for kind in was for name in was[kind] if name not in now[kind]}
    found: list[Change] = [(name, None, False) for name in sorted(gone)]
    for kind, there in now.items():
        for name, value in there.items():
            if name not in was[kind]:
                buffer = kind == "buffer"
                found.append((name, _filled(value, script) if buffer else _parameter(value, script), buffer))
    return found


def _dict(values: dict[str, ast.expr]) -> ast.expr:
    return ast.Dict([literal(key) for key in values], list(values.values()))


def _parameter(value: Any, script: Script) -> ast.expr:
    return call("nn.Parameter", _filled(value, script))


def _filled(value: Any, script: Script) -> ast.expr:
    constant = value.detach().flatten()[:1].tolist()
    maker = {(0.0,): "torch.zeros", (1.0,): "torch.ones"}.get(tuple(constant), "torch.empty")
    shape = [literal(extent) for extent in value.shape] or [ast.Tuple([], ast.Load())]
    return call(dotted(maker), *shape)
