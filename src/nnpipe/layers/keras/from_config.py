"""The reader of graphs in Keras configurations, without Keras.

Three dialects are read: TensorFlow 1.x (a class ``Model``, ``batch_input_shape``,
calls as lists), TensorFlow 2.x (the same with a class ``Functional``), and
Keras 3 (``batch_shape``, calls as arguments that hold ``__keras_tensor__``).
All faults become a :class:`~nnpipe.layers.problems.NetworkProblem`; nothing is
raised, and no name from the configuration is ever imported or called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnpipe.layers.catalogue import find_layer
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use, find_argument_problems, infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.config_parts import (
    find_first_text,
    get_keras_classes,
    has_unknown_arguments,
    is_keras_own,
    make_unknown,
    read_dtype,
    read_input,
    read_input_shape,
    read_uses,
    renumber_calls,
    resolve_own_class,
    shorten,
    update_old_config,
)
from nnpipe.layers.keras.to_config import OWN, OWN_PACKAGE
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.activations import HARD_SIGMOID_2, ActivationFunction
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.value_kinds import is_integer
from nnpipe.layers.vocabulary.wrappers import Nested

NAME_IT = "own_layers (--own-layers) can name its class"
NETWORKS = ("Functional", "Model", "Sequential")


@dataclass(frozen=True)
class ParsedConfig:
    """The result of reading: the graph, or ``None`` if there is none, and all problems."""

    graph: NetworkGraph | None
    problems: tuple[NetworkProblem, ...]


def from_keras(config: Any) -> ParsedConfig:
    """Return the graph of a Keras configuration, and all problems; nothing is raised for faults.

    ``config`` is the parsed result of ``model.to_json()``, or a file's ``model_config``.
    """
    found: list[NetworkProblem] = []
    try:
        graph = _read_network(config, "", found)
    except RecursionError:
        return ParsedConfig(
            None, (*found, NetworkProblem("damaged", "", "networks are nested too deeply"))
        )
    return ParsedConfig(graph, tuple(found))


def read_layer(raw: Any, path: str, found: list[NetworkProblem]) -> Layer:
    """Return the layer of a configuration; one of an unknown class or with unknown arguments is an
    ``Unknown`` layer.

    Problems are added to ``found``.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("class_name"), str):
        found.append(NetworkProblem("structure", path, "is not a layer: it has no class_name"))
        return Unknown((), Raw.from_value({"class_name": "?", "found": raw}))
    own = raw.get("registered_name")
    if isinstance(own, str) and own.startswith(f"{OWN_PACKAGE}>"):
        return _read_own_layer(own.removeprefix(f"{OWN_PACKAGE}>"), raw, path, found)
    today = update_old_config(raw)
    raw = today if today["class_name"] in get_keras_classes() else raw
    config = raw.get("config")
    if not isinstance(config, Mapping):
        config = {}
        if raw["class_name"] not in NETWORKS:
            found.append(NetworkProblem("structure", f"{path}.config", "is missing"))
    name = find_first_text(config.get("name"), raw.get("name"))
    if raw["class_name"] in NETWORKS and "layers" in config:
        graph = _read_network(raw, path, found)
        if graph is not None:
            return Submodel((), graph, name=name, trainable=config.get("trainable") is not False)
        return make_unknown(raw, config, name)
    cls = get_keras_classes().get(raw["class_name"])
    whole = config
    if OWN in raw:
        cls, whole = resolve_own_class(raw, config)
    if cls is None or not is_keras_own(raw):
        hint = "" if is_keras_own(raw) else f"; {NAME_IT}"
        message = f"{shorten(raw['class_name'])} is not in the vocabulary{hint}"
        found.append(NetworkProblem("unknown-layer", path, message))
        return make_unknown(raw, config, name)
    if has_unknown_arguments(cls, whole, path, found):
        return make_unknown(raw, config, name)
    return _read_known_layer(cls, raw, whole, name, path, found)


