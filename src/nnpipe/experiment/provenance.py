"""The origin of code: its module, and its package's version or its commit, with uncommitted
changes.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnpipe.core.files import compute_sha256
from nnpipe.experiment.configuration import Configuration

CURRENT_FOLDER = "current folder"
"""The path of the origin that is the commit of the folder in which a command was started."""

_TIMEOUT = 30.0  # seconds; time limit of a git command


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a class or function.

    Parameters
    ----------
    path
        Its dotted path.
    module
        The module that defines it, which may differ from the one in the path.
    package
        The distribution that installed the module; ``Python`` for the standard library; empty if
        there is none.
    version
        The version of the package; empty if there is none.
    commit
        The commit of the git work tree that holds the module; empty if there is none.
    dirty
        Whether tracked files were changed since the commit, or Python files were added; ``None``
        without a commit.
    sha256
        The SHA-256 of the module's file; empty if there is none.
    """

    path: str
    module: str
    package: str = ""
    version: str = ""
    commit: str = ""
    dirty: bool | None = None
    sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Origin:
        """Return the origin that :meth:`to_json` described."""
        return cls(**data)

    @property
    def told(self) -> str:
        """The package with its version, or the commit, as text."""
        if self.commit:
            state = {True: ", changed since", False: "", None: ""}[self.dirty]
            return f"commit {self.commit[:12]}{state}"
        return f"{self.package} {self.version}".strip() or "unknown"


def find_origins(configuration: Configuration) -> list[Origin]:
    """Return the origin of each class in a configuration, and the commit of the current folder if
    it has one.

    The latter is that of the user's files; classes may all be of installed packages.  Modules are
    imported, as for building.  A class that cannot be found is left out; building will name it.
    """
    found = {}
    commit, dirty = _find_commit(Path.cwd() / "any file")
    if commit:
        found[CURRENT_FOLDER] = Origin(path=CURRENT_FOLDER, module="", commit=commit, dirty=dirty)
    for path in _iterate_classes(configuration.tree):
        origin = find_origin(path)
        if origin is not None:
            found[path] = origin
    return list(found.values())


def find_origin(path: str) -> Origin | None:
    """Return the origin of the class or function of a dotted path; ``None`` if it does not
    exist.
    """
    module_name, _, name = path.rpartition(".")
    try:
        thing = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError):
        return None
    return find_object_origin(thing, path)


def find_object_origin(thing: Any, path: str | None = None) -> Origin:
    """Return the origin of a class or function.

    Parameters
    ----------
    thing
        The class or function.
    path
        The path to record; by default its own.
    """
    module = getattr(thing, "__module__", None) or "builtins"
    path = path or f"{module}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    package, version = _find_package(module)
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file():
        return Origin(path=path, module=module, package=package, version=version)
    place = Path(file).resolve()
    commit, dirty = _find_commit(place)
    return Origin(
        path=path,
        module=module,
        package=package,
        version=version,
        commit=commit,
        dirty=dirty,
        sha256=compute_sha256(place),
    )


def describe_environment(packages: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the environment of a run: Python, the platform, and the versions of the imported
    packages.

    ``packages`` are versions of others, which were imported by the process that was measured.
    """
    used = {name.partition(".")[0] for name in list(sys.modules)}
    versions: dict[str, str] = {}
    for package in sorted(used):
        for distribution in _map_distributions().get(package, ()):
            name, version = _get_name_and_version(distribution)
            versions.setdefault(name, version)  # the first distribution of a name is imported
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(
            sorted({**versions, **packages}.items(), key=lambda item: item[0].lower())
        ),
    }


def _iterate_classes(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("class"), str):
            yield node["class"]
        for item in node.values():
            yield from _iterate_classes(item)
    elif isinstance(node, list):
        for item in node:
            yield from _iterate_classes(item)


def _find_package(module: str) -> tuple[str, str]:
    """Return the name and the version of the distribution that a module belongs to."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "Python", platform.python_version()
    return next(map(_get_name_and_version, _map_distributions().get(top, ())), ("", ""))


@functools.cache
def _map_distributions() -> Mapping[str, list[importlib.metadata.Distribution]]:
    """Return the installed distributions by the packages that they contain, in import order.

    ``importlib.metadata.packages_distributions`` takes half a second, since it makes an object for
    every installed file.
    """
    found: dict[str, list[importlib.metadata.Distribution]] = {}
    for distribution in importlib.metadata.distributions():
        for package in _list_packages(distribution):
            found.setdefault(package, []).append(distribution)
    return found


def _list_packages(distribution: importlib.metadata.Distribution) -> set[str]:
    if told := (distribution.read_text("top_level.txt") or "").split():
        return set(told)
    lines = (distribution.read_text("RECORD") or "").splitlines()
    paths = (
        {line.partition(",")[0] for line in lines}
        if lines
        else {str(path) for path in distribution.files or ()}
    )
    return {
        path.partition("/")[0].partition(".")[0]
        for path in paths
        if path.endswith((".py", ".so", ".pyd"))
    }


@functools.cache
def _get_name_and_version(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return the name and the version of a distribution."""
    metadata = distribution.metadata
    return metadata["Name"], metadata["Version"]


def _find_commit(file: Path) -> tuple[str, bool | None]:
    """Return the commit of a file's work tree, and whether the tree was changed since."""
    if _is_installed(file):
        return "", None
    top = _run_git(file.parent, "rev-parse", "--show-toplevel")
    if not top or _run_git(file.parent, "check-ignore", "--quiet", "--", str(file)) is not None:
        return "", None  # an ignored file is not part of its work tree
    commit = _run_git(file.parent, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return "", None
    # Files that a run writes must not make the next run dirty, but uncommitted code must.
    changed = _run_git(
        Path(top), "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=none"
    )
    added = _run_git(
        Path(top), "ls-files", "--others", "--exclude-standard", "--", "*.py", ":(exclude).*"
    )
    return commit, bool(changed) or bool(added)


def _is_installed(file: Path) -> bool:
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return any(file.is_relative_to(Path(place).resolve()) for place in places if place)


def _run_git(folder: Path, *words: str) -> str | None:
    """Return the output of git; ``None`` if it fails or is not installed.

    An untrusted work tree must not be able to start programs.
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words]
    environment = {
        **os.environ,
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
    }
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
