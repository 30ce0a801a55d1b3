"""The modules in which components are looked for: those of nnpipe, and those that installed packages add."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ENTRY_POINTS = "nnpipe.plugins"


@dataclass(frozen=True)
class BrokenModule:
    """A module of a plugin that cannot be imported, and the reason."""

    module: str
    cause: str


@functools.lru_cache(maxsize=4)
def plugin_packages(
    read: Callable[..., importlib.metadata.EntryPoints], state: tuple[tuple[str, int], ...]
) -> tuple[str, ...]:
    """Return the packages that installed distributions add; cached, since reading their metadata takes milliseconds."""
    return tuple(sorted({entry.module for entry in read(group=ENTRY_POINTS)}))


def import_path() -> tuple[tuple[str, int], ...]:
    """Return a cache key of the installed packages: each folder of the import path with its modification time."""
    return tuple((place, _changed(place)) for place in sys.path)


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def modules_of(package: str, broken: list[BrokenModule]) -> Iterator[ModuleType]:
    """Yield a package and all modules in it; those that cannot be imported are added to ``broken``."""
    try:
        root = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package or not package.startswith("nnpipe."):
            broken.append(BrokenModule(package, str(error)))
        return
    except Exception as error:  # a plugin may fail in any way; the others must still be found
        broken.append(BrokenModule(package, f"{type(error).__name__}: {error}"))
        return
    yield root
    for info in pkgutil.iter_modules(getattr(root, "__path__", ()), package + "."):
        yield from modules_of(info.name, broken)
