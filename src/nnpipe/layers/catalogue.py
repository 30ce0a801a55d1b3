"""The catalogue of layer classes."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.core.registry import find_or_import, is_installed_class, map_names_to_classes
from nnpipe.layers.vocabulary.layer import Layer


def list_layer_classes() -> tuple[type[Layer], ...]:
    """Return all layer classes: those of nnpipe, of plugins, and those declared in the running
    program.
    """
    return tuple(get_layers_by_name().values())


def get_layers_by_name() -> Mapping[str, type[Layer]]:
    """Return all layer classes by their names in descriptions."""
    return map_names_to_classes(Layer)


def find_layer(name: str) -> type[Layer] | None:
    """Return the layer class with this name or dotted path, if nnpipe, a plugin or the running
    program has it.

    Nothing is imported for it, so that the name may come from a file that is not trusted.
    """
    known = get_layers_by_name()
    return known.get(name) or next(
        (cls for cls in known.values() if cls.get_dotted_path() == name), None
    )


def resolve_layer(name: str) -> type[Layer] | None:
    """Return the layer class that a description names; ``None`` if there is none with this short
    name.

    The module of a dotted path is imported.

    Raises
    ------
    ComponentNotFound
        If there is no class with this dotted path.
    """
    return find_or_import(name, Layer)


def get_layer_class_name(layer: Layer) -> str:
    """Return the name of a layer's class in descriptions.

    It is the short name of a class of nnpipe or of an installed package, and otherwise the dotted
    path, by which another process finds the class.
    """
    cls = type(layer)
    if get_layers_by_name().get(cls.__name__) is cls and is_installed_class(cls, Layer):
        return cls.__name__
    return cls.get_dotted_path()
