"""Finding components by name.  The folder is the registry.

A class is named by its dotted path, or by its own name where only one class
has it.  Components outside nnpipe join through the entry-point group
``nnpipe.plugins``; each entry names a package or module to look through::

    [project.entry-points."nnpipe.plugins"]
    acme = "acme_nn"
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from nnpipe.core.calls import check_call
from nnpipe.core.component import Component
from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.naming import nearest

C = TypeVar("C", bound=Component)


class _Families(Mapping[str, type[Component]]):
    """Base classes by family, each imported when it is asked for: a server needs two of them, not all."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def __getitem__(self, family: str) -> type[Component]:
        module, _, name = self._paths[family].rpartition(".")
        return cast("type[Component]", getattr(importlib.import_module(module), name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, family: object) -> bool:
        return family in self._paths

    def of(self, base: type[Component]) -> list[str]:
        """Name the families in which subclasses of ``base`` are at home."""
        above = {f"{cls.__module__}.{cls.__qualname__}" for cls in base.__mro__}
        at_home = [family for family, path in self._paths.items() if path in above]
        return at_home or [family for family, root in self.items() if issubclass(root, base)]


FAMILIES = _Families(
    {
        "datasets": "nnpipe.core.dataset.Dataset",
        "modelwrappers": "nnpipe.core.model.ModelWrapper",
        "compilers": "nnpipe.core.compiler.ModelCompiler",
        "runtimes": "nnpipe.core.runtime.Runtime",
        "protocols": "nnpipe.core.runtimeprotocol.RuntimeProtocol",
        "onnxconverters": "nnpipe.core.onnxconversion.ONNXConversion",
    }
)
ENTRY_POINTS = "nnpipe.plugins"


@dataclass(frozen=True)
class Broken:
    """A module of a plugin that cannot be imported, and why."""

    module: str
    cause: str


def components(base: type[C]) -> list[type[C]]:
    """List all concrete components of a family, nnpipe's own first, each group by dotted path.

    Examples
    --------
    >>> from nnpipe import Runtime
    >>> "ONNXRuntime" in [cls.__name__ for cls in components(Runtime)]
    True
    """
    check_call(components, locals())
    return _look_through(base)[0]


def broken_plugins() -> list[Broken]:
    """List the modules of plugins that could not be imported."""
    return _look_through(Component)[1]


def find(name: str, base: type[C]) -> type[C]:
    """Return the component class of that dotted path or class name.

    Raises
    ------
    ConfigError
        If name is no text, or base no class.
    ComponentNotFound
        Naming the nearest right one, or, where a short name is borne by two
        classes, both.

    Examples
    --------
    >>> from nnpipe import Dataset, Runtime
    >>> find("DigitsDataset", Dataset).__module__
    'nnpipe.datasets.digits'
    >>> find("nnpipe.runtimes.onnxruntime.ONNXRuntime", Runtime).__name__
    'ONNXRuntime'
    """
    check_call(find, locals())
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        return cast("type[C]", _find_short(name, base, importlib.metadata.entry_points, _import_path()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that exists but misses something of its own is a different fault.
        if error.name and not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ComponentNotFound(f"{name}: importing {module_name} failed: {error}") from error
        raise _unknown(name, base) from None
    except (ValueError, TypeError):
        raise _unknown(name, base) from None
    found = getattr(module, class_name, None)
    if found is None:
        raise _unknown(name, base)
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise ComponentNotFound(f"{name} is not a {base.__name__}")
    if inspect.isabstract(found):
        raise ComponentNotFound(f"{name} is a base to build on, not a {base.__name__} to use")
    return found


def component_from(description: Mapping[str, Any], base: type[C]) -> C:
    """Return the component that :meth:`Component.describe` described.

    Raises
    ------
    ComponentNotFound
        If there is no such class here.
    ConfigError
        If it does not take these arguments.

    Examples
    --------
    >>> from nnpipe.core.runtime import Runtime
    >>> component_from({"class": "ONNXRuntime", "arguments": {"num_threads": 2}}, Runtime).num_threads
    2
    """
    return find(description["class"], base).from_json(description["arguments"])


def registered(name: str, base: type[C]) -> type[C]:
    """Return the component of that dotted path among those of nnpipe and its plugins.

    For names that stand in files from elsewhere: nothing is imported because it is named.

    Raises
    ------
    ComponentNotFound
        If there is none.
    """
    if any(name.startswith(f"nnpipe.{family}.") for family in FAMILIES.of(base)):
        return find(name, base)
    for cls in components(base):
        if cls.dotted_path() == name:
            return cls
    raise ComponentNotFound(f"no {base.__name__} that is installed here is called {name!r}")


@functools.lru_cache(maxsize=256)
def _find_short(
    name: str,
    base: type[Component],
    read: Callable[..., importlib.metadata.EntryPoints],  # this and the next tell whether what is installed has changed
    state: tuple[tuple[str, int], ...],
) -> type[Component]:
    """Return the only class of a name; what was found is remembered, since a sweep asks thousands of times."""
    known = components(base)
    matches = [cls for cls in known if cls.__name__ == name] or [cls for cls in known if name in cls.formerly]
    if len(matches) == 1:
        return matches[0]
    if matches:
        both = " and ".join(cls.dotted_path() for cls in matches)
        raise ComponentNotFound(f"{name} could be {both}; give the whole path")
    raise _unknown(name, base)


def _unknown(name: str, base: type[Component]) -> ComponentNotFound:
    found = components(base)
    last = name.rpartition(".")[2]
    now = [cls.dotted_path() for cls in found if last in cls.formerly]
    if now:
        return ComponentNotFound(f"no {base.__name__} is called {name!r}; it is {' or '.join(now)} here")
    known = [cls.dotted_path() for cls in found]
    return ComponentNotFound(
        f"no {base.__name__} is called {name!r}{nearest(name, known) or '; nnpipe list shows what there is'}"
    )


def _look_through(base: type[C]) -> tuple[list[type[C]], list[Broken]]:
    found: dict[str, type[C]] = {}
    broken: list[Broken] = []
    own = [f"nnpipe.{family}" for family in FAMILIES.of(base)]
    for package in (*own, *_plugins(importlib.metadata.entry_points, _import_path())):
        here: dict[str, type[C]] = {}
        for module in _modules(package, broken):
            for cls in vars(module).values():
                if (
                    inspect.isclass(cls)
                    and cls.__module__ == module.__name__
                    and issubclass(cls, base)
                    and not inspect.isabstract(cls)
                    and not cls.__name__.startswith("_")
                ):
                    here[cls.dotted_path()] = cls
        found.update(sorted(here.items()))
    return list(found.values()), broken


@functools.lru_cache(maxsize=4)
def _plugins(
    read: Callable[..., importlib.metadata.EntryPoints], state: tuple[tuple[str, int], ...]
) -> tuple[str, ...]:
    """Return the packages that installed distributions add; reading the lists of all of them takes milliseconds."""
    return tuple(sorted({entry.module for entry in read(group=ENTRY_POINTS)}))


def _import_path() -> tuple[tuple[str, int], ...]:
    """Return what changes when a distribution is installed or removed: the folders, and when each last changed."""
    return tuple((place, _changed(place)) for place in sys.path)


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def _modules(package: str, broken: list[Broken]) -> Iterator[ModuleType]:
    try:
        root = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package or not package.startswith("nnpipe."):
            broken.append(Broken(package, str(error)))
        return
    except Exception as error:  # a plugin may fail in any way; it must not take the rest down
        broken.append(Broken(package, f"{type(error).__name__}: {error}"))
        return
    yield root
    for info in pkgutil.iter_modules(getattr(root, "__path__", ()), package + "."):
        yield from _modules(info.name, broken)
