"""The base of all classes that are found by name: components, callbacks, layers and tasks of scripts."""

from __future__ import annotations

import importlib.util
import inspect
import re
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from nnpipe.core.errors import MissingDependency
from nnpipe.core.external_tools import Tool

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


@dataclass(frozen=True)
class Option:
    """What can be chosen of a class, in words.

    Attributes
    ----------
    name
        The argument, as commands and files have it.
    kind
        What it takes, such as ``an integer``; empty where nothing says so.
    help
        What it means.
    default
        Its value where none is given; ``dataclasses.MISSING`` where it must be given.
    """

    name: str
    kind: str
    help: str
    default: Any = MISSING

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING


class Discoverable:
    """Base of whatever is found by name, in nnpipe and in packages outside it.

    Attributes
    ----------
    requires
        Import names of the packages that the class needs to work, not to
        be imported; ``"a|b"`` means that one of them is enough.
    install
        What to hand to ``pip install`` when one is missing, for example
        ``"nnpipe[torch]"``; by default the missing package itself.
    formerly
        Names that the class, or what it does, has had elsewhere; they lead to it.
    needs_tools
        Programs that are run whatever the arguments are.
    abstract
        Whether the class is only there to be subclassed.  It holds for the class that says so,
        not for those below it.
    """

    requires: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    formerly: ClassVar[tuple[str, ...]] = ()
    needs_tools: ClassVar[tuple[Tool, ...]] = ()
    abstract: ClassVar[bool] = True

    @classmethod
    def is_base(cls) -> bool:
        """Return whether the class is there to be subclassed, not to be used."""
        return inspect.isabstract(cls) or bool(vars(cls).get("abstract"))

    @classmethod
    def dotted_path(cls) -> str:
        """Name of the class as the command line and result files give it."""
        return f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def short_name(cls) -> str:
        """Return the name that commands and files use where only one class has it; that of the class by default."""
        return cls.__name__

    @classmethod
    def summary(cls) -> str:
        """First line of the class's own docstring."""
        text = cls.__dict__.get("__doc__") or ""
        # A dataclass without a docstring is given its signature for one.
        return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text).partition("\n")[0]

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Describe what can be chosen, in the order in which it is declared."""
        return ()

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Required packages that are not installed (nothing is imported)."""
        return tuple(need for need in cls.requires if not any(map(is_installed, need.split("|"))))

    @classmethod
    def check_installed(cls) -> None:
        """Raise :class:`MissingDependency`, saying what to install, unless all packages are there."""
        missing = cls.missing()
        if missing:
            names = ", ".join(need.replace("|", " or ") for need in missing)
            packages = cls.install or " ".join(need.split("|")[0] for need in missing)
            raise MissingDependency(
                f"{cls.__qualname__} needs {names}, which is not installed: pip install '{packages}'"
            )

    @classmethod
    def missing_tools(cls) -> tuple[Tool, ...]:
        """Return those of ``needs_tools`` that are not on the search path (nothing is run)."""
        return tuple(tool for tool in cls.needs_tools if tool.find() is None)


def parameters_said(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say of parameters, by name.

    They stand in a section ``Parameters``, as numpydoc has it; a class's own words come before its bases'.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(vars(base).get("__doc__") or "")
        parts = _SECTION.split(text)
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            if title == "Parameters":
                found |= _entries(body)
    return found


def annotation_said(annotation: object) -> str:
    """Return an annotation as it is written in the source, such as ``float | None``."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _entries(body: str) -> dict[str, str]:
    """Read the entries of a section: names without indentation, and what is said of them below."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in body.splitlines():
        if line and not line[0].isspace():
            names = [name.strip() for name in line.partition(" :")[0].split(",")]
            found |= dict.fromkeys(names, "")
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


def is_installed(name: str) -> bool:
    """Return whether a package can be imported; it is not imported for that."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
