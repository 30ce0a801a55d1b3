"""Where code came from: the module, and its package's version or its commit and whether that was changed."""

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
from typing import Any

from nnpipe.core.files import sha256_of
from nnpipe.experiment.configuration import Configuration

_TIMEOUT = 30.0  # seconds for a call of git


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a class or function came from.

    Parameters
    ----------
    path
        Its dotted path.
    module
        The module that defines it, which may be another than the path says.
    package
        The distribution that the module was installed with; ``Python`` for its own; empty if none.
    version
        Its version; empty if there is none.
    commit
        The commit of git's work tree that the module lies in; empty if it lies in none.
    dirty
        Whether files known to git were changed since then, or Python files were added; ``None`` without a commit.
    sha256
        Of the module's file; empty if it has none.
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
        """Take what :meth:`to_json` gave."""
        return cls(**data)

    @property
    def told(self) -> str:
        """The package with its version, or the commit, in words."""
        if self.commit:
            state = {True: ", changed since", False: "", None: ""}[self.dirty]
            return f"commit {self.commit[:12]}{state}"
        return f"{self.package} {self.version}".strip() or "unknown"


def origins(configuration: Configuration) -> list[Origin]:
    """Find where each class in a configuration came from.

    Modules are imported, as building does.  A class that cannot be found is left out: building names it.
    """
    found = {}
    for path in _classes(configuration.tree):
        origin = origin_of(path)
        if origin is not None:
            found[path] = origin
    return list(found.values())


def origin_of(path: str) -> Origin | None:
    """Find where the class or function of a dotted path came from; ``None`` if it is not there."""
    module_name, _, name = path.rpartition(".")
    try:
        thing = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError):
        return None
    return origin_of_object(thing, path)


def origin_of_object(thing: Any, path: str | None = None) -> Origin:
    """Find where a class or function came from.

    Parameters
    ----------
    thing
        The class or function.
    path
        What it is called; its own name by default.
    """
    module = getattr(thing, "__module__", None) or "builtins"
    path = path or f"{module}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    package, version = _package(module)
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file():
        return Origin(path=path, module=module, package=package, version=version)
    place = Path(file).resolve()
    commit, dirty = _commit(place)
    return Origin(
        path=path, module=module, package=package, version=version,
        commit=commit, dirty=dirty, sha256=sha256_of(place),
    )  # fmt: skip


def environment() -> dict[str, Any]:
    """Return what a run depends on besides its code: Python, the platform, and the versions of the packages in use."""
    used = {name.partition(".")[0] for name in list(sys.modules)}
    versions: dict[str, str] = {}
    for package in sorted(used):
        for distribution in _distributions().get(package, ()):
            name, version = _named(distribution)
            versions.setdefault(name, version)  # the first of a name is what is imported
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted(versions.items(), key=lambda item: item[0].lower())),
    }


def _classes(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("class"), str):
            yield node["class"]
        for item in node.values():
            yield from _classes(item)
    elif isinstance(node, list):
        for item in node:
            yield from _classes(item)


def _package(module: str) -> tuple[str, str]:
    """Return the name and the version of the distribution that a module belongs to."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "Python", platform.python_version()
    return next(map(_named, _distributions().get(top, ())), ("", ""))


@functools.cache
def _distributions() -> Mapping[str, list[importlib.metadata.Distribution]]:
    """Group what is installed by the packages that it brings, the first to be imported first.

    ``importlib.metadata.packages_distributions`` makes an object of every file that is installed, in half a second.
    """
    found: dict[str, list[importlib.metadata.Distribution]] = {}
    for distribution in importlib.metadata.distributions():
        for package in _packages_of(distribution):
            found.setdefault(package, []).append(distribution)
    return found


def _packages_of(distribution: importlib.metadata.Distribution) -> set[str]:
    if told := (distribution.read_text("top_level.txt") or "").split():
        return set(told)
    lines = (distribution.read_text("RECORD") or "").splitlines()
    paths = {line.partition(",")[0] for line in lines} if lines else {str(path) for path in distribution.files or ()}
    return {path.partition("/")[0].partition(".")[0] for path in paths if path.endswith((".py", ".so", ".pyd"))}


@functools.cache
def _named(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return the name and the version of a distribution."""
    metadata = distribution.metadata
    return metadata["Name"], metadata["Version"]


def _commit(file: Path) -> tuple[str, bool | None]:
    """Return the commit of the work tree that a file belongs to, and whether that was changed."""
    if _installed(file):
        return "", None
    top = _git(file.parent, "rev-parse", "--show-toplevel")
    if not top or _git(file.parent, "check-ignore", "--quiet", "--", str(file)) is not None:
        return "", None  # an ignored file is no part of the tree that it lies in
    commit = _git(file.parent, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return "", None
    # Files that a run writes must not make the next one dirty; code that nobody committed must.
    changed = _git(Path(top), "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=none")
    added = _git(Path(top), "ls-files", "--others", "--exclude-standard", "--", "*.py", ":(exclude).*")
    return commit, bool(changed) or bool(added)


def _installed(file: Path) -> bool:
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return any(file.is_relative_to(Path(place).resolve()) for place in places if place)


def _git(folder: Path, *words: str) -> str | None:
    """Call git; ``None`` where it fails or is not there.

    A work tree from outside must not start programs of its own.
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
