"""The catalogue of layer classes."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.core.registry import named
from nnpipe.layers.vocabulary.layer import Layer


def layer_classes() -> tuple[type[Layer], ...]:
    """Return all layer classes: those of nnpipe, of plugins, and those declared in the running program."""
    return tuple(layers_by_name().values())


def layers_by_name() -> Mapping[str, type[Layer]]:
    """Return all layer classes by their names in descriptions."""
    return named(Layer)


def name_of(layer: Layer) -> str:
    """Return the name of a layer's class in descriptions."""
    cls = type(layer)
    if layers_by_name().get(cls.__name__) is cls:
        return cls.__name__
    return cls.dotted_path()
