"""Layers of packages other than nnpipe in scripts, which import their classes."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from nnpipe.codegen.syntax import call, literal
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.codegen.torch_code.values import Untranslatable, lift
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.layer import Layer, Shape


def is_foreign(layer: Layer) -> bool:
    """Return whether a layer's class belongs to another package than nnpipe."""
    return not type(layer).__module__.startswith("nnpipe.")


def build_torch_layer_call(layer: Layer, shapes: tuple[Shape, ...], script: Script) -> ast.expr:
    """Return the expression that creates the PyTorch module of a layer for inputs of these shapes.

    Raises
    ------
    Untranslatable
        If no script can import the layer's class, or an argument cannot be written.
    """
    given = [literal(tuple(shape)) for shape in shapes]
    return ast.Call(
        script.import_name("nnpipe.layers", "torch_layer"),
        [_build_constructor_call(layer, script), *given],
        [],
    )


def build_keras_layer_call(layer: Layer, script: Script) -> ast.expr:
    """Return the expression that creates a layer in Keras by its hook ``_build_keras``; raise
    ``Untranslatable`` likewise.
    """
    return ast.Call(
        script.import_name("nnpipe.layers", "keras_layer"),
        [_build_constructor_call(layer, script)],
        [],
    )


def _build_constructor_call(value: Any, script: Script) -> ast.expr:
    """Return the call that creates a layer, or an object in one such as an initialiser."""
    cls = type(value)
    if cls.__module__ == "__main__" or "." in cls.__qualname__:
        raise Untranslatable(
            f"{cls.__qualname__} is not at the top of a module that a script could import"
        )
    named = {} if not isinstance(value, Layer) else {"name": literal(value.name)}
    if isinstance(value, Layer) and value.dtype != "float32":
        named["dtype"] = literal(value.dtype)
    for row in field_table.table(cls):
        found = getattr(value, row.name)
        if row.default is dataclasses.MISSING or found != row.kind.normal(
            row.default, getattr(value, "rank", 0)
        ):
            named[row.name] = (
                _build_constructor_call(found, script)
                if dataclasses.is_dataclass(found)
                else lift(found)
            )
    first = [ast.Tuple([], ast.Load())] if isinstance(value, Layer) else []
    made = call("made", *first, **named)
    return ast.Call(script.import_name(cls.__module__, cls.__name__), made.args, made.keywords)
