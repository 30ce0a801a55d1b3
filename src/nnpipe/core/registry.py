"""Find components by name, without a list: all modules of a family's package are searched.

A class is named by its dotted path, or by its own name if that is unique.
Components outside nnpipe are added through the entry-point group
``nnpipe.plugins``; each entry names a package or module to search::

    [project.entry-points."nnpipe.plugins"]
    acme = "acme_nn"

Callbacks, layers and the tasks of scripts are found in the same way.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar, cast

from nnpipe.core.argument_checks import check_call
from nnpipe.core.component import Component
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.messages import suggest_name

ENTRY_POINTS = "nnpipe.plugins"


@dataclass(frozen=True)
class BrokenModule:
    """A module of a plugin that cannot be imported, and the reason."""

    module: str
    cause: str


@functools.lru_cache(maxsize=4)
def list_plugin_packages(
    read: Callable[..., importlib.metadata.EntryPoints], state: tuple[tuple[str, int], ...]
) -> tuple[str, ...]:
    """Return the packages that installed distributions add; cached, since reading their metadata
    takes milliseconds.
    """
    return tuple(sorted({entry.module for entry in read(group=ENTRY_POINTS)}))


def import_path() -> tuple[tuple[str, int], ...]:
    """Return a cache key of the installed packages: each folder of the import path with its
    modification time.
    """
    return tuple((place, _get_modification_time(place)) for place in sys.path)


def _get_modification_time(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def iter_modules(package: str, broken: list[BrokenModule]) -> Iterator[ModuleType]:
    """Yield a package and all modules in it; those that cannot be imported are added to
    ``broken``.
    """
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
        yield from iter_modules(info.name, broken)


D = TypeVar("D", bound=Discoverable)


class Families(Mapping[str, type[D]]):
    """Base classes by family, each imported on first access, since a server needs only two of them.

    Parameters
    ----------
    paths
        The dotted path of each family's base.
    homes
        The modules that hold a family's own classes, if these are not in the package of its name.
    """

    def __init__(
        self, paths: Mapping[str, str], homes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ) -> None:
        self._paths = paths
        self._homes = homes

    def __getitem__(self, family: str) -> type[D]:
        module, _, name = self._paths[family].rpartition(".")
        return cast("type[D]", getattr(importlib.import_module(module), name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, family: object) -> bool:
        return family in self._paths

    def find_home_families(self, base: type[Discoverable]) -> list[str]:
        """Return the families whose base class is ``base`` or a base of it; nothing is imported."""
        above = {f"{cls.__module__}.{cls.__qualname__}" for cls in base.__mro__}
        return [family for family, path in self._paths.items() if path in above]

    def find_families(self, base: type[Discoverable]) -> list[str]:
        """Return the families that can hold subclasses of ``base``."""
        return self.find_home_families(base) or [
            family for family, root in self.items() if issubclass(root, base)
        ]

    def get_home_packages(self, family: str) -> tuple[str, ...]:
        """Return the packages and modules of nnpipe that hold a family's own classes."""
        return self._homes.get(family, (f"nnpipe.{family}",))


FAMILIES: Families[Component] = Families(
    {
        "datasets": "nnpipe.core.dataset.Dataset",
        "modelwrappers": "nnpipe.core.model.ModelWrapper",
        "compilers": "nnpipe.core.compiler.ModelCompiler",
        "runtimes": "nnpipe.core.runtime.Runtime",
        "protocols": "nnpipe.core.runtime_protocol.RuntimeProtocol",
        "onnxconverters": "nnpipe.core.onnx_conversion.ONNXConversion",
        "tasks": "nnpipe.core.task.Task",
        "transforms": "nnpipe.core.input_transform.InputTransform",
        "decoders": "nnpipe.core.output_decoder.OutputDecoder",
        "meters": "nnpipe.core.energy_meter.EnergyMeter",
    }
)
PARTS: Families[Discoverable] = Families(
    {
        "callbacks": "nnpipe.training.callbacks.callback.Callback",
        "layers": "nnpipe.layers.vocabulary.layer.Layer",
        "operators": "nnpipe.layers.imports.step.Operator",
        "c_operators": "nnpipe.compilers.c.COperator",
        "script_tasks": "nnpipe.codegen.script_task.ScriptTask",
        "task_sections": "nnpipe.report.task_section.TaskSection",
        "task_pictures": "nnpipe.report.task_section.TaskPictures",
    },
    {
        "callbacks": ("nnpipe.training.callbacks",),
        "layers": ("nnpipe.layers.vocabulary", "nnpipe.layers.graph.submodel"),
        "operators": ("nnpipe.layers.imports.step",),
        "c_operators": ("nnpipe.compilers.c",),
        "script_tasks": ("nnpipe.codegen.tasks",),
        "task_sections": ("nnpipe.tasks",),
        "task_pictures": ("nnpipe.tasks",),
    },
)
"""Families whose classes are parts of a training, a network, a script or a report, but not
components.
"""

C = TypeVar("C", bound=Component)


