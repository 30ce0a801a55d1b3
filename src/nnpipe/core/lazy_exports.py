"""Import the public names of a package when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_getattr(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that imports each public name when it is first used.

    Parameters
    ----------
    package
        The package's ``__name__``.
    homes
        The public names, by the module of the package that defines them.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find


def lazy_exports(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], list[str]]:
    """Return a ``__getattr__`` as :func:`lazy_getattr` does, and an ``__all__`` of the same names.

    Parameters
    ----------
    package, homes
        As for :func:`lazy_getattr`.
    """
    return lazy_getattr(package, homes), sorted(name for names in homes.values() for name in names)
