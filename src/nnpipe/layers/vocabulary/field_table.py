"""The table of a frozen value: one row per field, which states how its values are handled."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, TypeVar

from nnpipe.core.component import dataclass_transform
from nnpipe.core.messages import format_value, to_snake_case
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.value_kinds import ValueKind

_ROW = "nnpipe.layers.row"


@dataclass(frozen=True)
class FieldRow:
    """One argument: its name, its key in Keras's configuration, older keys, its kind and
    default.
    """

    name: str
    key: str
    older: tuple[str, ...]
    kind: ValueKind
    default: Any


def row(
    kind: ValueKind,
    *,
    default: Any = MISSING,
    keras: str = "",
    older: tuple[str, ...] = (),
    kw_only: bool = False,
) -> Any:
    """Declare an argument of a layer.

    Parameters
    ----------
    kind
        How its values are checked, read and written.
    default
        Its default value; without one the argument is required.
    keras
        Its key in Keras's configuration, if it is not the field's name.
    older
        Keys that earlier versions of Keras used.
    kw_only
        Whether it must be given by name.
    """
    return dataclasses.field(
        default=default, kw_only=kw_only, metadata=make_row_metadata(kind, keras, older)
    )


def make_row_metadata(
    kind: ValueKind, keras: str = "", older: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a row as the metadata of a field."""
    return {_ROW: (kind, keras, older)}


def table(cls: Any) -> tuple[FieldRow, ...]:
    """Return the table of a class, in the order of the constructor's signature."""
    return _build_table(cls)


@functools.cache  # asked several times for each layer of each network
def _build_table(cls: Any) -> tuple[FieldRow, ...]:
    rows = []
    for field in sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True):
        if _ROW in field.metadata:
            kind, key, older = field.metadata[_ROW]
            rows.append(FieldRow(field.name, key or field.name, older, kind, field.default))
    return tuple(rows)


def normalize_fields(value: Any, rank: int = 0) -> None:
    """Convert the fields of a new frozen value to their normal form."""
    for item in table(type(value)):
        given = getattr(value, item.name)
        settled = item.kind.normal(given, rank)
        if settled is not given:
            object.__setattr__(value, item.name, settled)


def find_faults(value: Any, rank: int = 0) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a value's fields, as pairs of field and fault."""
    cls: Any = type(value)
    for name, kind, sound in _list_checks(cls, rank):
        given = getattr(value, name)
        if given is not sound and (fault := kind.find_fault(given, rank)):
            yield name, fault


@functools.cache  # most values of most layers are defaults, which need not be checked again
def _list_checks(cls: Any, rank: int) -> tuple[tuple[str, ValueKind, Any], ...]:
    """Return the name and kind of each field, with its default if that has no fault."""
    return tuple(
        (each.name, each.kind, each.default if _is_sound(each, rank) else MISSING)
        for each in table(cls)
    )


def _is_sound(item: FieldRow, rank: int) -> bool:
    return item.default is not MISSING and not item.kind.find_fault(
        item.kind.normal(item.default, rank), rank
    )


def read(
    cls: type, config: Mapping[str, Any], path: str, found: list[NetworkProblem]
) -> dict[str, Any]:
    """Return the fields of ``cls`` from a Keras configuration; a missing required field is a
    problem.
    """
    values = {}
    for item in table(cls):
        key = next((key for key in (item.key, *item.older) if key in config), None)
        if key is not None:
            values[item.name] = item.kind.parse(config[key], f"{path}.{key}", found)
        elif item.default is MISSING:
            found.append(NetworkProblem("argument", f"{path}.{item.key}", "is missing"))
            values[item.name] = None
    return values


def write(value: Any) -> dict[str, Any]:
    """Return a value's fields as a Keras configuration.

    A default of ``None`` is left out: it is Keras's default as well, and a
    version that does not know the argument can then read the rest.
    """
    given = {item: getattr(value, item.name) for item in table(type(value))}
    return {
        item.key: item.kind.emit(v)
        for item, v in given.items()
        if v is not None or item.default is not None
    }


def list_keys(cls: type) -> frozenset[str]:
    """Return all keys of a Keras configuration that the table of ``cls`` knows."""
    return frozenset(key for item in table(cls) for key in (item.key, *item.older))


T = TypeVar("T", bound="Described")


@dataclasses.dataclass(frozen=True)
class Raw:
    """An object that the vocabulary does not know, kept as JSON text so that it can be written
    again.
    """

    text: str

    @classmethod
    def from_value(cls, value: Any) -> Raw:
        """Return the object for a JSON value."""
        return cls(json.dumps(value, sort_keys=True))

    @property
    def value(self) -> Any:
        """The JSON value, parsed at each call."""
        return json.loads(self.text)

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
        normalize_fields(self)

    def faults(self) -> list[str]:
        """Return what is wrong with the arguments; empty if nothing is."""
        return [f"{type(self).__name__}: {name} {fault}" for name, fault in find_faults(self)]


def map_subclasses(base: type[T]) -> dict[str, type[T]]:
    """Return the subclasses of ``base`` by all their names in Keras."""
    found: dict[str, type[T]] = {}
    for cls in _list_subclasses(base):
        if cls.__name__.startswith("_"):
            continue
        for name in (cls.__name__, *cls.aliases):
            found[name] = found[to_snake_case(name)] = cls
    return found


def read_object(base: type[T], raw: Any, path: str, found: list[NetworkProblem]) -> T | Raw:
    """Read an object that Keras wrote as a name or as a class name with a configuration."""
    known = map_subclasses(base)
    name = raw
    config: Any = {}
    if isinstance(raw, Mapping):
        name, config = raw.get("class_name"), raw.get("config") or {}
    cls = known.get(name) if isinstance(name, str) else None
    foreign = isinstance(raw, Mapping) and str(raw.get("module") or "keras").partition(".")[
        0
    ] not in (
        "keras",
        "builtins",
    )
    what = re.sub(r"\B([A-Z])", r" \1", base.__name__).lower()
    if cls is None or foreign or not isinstance(config, Mapping):
        if not isinstance(raw, (str, Mapping)):
            found.append(NetworkProblem("argument", path, f"is no {what}: {format_value(raw)}"))
        else:
            found.append(
                NetworkProblem("unknown-object", path, f"an unknown {what}: {format_value(name)}")
            )
        return Raw.from_value(raw)
    rest = config.keys() - list_keys(cls) - cls.ignored
    extra = sorted(str(key) for key in rest if config[key] not in (None, False))
    for key in extra:
        found.append(
            NetworkProblem(
                "unknown-argument", f"{path}.{key}", f"{cls.__name__} has no such argument"
            )
        )
    if extra:
        return Raw.from_value(raw)
    return cls(**read(cls, config, path, found))


def write_object(module: str, value: Any) -> Any:
    """Return an object as Keras 3 writes it."""
    if isinstance(value, Raw):
        return value.value
    return {
        "module": module,
        "class_name": type(value).__name__,
        "config": write(value),
        "registered_name": None,
    }


def _list_subclasses(base: type[T]) -> list[type[T]]:
    return [cls for child in base.__subclasses__() for cls in (child, *_list_subclasses(child))]
