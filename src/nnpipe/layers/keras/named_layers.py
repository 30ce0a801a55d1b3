"""Layers that a user names for Keras files that other programs wrote.

A file says which class a layer had, and nothing is imported for such a name.  The
user says which classes may compute such layers: layers of nnpipe, which have the
same name and arguments as in the file, and layers of Keras.  Then these are the
only classes beside Keras's and nnpipe's that a file can make use of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, ComponentNotFound, ConfigError
from nnpipe.core.registry import find, is_installed_class
from nnpipe.layers.catalogue import find_layer, resolve_layer
from nnpipe.layers.keras.to_config import OWN_PACKAGE
from nnpipe.layers.vocabulary.layer import Layer

LayerNames: TypeAlias = "Iterable[str | type]"
"""Classes, or their names: of a plugin's layer alone, of others with the dotted path, whose
module is imported.
"""


class TakesOwnLayers(Component):
    """A component that reads Keras files, with layers that the user names."""

    own_layers: tuple[str, ...] = argument(
        (),
        help="your own layers in Keras files, such as mine.Swish: classes of nnpipe or of Keras",
        metavar="CLASS",
    )


@dataclass(frozen=True)
class NamedLayers:
    """The classes that a user named, by their own names.

    Attributes
    ----------
    declared
        Those that nnpipe computes.
    keras
        Layers of Keras, and what else is registered in Keras.
    """

    declared: Mapping[str, type[Layer]]
    keras: Mapping[str, Any]

    def __bool__(self) -> bool:
        """Return whether any was named."""
        return bool(self.declared or self.keras)

    def rename_layers(self, config: Any) -> Any:
        """Return a configuration in which the layers that nnpipe computes are called as in files
        of nnpipe.
        """
        if isinstance(config, list):
            return [self.rename_layers(item) for item in config]
        if not isinstance(config, Mapping):
            return config
        found = {key: self.rename_layers(value) for key, value in config.items()}
        title = _get_registered_name(found)
        if title.startswith(f"{OWN_PACKAGE}>") and not self._is_known(title):
            return found | {"registered_name": title.partition(">")[2]}
        cls = self.declared.get(title.rpartition(">")[2])
        if cls is None or not _is_foreign(found):
            return found
        named = f"{OWN_PACKAGE}>{cls.get_dotted_path()}"
        return found | {
            "module": "nnpipe.layers",
            "class_name": cls.__name__,
            "registered_name": named,
        }

    def check(self, path: Path, config: Any) -> None:
        """Raise ArtifactError if a structure names anything of somebody's own besides these
        classes.
        """
        import keras

        registered = keras.saving.get_custom_objects()
        named = [id(value) for value in self.keras.values()]
        own = f"{OWN_PACKAGE}>"
        unknown = [
            text
            for text in _iter_texts(config)
            if text.startswith(own) and not self._is_known(text)
        ]
        others = [
            text
            for text in _iter_texts(self.rename_layers(config))
            if text in registered and not text.startswith(own)
        ]
        for text in (*unknown, *(text for text in others if id(registered[text]) not in named)):
            given = ", ".join((*self.declared, *self.keras))
            raise ArtifactError(
                f"{path}: holds {text[:60]}, which is not among the layers that you named: {given}"
            )

    def register_in_keras(self, config: Any) -> AbstractContextManager[Any]:
        """Return a context in which Keras finds the layers of Keras under the names that a
        structure gives them.
        """
        if not self.keras:
            return nullcontext()
        import keras

        titles = {
            _get_registered_name(found) for found in _iter_objects(config) if _is_foreign(found)
        }
        known = {title: self.keras.get(title.rpartition(">")[2]) for title in titles}
        named = {title: cls for title, cls in known.items() if cls is not None}
        return keras.saving.custom_object_scope(named)  # type: ignore[no-any-return, unused-ignore]

    def _is_known(self, title: str) -> bool:
        """Return whether a name under nnpipe's package is a function's, or that of a named or
        installed layer.
        """
        cls = find_layer(title.partition(">")[2])
        return (
            "." not in title
            or cls in self.declared.values()
            or (cls is not None and is_installed_class(cls, Layer))
        )


def find_named_layers(names: LayerNames) -> NamedLayers:
    """Return the classes that a user names.

    Raises
    ------
    ComponentNotFound
        If there is no such class, or its module cannot be imported.
    ConfigError
        If two have the same name, or ``names`` is one name.
    """
    if isinstance(names, str):
        raise ConfigError(f"own_layers must be a list of names, not {names!r}")
    declared: dict[str, type[Layer]] = {}
    of_keras: dict[str, Any] = {}
    for name in names:
        found = _find_class(name)
        if {**declared, **of_keras}.get(found.__name__, found) is not found:
            raise ConfigError(
                f"own_layers names two classes {found.__name__}, which a file could not tell apart"
            )
        (declared if isinstance(found, type) and issubclass(found, Layer) else of_keras)[
            found.__name__
        ] = found
    return NamedLayers(declared, of_keras)


def _find_class(name: Any) -> Any:
    if not isinstance(name, str):
        if isinstance(name, type) and (issubclass(name, Layer) or _is_of_keras(name)):
            return name
        raise ConfigError(f"own_layers must name layers, not {name!r}")
    try:
        return resolve_layer(name) or find(name, Layer)
    except ComponentNotFound:
        module, _, own = name.rpartition(".")
        there = {
            title: value
            for title, value in vars(sys.modules.get(module, object)).items()
            if _is_of_keras(value)
        }
        if own not in there and there:
            raise ComponentNotFound(
                f"no layer is called {name}; {module} has {', '.join(there)}"
            ) from None
        if own not in there:
            raise
        return there[own]


def _is_of_keras(found: Any) -> bool:
    """Return whether it is a class of layers of Keras, or registered there; Keras is imported if
    the class needs it.
    """
    keras = sys.modules.get("keras")
    if keras is None:
        return False
    if isinstance(found, type) and issubclass(found, keras.layers.Layer):
        return True
    return any(found is value for value in keras.saving.get_custom_objects().values())


def _iter_objects(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects in a configuration that have a class."""
    if isinstance(config, Mapping) and isinstance(config.get("class_name"), str):
        yield config
    if isinstance(config, (Mapping, list)):
        for item in config.values() if isinstance(config, Mapping) else config:
            yield from _iter_objects(item)


def _iter_texts(config: Any) -> Iterator[str]:
    if isinstance(config, str):
        yield config
    elif isinstance(config, (Mapping, list)):
        for item in config.values() if isinstance(config, Mapping) else config:
            yield from _iter_texts(item)


def _get_registered_name(found: Mapping[str, Any]) -> str:
    """Return the name under which Keras looks for a class; empty if it is Keras's own or there
    is none.
    """
    name = found.get("registered_name") or found.get("class_name")
    return name if isinstance(name, str) else ""


def _is_foreign(found: Mapping[str, Any]) -> bool:
    """Return whether an object is not Keras's own, as far as its configuration says that."""
    module = found.get("module")
    own = isinstance(module, str) and (module == "keras" or module.startswith("keras."))
    return not own or found.get("registered_name") not in (None, found.get("class_name"))