def _read_own_layer(
    title: str, raw: Mapping[str, Any], path: str, found: list[NetworkProblem]
) -> Layer:
    """Return a layer that is computed in Keras by its hook; its class must be known, and is
    never imported.
    """
    config = raw.get("config")
    if not isinstance(config, Mapping):
        found.append(NetworkProblem("structure", f"{path}.config", "is missing"))
        config = {}
    name, cls = find_first_text(config.get("name"), raw.get("name")), find_layer(title)
    if cls is None or cls is Unknown or (cls.keras and not cls.has_keras_hook()):
        message = (
            f"{shorten(title)} is somebody's own layer, whose module is not imported or installed "
            f"here; {NAME_IT}"
        )
        found.append(NetworkProblem("unknown-layer", path, message))
        return make_unknown(raw, config, name)
    if has_unknown_arguments(cls, config, path, found):
        return make_unknown(raw, config, name)
    return _read_known_layer(cls, raw, config, name, path, found)


def _read_known_layer(
    cls: type[Layer],
    raw: Mapping[str, Any],
    config: Mapping[str, Any],
    name: str,
    path: str,
    found: list[NetworkProblem],
) -> Layer:
    values: dict[str, Any] = {"name": name, "dtype": read_dtype(config.get("dtype"))}
    if cls is Input:
        layer: Layer = read_input(config, values, path, found)
    else:
        config = _with_layers(cls, config, f"{path}.config", found)
        values |= field_table.read(cls, config, f"{path}.config", found)
        if "module" not in raw:
            _read_as_of_old(cls, config, values)
        layer = cls((), **values)
    told = {problem.path for problem in found}
    for problem in find_argument_problems(layer, f"{path}.config"):
        if problem.path not in told and problem.code == "argument":
            found.append(problem)
    for field in dataclasses.fields(layer):
        value = getattr(layer, field.name)
        if isinstance(value, ActivationFunction) and value.name == HARD_SIGMOID_2:
            where = f"{path}.config.{field.name}"
            found.append(
                NetworkProblem(
                    "changed-meaning", where, "hard_sigmoid is read as Keras 2 had it, 0.2 x + 0.5"
                )
            )
    return layer


def _with_layers(
    cls: type[Layer], config: Mapping[str, Any], path: str, found: list[NetworkProblem]
) -> Mapping[str, Any]:
    """Return a configuration in which arguments that are layers have been read."""
    inner = [item.key for item in field_table.table(cls) if isinstance(item.kind, Nested)]
    return {
        **config,
        **{
            k: read_layer(config[k], f"{path}.{k}", found)
            for k in inner
            if config.get(k) is not None
        },
    }


def _read_as_of_old(cls: type[Layer], config: Mapping[str, Any], values: dict[str, Any]) -> None:
    """Set the values that Keras 1 and 2 meant, where Keras 3 means others."""
    for key, value in values.items():
        if isinstance(value, ActivationFunction) and value.name == "hard_sigmoid":
            values[key] = ActivationFunction(HARD_SIGMOID_2)
    if cls.keras == "GRU" and "reset_after" not in config:
        values["reset_after"] = False


# -- networks -------------------------------------------------------------------------------------


def _read_network(raw: Any, path: str, found: list[NetworkProblem]) -> NetworkGraph | None:
    where = f"{path}." if path else ""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("class_name"), str):
        found.append(NetworkProblem("structure", path, "is not a model: it has no class_name"))
        return None
    kind, config = raw["class_name"], raw.get("config")
    if isinstance(config, list):  # the first versions of Keras wrote a sequential model like this
        config = {"layers": config}
    if (
        kind not in NETWORKS
        or not isinstance(config, Mapping)
        or not isinstance(config.get("layers"), list)
    ):
        found.append(
            NetworkProblem(
                "structure", path, f"{shorten(kind)} is no model of layers that are listed"
            )
        )
        return None
    name = find_first_text(config.get("name"), raw.get("name")) or "network"
    layers = config["layers"]
    if kind == "Sequential":
        return _read_sequential(name, config, layers, f"{where}config", found)
    entries = []
    for number, item in enumerate(layers):
        at = f"{where}config.layers[{number}]"
        layer = read_layer(item, at, found)
        nodes = item.get("inbound_nodes") if isinstance(item, Mapping) else None
        uses = (
            (Use(),)
            if isinstance(layer, Input)
            else read_uses(layer, nodes, f"{at}.inbound_nodes", found)
        )
        entries.append(LayerEntry(layer, uses))
    inputs = _read_refs(config.get("input_layers"), f"{where}config.input_layers", found)
    outputs = _read_refs(config.get("output_layers"), f"{where}config.output_layers", found)
    graph = renumber_calls(NetworkGraph(name, tuple(entries), inputs, outputs))
    _check(graph, where, found)
    return graph


