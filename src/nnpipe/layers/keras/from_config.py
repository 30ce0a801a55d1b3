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

from nnpipe.layers.catalogue import known_layer
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use, arguments_of, infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.config_parts import (
    dtype_in,
    first_text,
    has_more,
    in_todays_words,
    input_of,
    is_keras_own,
    keras_classes,
    own_of,
    read_uses,
    renumbered,
    shape_in,
    short,
    unknown_of,
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
        graph = _network(config, "", found)
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
        return Unknown((), Raw.of({"class_name": "?", "found": raw}))
    own = raw.get("registered_name")
    if isinstance(own, str) and own.startswith(f"{OWN_PACKAGE}>"):
        return _of_ones_own(own.removeprefix(f"{OWN_PACKAGE}>"), raw, path, found)
    today = in_todays_words(raw)
    raw = today if today["class_name"] in keras_classes() else raw
    config = raw.get("config")
    if not isinstance(config, Mapping):
        config = {}
        if raw["class_name"] not in NETWORKS:
            found.append(NetworkProblem("structure", f"{path}.config", "is missing"))
    name = first_text(config.get("name"), raw.get("name"))
    if raw["class_name"] in NETWORKS and "layers" in config:
        graph = _network(raw, path, found)
        if graph is not None:
            return Submodel((), graph, name=name, trainable=config.get("trainable") is not False)
        return unknown_of(raw, config, name)
    cls = keras_classes().get(raw["class_name"])
    whole = config
    if OWN in raw:
        cls, whole = own_of(raw, config)
    if cls is None or not is_keras_own(raw):
        hint = "" if is_keras_own(raw) else f"; {NAME_IT}"
        message = f"{short(raw['class_name'])} is not in the vocabulary{hint}"
        found.append(NetworkProblem("unknown-layer", path, message))
        return unknown_of(raw, config, name)
    if has_more(cls, whole, path, found):
        return unknown_of(raw, config, name)
    return _known(cls, raw, whole, name, path, found)


def _of_ones_own(
    title: str, raw: Mapping[str, Any], path: str, found: list[NetworkProblem]
) -> Layer:
    """Return a layer that is computed in Keras by its hook; its class must be known, and is
    never imported.
    """
    config = raw.get("config")
    if not isinstance(config, Mapping):
        found.append(NetworkProblem("structure", f"{path}.config", "is missing"))
        config = {}
    name, cls = first_text(config.get("name"), raw.get("name")), known_layer(title)
    if cls is None or cls is Unknown or (cls.keras and not cls.has_keras_hook()):
        message = (
            f"{short(title)} is somebody's own layer, whose module is not imported or installed "
            f"here; {NAME_IT}"
        )
        found.append(NetworkProblem("unknown-layer", path, message))
        return unknown_of(raw, config, name)
    if has_more(cls, config, path, found):
        return unknown_of(raw, config, name)
    return _known(cls, raw, config, name, path, found)


def _known(
    cls: type[Layer],
    raw: Mapping[str, Any],
    config: Mapping[str, Any],
    name: str,
    path: str,
    found: list[NetworkProblem],
) -> Layer:
    values: dict[str, Any] = {"name": name, "dtype": dtype_in(config.get("dtype"))}
    if cls is Input:
        layer: Layer = input_of(config, values, path, found)
    else:
        config = _with_layers(cls, config, f"{path}.config", found)
        values |= field_table.read(cls, config, f"{path}.config", found)
        if "module" not in raw:
            _read_as_of_old(cls, config, values)
        layer = cls((), **values)
    told = {problem.path for problem in found}
    for problem in arguments_of(layer, f"{path}.config"):
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


def _network(raw: Any, path: str, found: list[NetworkProblem]) -> NetworkGraph | None:
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
                "structure", path, f"{short(kind)} is no model of layers that are listed"
            )
        )
        return None
    name = first_text(config.get("name"), raw.get("name")) or "network"
    layers = config["layers"]
    if kind == "Sequential":
        return _sequential(name, config, layers, f"{where}config", found)
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
    inputs = _ends(config.get("input_layers"), f"{where}config.input_layers", found)
    outputs = _ends(config.get("output_layers"), f"{where}config.output_layers", found)
    graph = renumbered(NetworkGraph(name, tuple(entries), inputs, outputs))
    _check(graph, where, found)
    return graph


def _sequential(
    name: str, config: Mapping[str, Any], items: list[Any], path: str, found: list[NetworkProblem]
) -> NetworkGraph | None:
    layers = [
        read_layer(item, f"{path}.layers[{number}]", found) for number, item in enumerate(items)
    ]
    if not layers or not isinstance(layers[0], Input):
        own = items[0].get("config") if items and isinstance(items[0], Mapping) else None
        shape = shape_in(own) if isinstance(own, Mapping) else None
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


def _ends(raw: Any, path: str, found: list[NetworkProblem]) -> tuple[Ref, ...]:
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
                    "structure", f"{path}[{number}]", f"names no output of a layer: {short(item)}"
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
