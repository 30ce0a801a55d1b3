"""Frozen dataclasses of several kinds, read from and written as objects such as ``{"kind": "tpe", "startup": 20}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, TypeVar

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys


class OfAKind:
    """Base of dataclasses that are told apart by their ``kind``."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the kind, and the arguments that differ from their defaults."""
        found: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if each.default is MISSING or value != each.default:
                found[each.name] = list(value) if isinstance(value, tuple) else value
        return found


K = TypeVar("K", bound=OfAKind)


def of_kind(entry: Any, kinds: Mapping[str, type[K]], where: str) -> K:
    """Return the object of an entry with a ``kind`` and arguments; a text is a kind with its defaults.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    for each in kinds.values():
        if isinstance(entry, each):
            return entry
    given = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(given, dict) or not isinstance(given.get("kind"), str) or given["kind"] not in kinds:
        found = given.get("kind") if isinstance(given, dict) else given
        raise ConfigError(f"{where}: expected an object with a kind ({', '.join(kinds)}), found {found!r}")
    cls = kinds[given["kind"]]
    declared = fields(cls)  # type: ignore[arg-type]
    required = [each.name for each in declared if each.default is MISSING]
    arguments = check_keys(
        {name: value for name, value in given.items() if name != "kind"}, [each.name for each in declared], where,
        required,
    )  # fmt: skip
    try:
        return cls(**arguments)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