def components(base: type[D]) -> list[type[D]]:
    """Return all concrete classes of a family: first nnpipe's own, then those of plugins, each
    sorted by dotted path.

    Examples
    --------
    >>> from nnpipe import Runtime
    >>> "ONNXRuntime" in [cls.__name__ for cls in components(Runtime)]
    True
    """
    check_call(components, locals())
    return _search_modules(base)[0]


def map_names_to_classes(base: type[D]) -> Mapping[str, type[D]]:
    """Return the concrete classes of a family by the names that files use for them.

    These are the classes of nnpipe and its plugins, and those that the program
    itself has declared.  The name is the short name of the class, or its dotted
    path if the short name also belongs to a class of nnpipe or to several others.
    """
    known = _get_components(base, importlib.metadata.entry_points, import_path())  # type: ignore[arg-type]  # a class has a hash
    return _build_name_index(known, tuple(cls for cls in _iter_subclasses(base) if _is_usable(cls)))


def is_installed_class(cls: type[Discoverable], base: type[D]) -> bool:
    """Return whether nnpipe or an installed package has this class, so that its name alone finds
    it in any process.
    """
    return cls in _get_components(base, importlib.metadata.entry_points, import_path())  # type: ignore[arg-type]  # a class has a hash


def find_or_import(name: str, base: type[D]) -> type[D] | None:
    """Return the class that a user's file names, or ``None`` if no class has this short name.

    It is found by its name as in :func:`map_names_to_classes`, or by its dotted path, whose module
    is then imported: only for files that the user wrote, and never for model files.

    Raises
    ------
    ComponentNotFound
        If the name is a dotted path, and there is no such class, or its module cannot be imported.
    """
    known = map_names_to_classes(base)
    found = known.get(name) or next(
        (cls for cls in known.values() if cls.get_dotted_path() == name), None
    )
    if found is not None or "." not in name:
        return found
    module = name.rpartition(".")[0]
    try:
        if all(part.isidentifier() for part in module.split(".")):
            importlib.import_module(module)
    except ModuleNotFoundError:
        pass  # ``find`` says where Python looks for modules
    except Exception as error:  # the user's module may fail in any way
        raise ComponentNotFound(
            f"{name}: importing {module} failed: {type(error).__name__}: {error}"
        ) from error
    return find(name, base)


def list_broken_plugins() -> list[BrokenModule]:
    """Return the modules of plugins that could not be imported."""
    return _search_modules(Component)[1]


