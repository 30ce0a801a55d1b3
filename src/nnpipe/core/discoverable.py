"""The base of all classes that are found by name: components, callbacks, layers, tasks of
scripts, and others.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from nnpipe.core.errors import MissingDependency, MissingTool
from nnpipe.core.messages import docstring_summary


@dataclass(frozen=True)
class Tool:
    """A program that must be on the search path.

    Attributes
    ----------
    name
        A description with its article: ``"a C++ compiler"``.
    commands
        Possible names of the program; one of them is enough.
    install
        How to install it, as the end of a sentence.
    """

    name: str
    commands: tuple[str, ...]
    install: str

    def find(self) -> str | None:
        """Return the path of the first of its commands that is installed, or None."""
        return next(filter(None, map(shutil.which, self.commands)), None)

    def check(self, needed_by: str) -> str:
        """Return the program's path.

        Raises
        ------
        MissingTool
            If it is not installed; the message says which component needs it and how to install it.
        """
        found = self.find()
        if found is None:
            error = MissingTool(f"{needed_by} needs {self.describe_missing()}")
            error.commands = self.commands
            raise error
        return found

    def describe_missing(self) -> str:
        """Return the end of a message: what is missing, and how to install it."""
        named = (
            self.commands[0] if len(self.commands) == 1 else f"one of {', '.join(self.commands)}"
        )
        return f"{self.name} on the PATH ({named}): {self.install}"


CXX = Tool(
    "a C++ compiler",
    ("g++", "clang++", "c++"),
    "apt install g++, or xcode-select --install on macOS",
)
"""The compiler and linker for machine code of this computer."""

C = Tool(
    "a C compiler", ("cc", "gcc", "clang"), "apt install gcc, or xcode-select --install on macOS"
)
"""The compiler of C for this computer."""

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


@dataclass(frozen=True)
class Option:
    """The description of one argument of a class.

    Attributes
    ----------
    name
        The argument's name in commands and files.
    kind
        The kind of values, such as ``an integer``; empty if it is unknown.
    help
        The meaning of the argument.
    default
        The default value; ``dataclasses.MISSING`` if the argument is required.
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
    """Base of all classes that are found by name, in nnpipe and in other packages.

    Attributes
    ----------
    requires
        Import names of the packages that an instance needs; the class itself can be
        imported without them.  ``"a|b"`` means that either package is enough.
    install
        The argument of ``pip install`` if a package is missing, for example
        ``"nnpipe[torch]"``; by default the missing package itself.
    formerly
        Other names under which users may look for the class.
    answers
        Names in other systems of what this class does in another way, each with a sentence that
        says how.
    needs_tools
        Programs that the class always needs.
    abstract
        Whether the class is only a base for others.  Subclasses do not inherit this.
    """

    requires: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    formerly: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    needs_tools: ClassVar[tuple[Tool, ...]] = ()
    abstract: ClassVar[bool] = True

    @classmethod
    def is_base(cls) -> bool:
        """Return whether the class is only a base for others."""
        return inspect.isabstract(cls) or bool(vars(cls).get("abstract"))

    @classmethod
    def get_dotted_path(cls) -> str:
        """Return the full name of the class, as used on the command line and in result files."""
        return f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def short_name(cls) -> str:
        """Return the name that commands and files use if it is unique; by default the class
        name.
        """
        return cls.__name__

    @classmethod
    def summary(cls) -> str:
        """Return the summary in the class's own docstring, on one line."""
        text = cls.__dict__.get("__doc__") or ""
        # Python gives a dataclass without a docstring its signature instead.
        return "" if text.startswith(f"{cls.__name__}(") else docstring_summary(text)

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the options of the class, in the order of their declaration."""
        return ()

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Return the required packages that are not installed (nothing is imported)."""
        return tuple(need for need in cls.requires if not any(map(is_installed, need.split("|"))))

    @classmethod
    def check_installed(cls) -> None:
        """Raise :class:`MissingDependency` if a package is not installed; the message says what
        to install.
        """
        missing = cls.missing()
        if missing:
            names = ", ".join(need.replace("|", " or ") for need in missing)
            packages = cls.install or " ".join(need.split("|")[0] for need in missing)
            raise MissingDependency(
                f"{cls.__qualname__} needs {names}, which is not installed: pip install "
                f"'{packages}'"
            )

    @classmethod
    def missing_tools(cls) -> tuple[Tool, ...]:
        """Return the programs of ``needs_tools`` that are not on the search path (nothing is
        run).
        """
        return tuple(tool for tool in cls.needs_tools if tool.find() is None)


def extract_parameter_descriptions(cls: type) -> dict[str, str]:
    """Return the descriptions of parameters in the docstrings of a class and its bases, by name.

    They are read from the numpydoc section ``Parameters``.  A class's own description replaces that
    of a base.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(vars(base).get("__doc__") or "")
        parts = _SECTION.split(text)
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            if title == "Parameters":
                found |= _parse_entries(body)
    return found


def format_annotation(annotation: object) -> str:
    """Return an annotation as in the source code, such as ``float | None``."""
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def _parse_entries(body: str) -> dict[str, str]:
    """Return the entries of a section: names without indentation, and the indented text below
    each.
    """
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
    """Return whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
