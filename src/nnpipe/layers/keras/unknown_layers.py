"""Layers that Keras 3 has and nnpipe's vocabulary lacks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import one_line
from nnpipe.formats.keras import open_weights
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.keras_files import build_bounded
from nnpipe.frameworks.keras_functions import described, register
from nnpipe.frameworks.keras_weights import set_weights_from
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.references import LayerEntry
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.older_weights import Age
from nnpipe.layers.keras.own_layers import register_own
from nnpipe.layers.keras.to_config import network_config
from nnpipe.layers.keras.without_training import with_names_for_keras
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.activations import HARD_SIGMOID_2
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.unknown import Unknown

_TRAINING = re.compile(r"(^|_)(initializer|regularizer|constraint)$")
# Entries that Keras 2 wrote beside the arguments, and arguments without effect at these values.
_BESIDE = frozenset({"batch_input_shape", "build_config", "query_shape", "key_shape", "value_shape", "implementation"})
_NEUTRAL: dict[str, Any] = {"groups": 1, "dtype": "float32"}


def build_with_unknown(path: Path, graph: NetworkGraph, problems: list[NetworkProblem]) -> Any:
    """Return the Keras model of a network with layers that the vocabulary lacks, with the weights of a file.

    Raises
    ------
    ConfigError
        If Keras 3 lacks a layer or an argument; the message names it.
    """
    others = [p for p in problems if p.code not in ("unknown-layer", "unknown-argument")]
    if others:
        raise ConfigError("; ".join(map(str, others[:3])))
    _, keras = import_keras()
    made = _modern_graph(keras, graph)
    made, _ = with_names_for_keras(made, {})
    with open_weights(path) as file:
        age = Age.of(file)
        if age.mirrors or age.version.startswith(("0.", "1.")):
            raise ConfigError("; ".join(map(str, problems[:3])))
        try:
            register()
            register_own()
            model = build_bounded(path, network_config(made))
            set_weights_from(file, model)
        except ConfigError:
            raise
        except Exception as error:  # a damaged description can fail anywhere in Keras
            raise ConfigError(f"{_first(graph)}: Keras cannot build it: {one_line(error)}") from None
    return model


def _first(graph: NetworkGraph) -> str:
    return next(e.layer.name for e in graph.entries if isinstance(e.layer, Unknown))


def _modern_graph(keras: Any, graph: NetworkGraph) -> NetworkGraph:
    return replace(graph, entries=tuple(LayerEntry(_modern_layer(keras, e.layer), e.uses) for e in graph.entries))


def _modern_layer(keras: Any, layer: Layer) -> Layer:
    if isinstance(layer, Submodel):
        return layer.alone(graph=_modern_graph(keras, layer.graph))
    if not isinstance(layer, Unknown):
        return layer
    return layer.alone(raw=Raw.of(_modern(keras, layer.raw.value, layer.name)))


def _modern(keras: Any, raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration of a layer, or of a cell inside one, as Keras 3 writes it."""
    kind = raw.get("class_name")
    cls = getattr(keras.layers, str(kind), None)
    registered = raw.get("registered_name") or kind
    if isinstance(registered, str) and keras.saving.get_registered_object(registered) is not None:
        return {"module": None, "registered_name": registered, **raw}  # somebody's own layer, which is known here
    ours = str(raw.get("module") or "keras").partition(".")[0] == "keras" and raw.get("registered_name") in (None, kind)
    if not ours or not (inspect.isclass(cls) and issubclass(cls, keras.layers.Layer)):
        raise ConfigError(f"{name}: Keras 3 has no layer {str(kind)[:60]}, nor have we")
    config = raw.get("config")
    known = _arguments(cls)
    found: dict[str, Any] = {}
    for key, value in (config if isinstance(config, Mapping) else {}).items():
        if _TRAINING.search(key) or key in _BESIDE:
            continue
        if key not in known:
            if value in (None, False) or _NEUTRAL.get(key) == value:
                continue
            raise ConfigError(f"{name}: {kind} of Keras 3 has no argument {key[:60]} (here {str(value)[:60]})")
        found[key] = _value(keras, value, name, key, "module" not in raw)
    if kind == "GRUCell" and "module" not in raw:
        found.setdefault("reset_after", False)
    return {"module": "keras.layers", "class_name": kind, "config": found, "registered_name": None}


def _value(keras: Any, value: Any, name: str, key: str, old: bool) -> Any:
    if old and value == "hard_sigmoid" and key.endswith("activation"):
        return described(HARD_SIGMOID_2)
    if isinstance(value, Mapping) and "class_name" in value and getattr(keras.layers, str(value["class_name"]), None):
        return _modern(keras, value, name)
    if isinstance(value, list):
        return [_value(keras, item, name, key, old) for item in value]
    return value


def _arguments(cls: Any) -> set[str]:
    found: set[str] = set()
    for base in cls.__mro__:
        if "__init__" in vars(base) and base is not object:
            found |= set(inspect.signature(base.__init__).parameters)
    return (found | {"name", "trainable", "dtype"}) - {"self", "kwargs", "args"}
