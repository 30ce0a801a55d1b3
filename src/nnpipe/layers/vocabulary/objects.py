"""Values inside layers, such as initialisers: their declaration, and their form in Keras's configurations."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.component import dataclass_transform
from nnpipe.core.messages import shown
from nnpipe.core.naming import snake_case
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.field_table import row

T = TypeVar("T", bound="Described")


@dataclasses.dataclass(frozen=True)
class Raw:
    """An object that the vocabulary does not know, kept as JSON text so that it can be written again."""

    text: str

    @classmethod
    def of(cls, value: Any) -> Raw:
        """Return the object for a JSON value."""
        return cls(json.dumps(value, sort_keys=True))

    @property
    def value(self) -> Any:
        """The JSON value, parsed at each call."""
        return parse_json(self.text)

    def __str__(self) -> str:
        return self.text if len(self.text) <= 60 else self.text[:59] + "…"


@dataclass_transform(frozen_default=True, field_specifiers=(row,))
class Described:
    """Base of initialisers, regularisers and constraints: frozen values with a table."""

    aliases: ClassVar[tuple[str, ...]] = ()
    ignored: ClassVar[frozenset[str]] = frozenset({"dtype", "name"})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        field_table.settle(self)

    def faults(self) -> list[str]:
        """Return what is wrong with the arguments; empty if nothing is."""
        return [f"{type(self).__name__}: {name} {fault}" for name, fault in field_table.faults(self)]


def family(base: type[T]) -> dict[str, type[T]]:
    """Return the subclasses of ``base`` by all their names in Keras."""
    found: dict[str, type[T]] = {}
    for cls in _below(base):
        if cls.__name__.startswith("_"):
            continue
        for name in (cls.__name__, *cls.aliases):
            found[name] = found[snake_case(name)] = cls
    return found


def read_object(base: type[T], raw: Any, path: str, found: list[NetworkProblem]) -> T | Raw:
    """Read an object that Keras wrote as a name or as a class name with a configuration."""
    known = family(base)
    name = raw
    config: Any = {}
    if isinstance(raw, Mapping):
        name, config = raw.get("class_name"), raw.get("config") or {}
    cls = known.get(name) if isinstance(name, str) else None
    foreign = isinstance(raw, Mapping) and str(raw.get("module") or "keras").partition(".")[0] not in (
        "keras",
        "builtins",
    )
    what = re.sub(r"\B([A-Z])", r" \1", base.__name__).lower()
    if cls is None or foreign or not isinstance(config, Mapping):
        if not isinstance(raw, (str, Mapping)):
            found.append(NetworkProblem("argument", path, f"is no {what}: {shown(raw)}"))
        else:
            found.append(NetworkProblem("unknown-object", path, f"an unknown {what}: {shown(name)}"))
        return Raw.of(raw)
    rest = config.keys() - field_table.keys(cls) - cls.ignored
    extra = sorted(str(key) for key in rest if config[key] not in (None, False))
    for key in extra:
        found.append(NetworkProblem("unknown-argument", f"{path}.{key}", f"{cls.__name__} has no such argument"))
    if extra:
        return Raw.of(raw)
    return cls(**field_table.read(cls, config, path, found))


def write_object(module: str, value: Any) -> Any:
    """Return an object as Keras 3 writes it."""
    if isinstance(value, Raw):
        return value.value
    return {
        "module": module,
        "class_name": type(value).__name__,
        "config": field_table.write(value),
        "registered_name": None,
    }


def _below(base: type[T]) -> list[type[T]]:
    return [cls for child in base.__subclasses__() for cls in (child, *_below(child))]