def find(name: str, base: type[D]) -> type[D]:
    """Return the class with this dotted path or class name.

    Raises
    ------
    ConfigError
        If ``name`` is not a string, or ``base`` is not a class.
    ComponentNotFound
        If there is no such class, or several have this name.  The message
        suggests the closest name, or lists the candidates.

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
        installed = importlib.metadata.entry_points
        named = _find_short(name, base, installed, import_path())  # type: ignore[arg-type]  # as above
        return cast("type[D]", named)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module exists but cannot import one of its own imports, that error is raised
        # unchanged.
        if error.name and not (
            module_name == error.name or module_name.startswith(error.name + ".")
        ):
            raise ComponentNotFound(f"{name}: importing {module_name} failed: {error}") from error
        raise _build_not_found_error(name, base, f"; {_suggest_location(module_name)}") from None
    except (ValueError, TypeError):
        raise _build_not_found_error(name, base) from None
    found = getattr(module, class_name, None)
    if found is None:
        raise _build_not_found_error(name, base, _has_instead(module, base))
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise ComponentNotFound(f"{name} is not a {base.__name__}")
    if found.is_base():
        raise ComponentNotFound(f"{name} is a base to build on, not a {base.__name__} to use")
    return found


def create_component(description: Mapping[str, Any], base: type[C]) -> C:
    """Make a component from its description by :meth:`Component.describe`.

    Raises
    ------
    ComponentNotFound
        If there is no such class here.
    ConfigError
        If the class does not accept these arguments.

    Examples
    --------
    >>> from nnpipe.core.runtime import Runtime
    >>> create_component({"class": "ONNXRuntime", "arguments": {"num_threads": 2}}, Runtime).num_threads
    2
    """
    return find(description["class"], base).from_json(description["arguments"])


def find_installed(name: str, base: type[D]) -> type[D]:
    """Return the class with this dotted path among those of nnpipe and its plugins.

    It is for names in files that are not trusted: a name in a file cannot cause an import.

    Raises
    ------
    ComponentNotFound
        If there is no such class.
    """
    if any(name.startswith(f"{home}.") for home in _list_home_packages(base)):
        return find(name, base)
    for cls in components(base):
        if cls.get_dotted_path() == name:
            return cls
    raise ComponentNotFound(f"no {base.__name__} that is installed here is called {name!r}")


@functools.lru_cache(maxsize=256)
def _find_short(
    name: str,
    base: type[Discoverable],
    read: Callable[
        ..., importlib.metadata.EntryPoints
    ],  # this and the next are cache keys: they change when packages are installed
    state: tuple[tuple[str, int], ...],
) -> type[Discoverable]:
    """Return the only class with a short name; the result is cached, since a sweep asks
    thousands of times.
    """
    known = _get_components(base, read, state)  # type: ignore[arg-type]  # a class has a hash
    matches = [cls for cls in known if name in (cls.__name__, cls.short_name())] or [
        cls for cls in known if name in cls.formerly
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        both = " and ".join(cls.get_dotted_path() for cls in matches)
        raise ComponentNotFound(f"{name} could be {both}; give the whole path")
    raise _build_not_found_error(name, base)


def _suggest_location(module: str) -> str:
    """Return a hint on how Python finds a module of the user."""
    top = module.partition(".")[0]
    if top in sys.modules:
        return "nnpipe list shows what there is"
    return (
        f"Python finds no module {top!r}: start nnpipe in the folder that holds {top}.py, "
        "or name that folder in PYTHONPATH"
    )


def _has_instead(module: ModuleType, base: type[Discoverable]) -> str:
    """Return a hint that lists the classes that a module has, or says that it has none."""
    found = [
        cls.__name__
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and cls.__module__ == module.__name__
        and issubclass(cls, base)
        and _is_usable(cls)
    ]
    where = getattr(module, "__file__", None) or module.__name__
    return f"; {where} has {', '.join(found)}" if found else f"; {where} has no {base.__name__}"


def _build_not_found_error(
    name: str, base: type[Discoverable], hint: str = "; nnpipe list shows what there is"
) -> ComponentNotFound:
    found = components(base)
    last = name.rpartition(".")[2]
    now = [cls.get_dotted_path() for cls in found if last in cls.formerly]
    if now:
        return ComponentNotFound(
            f"no {base.__name__} is called {name!r}; it is {' or '.join(now)} here"
        )
    for cls in found:
        if last in cls.answers:
            return ComponentNotFound(
                f"no {base.__name__} is called {name!r} here: {cls.answers[last]}"
            )
    if issubclass(base, Component) and base is not Component:
        for other in components(Component):
            if last in (other.__name__, *other.formerly) and not issubclass(other, base):
                kind = next(cls.__name__ for cls in FAMILIES.values() if issubclass(other, cls))
                return ComponentNotFound(
                    f"no {base.__name__} is called {name!r}; it is the {kind} "
                    f"{other.get_dotted_path()} here"
                )
    known = [cls.get_dotted_path() for cls in found]
    return ComponentNotFound(
        f"no {base.__name__} is called {name!r}{suggest_name(name, known) or hint}"
    )


def _list_home_packages(base: type[Discoverable]) -> list[str]:
    """Return the packages of nnpipe that hold subclasses of ``base``."""
    groups: tuple[Families[Any], ...] = (FAMILIES, PARTS)
    if not any(group.find_home_families(base) for group in groups):
        groups = (FAMILIES,) if issubclass(base, Component) else groups
        return [
            home
            for group in groups
            for family in group.find_families(base)
            for home in group.get_home_packages(family)
        ]
    return [
        home
        for group in groups
        for family in group.find_home_families(base)
        for home in group.get_home_packages(family)
    ]


def _iter_subclasses(base: type[D]) -> Iterator[type[D]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _iter_subclasses(cls)


def _is_usable(cls: type[Discoverable]) -> bool:
    return not cls.is_base() and not cls.__name__.startswith("_")


@functools.lru_cache(maxsize=16)
def _build_name_index(
    known: tuple[type[D], ...], declared: tuple[type[D], ...]
) -> Mapping[str, type[D]]:
    found = {cls.get_dotted_path(): cls for cls in (*known, *declared)}
    own = {cls.short_name() for path, cls in found.items() if path.startswith("nnpipe.")}
    bearers = Counter(cls.short_name() for cls in found.values())

    def choose_name(path: str, cls: type[D]) -> str:
        short = cls.short_name()
        return (
            short
            if path.startswith("nnpipe.") or (bearers[short] == 1 and short not in own)
            else path
        )

    return MappingProxyType({choose_name(path, cls): cls for path, cls in found.items()})


@functools.lru_cache(maxsize=16)
def _get_components(
    base: type[D],
    read: Callable[..., importlib.metadata.EntryPoints],
    state: tuple[tuple[str, int], ...],
) -> tuple[type[D], ...]:
    """Return the result of :func:`components`, cached until the installed packages change."""
    return tuple(components(base))


def _search_modules(base: type[D]) -> tuple[list[type[D]], list[BrokenModule]]:
    found: dict[str, type[D]] = {}
    broken: list[BrokenModule] = []
    for package in (
        *_list_home_packages(base),
        *list_plugin_packages(importlib.metadata.entry_points, import_path()),
    ):
        here: dict[str, type[D]] = {}
        for module in iter_modules(package, broken):
            for cls in vars(module).values():
                if (
                    inspect.isclass(cls)
                    and cls.__module__ == module.__name__
                    and issubclass(cls, base)
                    and _is_usable(cls)
                ):
                    here[cls.get_dotted_path()] = cls
        found.update(sorted(here.items()))
    return list(found.values()), broken
