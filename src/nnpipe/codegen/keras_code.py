"""The writer of a function that builds a network in Keras.

Keras's configuration of the network (``nnpipe.layers.keras.to_config``) states the
classes and their arguments.  It is written as the equivalent calls.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from typing import Any

from nnpipe.codegen.layer_imports import build_keras_layer_call
from nnpipe.codegen.syntax import as_target, assign, build_name, call, fill_template, literal
from nnpipe.codegen.syntax import build_function as define
from nnpipe.codegen.torch_code.code_blocks import Names, Script
from nnpipe.codegen.torch_code.network import find_used_outputs
from nnpipe.codegen.torch_code.values import Untranslatable
from nnpipe.core.errors import ConfigError
from nnpipe.layers.catalogue import list_layer_classes
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import Ref, infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.to_config import TENSOR, layer_config, network_config
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer

_NEEDED = ("pool_size",)
"""Arguments that have no default in some classes of Keras."""
_MODULES = {"keras.layers": "layers", "keras": "keras"}


@dataclass(frozen=True)
class NetworkFunction:
    """The name of the function in a script that builds a network."""

    title: str


def write_network_function(graph: NetworkGraph, script: Script, wanted: str) -> NetworkFunction:
    """Write the function that builds a network into a script, and return its name.

    Networks inside the network get functions of their own.

    Raises
    ------
    ConfigError
        If the graph has problems.
    """
    function = wanted if wanted.startswith("build_") else f"build_{wanted}"
    config = network_config(replace(graph, sequential=False))["config"]
    nodes = {item["name"]: item["inbound_nodes"] for item in config["layers"]}
    found, used = infer(graph).shapes, find_used_outputs(graph)
    names, values = Names({"keras", "layers", *script.definitions}), {}
    body: list[ast.stmt] = []
    makers: dict[str, ast.expr] = {}
    for entry, number in graph.steps():
        layer = entry.layer
        title = layer.name
        if isinstance(layer, Input):
            values[title, 0, 0] = _bind_value(body, names, title, _build_input(layer))
            continue
        if title not in makers:
            makers[title] = _build_layer_call(layer, script)
            if len(entry.uses) > 1:
                makers[title] = _bind_value(body, names, f"{title}_layer", makers[title])
        node = nodes[title][number]
        args = [_build_argument(value, values) for value in node["args"]]
        named = {key: _build_argument(value, values) for key, value in node["kwargs"].items()}
        count = sum(1 for ref in found if (ref.layer, ref.call) == (title, number))
        made = call(makers[title], *args, **named)
        outputs = [
            title if Ref(title, number, index) in used else f"_{title}" for index in range(count)
        ]
        for index, value in enumerate(_bind_outputs(body, names, outputs, made)):
            values[title, number, index] = value
    ends = [
        _build_list([values[ref.layer, ref.call, ref.output] for ref in refs])
        for refs in (graph.inputs, graph.outputs)
    ]
    body.append(ast.Return(call("keras.Model", *ends, name=literal(graph.name))))
    return NetworkFunction(script.define(function, define("network", [], body, "Build a network.")))


def _build_layer_call(layer: Layer, script: Script) -> ast.expr:
    """Return the expression that creates a layer."""
    if isinstance(layer, Submodel):
        inner = replace(layer.graph, name=layer.name)
        made = call(write_network_function(inner, script, f"build_{layer.name}").title)
        if layer.trainable:
            return made
        body = fill_template("network.trainable = False\nreturn network")
        frozen = define("frozen", ["network"], body, "Make a network untrainable and return it.")
        return call(script.define("frozen", frozen), made)
    if layer.has_keras_hook():
        try:
            return build_keras_layer_call(layer, script)
        except Untranslatable as error:
            raise ConfigError(
                f"{layer.name}: cannot be written as code for Keras: {error}"
            ) from None
    return _build_object_call(layer_config(layer), layer.trainable)


def _build_object_call(config: Mapping[str, Any], trainable: bool = True) -> ast.expr:
    """Return the call that creates the object of a configuration; arguments with default values
    are left out.
    """
    module, kind = config["module"], config["class_name"]
    own = config["config"]
    named = {} if trainable else {"trainable": literal(False)}
    defaults = (
        _get_layer_defaults(kind)
        if module == "keras.layers"
        else _get_object_defaults(module, kind)
    )
    for key, value in own.items():
        if key == "trainable" or (key == "dtype" and value == "float32"):
            continue
        if key not in _NEEDED and key in defaults and defaults[key] == value:
            continue
        named[key] = _build_value(value)
    first = named.pop("name", None)
    ordered = named if first is None else {**named, "name": first}
    return call(f"{_MODULES.get(module, module)}.{kind}", **ordered)


def _build_value(value: Any) -> ast.expr:
    if isinstance(value, Mapping):
        return _build_object_call(value) if "class_name" in value else literal(value)
    if isinstance(value, list):
        return ast.Tuple([_build_value(item) for item in value], ast.Load())
    return literal(value)


def _get_layer_defaults(kind: str) -> dict[str, Any]:
    """Return the default values of a layer's arguments in Keras."""
    cls = next(cls for cls in list_layer_classes() if cls.keras == kind and not cls.own)
    rows = [row for row in field_table.table(cls) if row.default is not MISSING]
    return {row.key: row.kind.emit(row.kind.normal(row.default, cls.rank)) for row in rows}


def _get_object_defaults(module: str, kind: str) -> dict[str, Any]:
    from nnpipe.layers.vocabulary.field_table import map_subclasses
    from nnpipe.layers.vocabulary.initialisers import Initialiser
    from nnpipe.layers.vocabulary.regularisers import Constraint, Regulariser

    base: Any = {
        "keras.initializers": Initialiser,
        "keras.constraints": Constraint,
        "keras.regularizers": Regulariser,
    }
    cls: Any = map_subclasses(base[module])[kind]
    return {row.key: row.kind.emit(row.default) for row in field_table.table(cls)}


def _build_input(layer: Input) -> ast.expr:
    named = {"name": literal(layer.name)}
    if layer.batch is not None:
        named = {"batch_size": literal(layer.batch), **named}
    if layer.dtype != "float32":
        named = {"dtype": literal(layer.dtype), **named}
    return call("keras.Input", literal(tuple(layer.shape)), **named)


def _bind_value(body: list[ast.stmt], names: Names, wanted: str, value: ast.expr) -> ast.expr:
    """Append the assignment of a value to an unused name, and return the name."""
    title = names.fresh(wanted)
    body.append(assign(title, value))
    return build_name(title)


def _bind_outputs(
    body: list[ast.stmt], names: Names, wanted: list[str], value: ast.expr
) -> list[ast.expr]:
    if len(wanted) == 1:
        return [_bind_value(body, names, wanted[0], value)]
    titles: list[ast.expr] = [build_name(names.fresh(title)) for title in wanted]
    body.append(ast.Assign([as_target(ast.Tuple(titles, ast.Load()))], value))
    return titles


def _build_argument(value: Any, values: Mapping[Any, ast.expr]) -> ast.expr:
    if isinstance(value, Mapping) and value.get("class_name") == TENSOR:
        return values[tuple(value["config"]["keras_history"])]
    if isinstance(value, list):
        return ast.List([_build_argument(item, values) for item in value], ast.Load())
    return literal(value)


def _build_list(items: list[ast.expr]) -> ast.expr:
    return items[0] if len(items) == 1 else ast.List(items, ast.Load())
