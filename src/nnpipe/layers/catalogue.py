"""Every class of layer."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.core.registry import named
from nnpipe.layers.vocabulary.layer import Layer


def layer_classes() -> tuple[type[Layer], ...]:
    """Return the class of every layer: of nnpipe, of plugins, and those that the program itself has declared."""
    return tuple(layers_by_name().values())


def layers_by_name() -> Mapping[str, type[Layer]]:
    """Return every class of layer by what descriptions call it."""
    return named(Layer)


def name_of(layer: Layer) -> str:
    """Return what descriptions call a layer's class."""
    cls = type(layer)
    if layers_by_name().get(cls.__name__) is cls:
        return cls.__name__
    return cls.dotted_path()