def _read_sequential(
    name: str, config: Mapping[str, Any], items: list[Any], path: str, found: list[NetworkProblem]
) -> NetworkGraph | None:
    layers = [
        read_layer(item, f"{path}.layers[{number}]", found) for number, item in enumerate(items)
    ]
    if not layers or not isinstance(layers[0], Input):
        own = items[0].get("config") if items and isinstance(items[0], Mapping) else None
        shape = read_input_shape(own) if isinstance(own, Mapping) else None
        built = config.get("build_input_shape")
        if (
            shape is None
            and isinstance(built, list)
            and all(e is None or is_integer(e) for e in built)
        ):
            shape = tuple(built)
        if (
            shape is None
            and layers
            and isinstance(layers[0], Submodel)
            and len(layers[0].graph.inputs) == 1
        ):
            first = layers[0].graph.layers.get(layers[0].graph.inputs[0].layer)
            shape = (first.batch, *first.shape) if isinstance(first, Input) else None
        if shape is None:
            found.append(
                NetworkProblem("no-input-shape", path, "its first layer does not say what it takes")
            )
        else:
            taken = {layer.name for layer in layers}
            made = f"{layers[0].name}_input" if layers else "input"
            while made in taken:
                made += "_"
            dtype = layers[0].dtype if layers else "float32"
            layers.insert(0, Input(shape[1:], shape[0], name=made, dtype=dtype))
    previous: tuple[Ref, ...] = ()
    entries = []
    for layer in layers:
        entries.append(LayerEntry(layer, (Use(previous),)))
        previous = (Ref(layer.name),)
    inputs = (Ref(layers[0].name),) if layers and isinstance(layers[0], Input) else ()
    graph = NetworkGraph(name, tuple(entries), inputs, previous, sequential=True)
    _check(graph, f"{path.removesuffix('config')}", found)
    return graph


def _read_refs(raw: Any, path: str, found: list[NetworkProblem]) -> tuple[Ref, ...]:
    """Read input or output layers: one reference, a list, or a dictionary of them."""
    if isinstance(raw, Mapping):
        raw = [raw[key] for key in sorted(raw, key=str)]  # the order in which Keras returns them
    if isinstance(raw, list) and len(raw) == 3 and isinstance(raw[0], str):
        raw = [raw]
    refs = []
    for number, item in enumerate(raw if isinstance(raw, list) else [None]):
        good = isinstance(item, list) and len(item) == 3 and isinstance(item[0], str)
        if not good or not all(is_integer(part) for part in item[1:]):
            found.append(
                NetworkProblem(
                    "structure", f"{path}[{number}]", f"names no output of a layer: {shorten(item)}"
                )
            )
        else:
            refs.append(Ref(*item))
    return tuple(refs)


def _check(graph: NetworkGraph, where: str, found: list[NetworkProblem]) -> None:
    """Add the problems of the graph, with the places of the layers in the configuration."""
    told = {problem.path for problem in found}
    places = {
        e.layer.name: f"{where}config.layers[{number}]" for number, e in enumerate(graph.entries)
    }
    for problem in infer(graph).problems:
        # Problems of arguments and unknown layers were already reported with their place.
        if problem.code not in ("argument", "unknown-layer", "unknown-object"):
            place = places.get(problem.path, problem.path)
            if place not in told:
                found.append(NetworkProblem(problem.code, place, problem.message))
