"""The parts of Keras configurations: classes by their names, shapes, types, and what is kept as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from nnpipe.layers.catalogue import layer_classes, layers_by_name
from nnpipe.layers.keras.to_config import OWN
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.unknown import Unknown

_OWN = frozenset({"name", "trainable", "dtype"})
# Older versions wrote the shape of the first layer's input beside the layer's arguments.
_SHAPES = ("batch_shape", "batch_input_shape")
_HARMLESS = frozenset({*_SHAPES, "input_shape", "input_dtype", "ragged", "sparse", "optional", "autocast"})


def has_more(cls: type[Layer], config: Mapping[str, Any], path: str, found: list[NetworkProblem]) -> bool:
    """Return whether a configuration has arguments that the class lacks; each is added to ``found``."""
    allowed = field_table.keys(cls) | cls.ignored | _OWN | _HARMLESS | cls.unwritten
    extra = sorted(str(key) for key, value in config.items() if key not in allowed and value not in (None, False))
    for key in extra:
        title = cls.keras or cls.__name__
        found.append(NetworkProblem("unknown-argument", f"{path}.config.{key}", f"{title} has no such argument"))
    return bool(extra)


def input_of(config: Mapping[str, Any], values: dict[str, Any], path: str, found: list[NetworkProblem]) -> Input:
    """Return the input of a configuration, with the ``values`` that were read already."""
    shape = shape_in(config)
    if shape is None:
        found.append(NetworkProblem("no-input-shape", f"{path}.config", "an input without a shape"))
        shape = (None,)
    return Input(shape[1:], shape[0], **values)


def shape_in(config: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the shape with the batch axis that a configuration states, or ``None``."""
    for key in _SHAPES:
        if isinstance(shape := config.get(key), (list, tuple)) and shape:
            return tuple(shape)
    if isinstance(shape := config.get("input_shape"), (list, tuple)):
        return (None, *shape)
    return None


def unknown_of(raw: Mapping[str, Any], config: Mapping[str, Any], name: str) -> Unknown:
    """Return a layer that keeps its configuration as it was written."""
    kept = {key: raw[key] for key in ("class_name", "module", "registered_name", "build_config", OWN) if key in raw}
    own = {key: value for key, value in config.items() if key != "name"}
    return Unknown((), Raw.of(kept | {"config": own}), name=name)


def keras_classes() -> Mapping[str, type[Layer]]:
    """Return the layer classes by their names in Keras."""
    return _by_keras_name(layer_classes())


@lru_cache(maxsize=4)
def _by_keras_name(classes: tuple[type[Layer], ...]) -> dict[str, type[Layer]]:
    """Return layer classes by their names in Keras; of several with one name the first, nnpipe's own."""
    known = [cls for cls in classes if cls.keras and not cls.own and not cls.has_keras_hook()]
    return {name: cls for cls in reversed(known) for name in (cls.keras, *cls.aliases)}


def own_of(raw: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[type[Layer] | None, Mapping[str, Any]]:
    """Return the class of a layer that only nnpipe has, and its arguments that Keras does not know."""
    beside = raw[OWN]
    name = beside.get("class_name") if isinstance(beside, Mapping) else None
    cls = layers_by_name().get(name) if isinstance(name, str) else None
    if cls is None or not cls.own or cls.keras != raw["class_name"]:
        return None, config
    more = beside.get("config")
    return cls, {**config, **(more if isinstance(more, Mapping) else {})}


def is_keras_own(raw: Mapping[str, Any]) -> bool:
    """Return whether a class is Keras's own; a foreign class or an operation may have the same name."""
    module, registered = str(raw.get("module") or "keras.layers"), raw.get("registered_name")
    own = module == "keras" or module.startswith(("keras.layers", "keras.src.layers"))
    return own and registered in (None, raw["class_name"])


def dtype_in(raw: Any) -> str:
    """Return the name of the dtype policy in a configuration."""
    if isinstance(raw, Mapping):  # a policy
        config = raw.get("config")
        raw = config.get("name") if isinstance(config, Mapping) else None
    return raw if isinstance(raw, str) else "float32"


def first_text(*given: Any) -> str:
    """Return the first value that is a text; the empty text if none is."""
    return next((text for text in given if isinstance(text, str)), "")


def short(text: Any) -> str:
    """Return the beginning of a text from a file, for a message."""
    return str(text)[:60]
