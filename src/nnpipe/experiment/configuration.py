"""Configurations: a whole experiment as a tree of YAML or JSON, built without writing code.

A node ``{class: PATH, arguments: {...}}`` becomes an object; arguments may be
nodes themselves.  ``{reference: NAME}`` stands for the object of another
top-level node, and ``{reference: NAME, call: METHOD}`` for the result of its
method, called without arguments::

    model:
      class: torch.nn.Linear
      arguments: {in_features: 4, out_features: 2}
    optimiser:
      class: torch.optim.Adam
      arguments: {params: {reference: model, call: parameters}, lr: 0.001}
"""

from __future__ import annotations

import copy
import dataclasses
import graphlib
import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.component import Component
from nnpipe.core.errors import ComponentNotFound, ConfigError, NNPipeError
from nnpipe.core.files import write_text
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.module import Stateful
from nnpipe.experiment.settings import override, read_settings

_NODE, _REFERENCE = {"class", "arguments"}, {"reference", "call"}


class Configuration:
    """A tree of plain values: dictionaries, lists, texts, numbers, booleans, ``None``.

    Parameters
    ----------
    tree
        The nodes by name.

    Raises
    ------
    ConfigError
        If the tree holds a value that YAML cannot hold; the message names the place.
    """

    def __init__(self, tree: Mapping[str, Any]) -> None:
        check_call(Configuration, locals())
        self._tree: dict[str, Any] = _to_plain(tree, "configuration")

    @classmethod
    def read(cls, path: str | Path) -> Configuration:
        """Return the configuration of a YAML or JSON file; raise :class:`ConfigError`, with the
        line if it is known.
        """
        return cls(read_settings(Path(path)))

    def write(self, path: str | Path) -> None:
        """Write a YAML file, or JSON if the name ends in ``.json``, atomically."""
        if Path(path).suffix == ".json":
            text = json.dumps(self._tree, indent=2) + "\n"
        else:
            import yaml

            text = yaml.safe_dump(self._tree, sort_keys=False, allow_unicode=True)
        write_text(path, text)

    def with_changes(self, *changes: str) -> Configuration:
        """Return a copy with changes such as ``optimiser.arguments.lr=0.01``."""
        return Configuration(override(self._tree, changes))

    @property
    def tree(self) -> dict[str, Any]:
        """Return a copy of the tree."""
        return copy.deepcopy(self._tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(json.dumps(self._tree, sort_keys=True))

    def build(self) -> dict[str, Any]:
        """Build every node, referenced nodes first.

        Only components, classes with a state (modules, layers, optimisers, schedules) and frozen
        dataclasses (samplers, transforms) are built: a configuration cannot call arbitrary Python
        code.

        Returns
        -------
        dict
            The objects by name; plain values are returned unchanged.

        Raises
        ------
        ConfigError
            If a class, an argument or a reference is unknown, or references form a cycle; the
            message names the place.
        """
        order = graphlib.TopologicalSorter(
            {name: set(_iterate_references(node)) for name, node in self._tree.items()}
        )
        for name, node in self._tree.items():
            for wanted in _iterate_references(node):
                if wanted not in self._tree:
                    raise ConfigError(
                        f"{name}: nothing is called "
                        f"{wanted!r}{suggest_name(wanted, self._tree) or ''}"
                    )
        try:
            names = list(order.static_order())
        except graphlib.CycleError as error:
            raise ConfigError(
                f"configuration: {' refers to '.join(error.args[1])}: a circle"
            ) from None
        made: dict[str, Any] = {}
        for name in names:
            made[name] = _build_node(self._tree[name], name, made)
        return {name: made[name] for name in self._tree}


def _to_plain(value: Any, place: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_to_plain(item, f"{place}.{number}") for number, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"{place}: names are texts, not {key!r}")
        return {key: _to_plain(item, f"{place}.{key}") for key, item in value.items()}
    raise ConfigError(f"{place}: a configuration cannot hold {type(value).__name__}")


def _iterate_references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if _is_reference(node):
            yield node["reference"].partition(".")[0]
        else:
            for item in node.values():
                yield from _iterate_references(item)
    elif isinstance(node, list):
        for item in node:
            yield from _iterate_references(item)


def _is_reference(node: dict[str, Any]) -> bool:
    return isinstance(node.get("reference"), str) and set(node) <= _REFERENCE


def _build_node(node: Any, place: str, made: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_build_node(item, f"{place}.{number}", made) for number, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    if _is_reference(node):
        return _resolve_reference(node, place, made)
    if "class" not in node:
        return {name: _build_node(item, f"{place}.{name}", made) for name, item in node.items()}
    unknown = sorted(set(node) - _NODE)
    if unknown:
        raise ConfigError(f"{place}: a node has class and arguments, not {', '.join(unknown)}")
    cls = _import_class(node["class"], place)
    given = node.get("arguments")
    arguments = _build_node({} if given is None else given, f"{place}.arguments", made)
    if not isinstance(arguments, dict):
        raise ConfigError(f"{place}.arguments: expected names with values")
    if issubclass(cls, Component):
        try:
            return cls.from_json(arguments)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{place}: {cls.__qualname__}: {error}") from None
    except ValueError:  # a class without a readable signature
        pass
    if _is_value(cls):  # its sequences are tuples
        arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in arguments.items()}
    try:
        return cls(**arguments)
    except NNPipeError:
        raise
    # PyTorch's layers, of numbers below 0 or of texts
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{place}: {cls.__qualname__}: {error}") from error


def _resolve_reference(node: dict[str, Any], place: str, made: Mapping[str, Any]) -> Any:
    name, *attributes = node["reference"].split(".")
    found = made[name]
    for attribute in (*attributes, *([node["call"]] if "call" in node else [])):
        if (
            not isinstance(attribute, str)
            or attribute.startswith("_")
            or not hasattr(found, attribute)
        ):
            raise ConfigError(f"{place}: {node['reference']} has no {attribute!r}")
        found = getattr(found, attribute)
    return found() if "call" in node else found


def _import_class(path: Any, place: str) -> type:
    if not isinstance(path, str) or "." not in path:
        raise ConfigError(f"{place}.class: expected a dotted path, found {path!r}")
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ComponentNotFound(f"{place}.class: {path} cannot be found: {error}") from None
    if not inspect.isclass(found) or not (
        issubclass(found, Component) or _has_state(found) or _is_value(found)
    ):
        raise ConfigError(
            f"{place}.class: {path} is no component, no class with a state, and no frozen dataclass"
        )
    return found


def _is_value(cls: type) -> bool:
    if not dataclasses.is_dataclass(cls) or _has_state(cls):
        return False
    return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _has_state(cls: type) -> bool:
    return (
        all(callable(getattr(cls, name, None)) for name in ("state_dict", "load_state_dict"))
        and cls is not Stateful
    )
