"""What all parts of a pipeline have in common: arguments, a name, and what they need.

A component is a frozen, keyword-only dataclass.  Its author writes fields and
no decorator::

    class DigitsDataset(Dataset):
        \"\"\"Scanned digits.\"\"\"

        fraction: float = argument(1.0, help="how much of the data to use", minimum=0, maximum=1)

and gets the constructor ``DigitsDataset(fraction=0.5)``, the option
``--fraction``, its help, and the JSON form ``{"fraction": 0.5}``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import inspect
from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from nnpipe.core.arguments import arguments_of, coerced, plain, values_from
from nnpipe.core.errors import MissingDependency
from nnpipe.core.tools import Tool

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Stand in for the typing decorator, which is newer than Python 3.10."""
        return lambda cls: cls


C = TypeVar("C", bound="Component")


# Type checkers only see a default that a field specifier takes by keyword; `argument` takes it first, and is
# therefore left out here: any value then counts as a default.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Component(ABC):
    """Base of datasets, model wrappers, compilers, runtimes, protocols and conversions.

    Subclasses become frozen dataclasses by themselves.  Instances never change
    and hold arguments only; whatever lives (a loaded model, a connection) is
    made by a method and used in a ``with`` block.

    Attributes
    ----------
    requires
        Import names of the packages that the component needs to work, not to
        be imported; ``"a|b"`` means that one of them is enough.
    install
        What to hand to ``pip install`` when one is missing, for example
        ``"nnpipe[torch]"``; by default the missing package itself.
    formerly
        Names that the class, or what it does, has had elsewhere; they lead to it.
    no_options
        What to say of options that people look for here and that there are not, by flag.
    needs_tools
        Programs that the component runs whatever its arguments are; where
        that depends on them, :meth:`tools` says which.

    Examples
    --------
    >>> from nnpipe import Runtime, find
    >>> runtime = find("ONNXRuntime", Runtime)(num_threads=2)
    >>> runtime.to_json()["num_threads"]
    2
    >>> type(runtime).from_json(runtime.to_json()) == runtime
    True
    """

    requires: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    formerly: ClassVar[tuple[str, ...]] = ()
    no_options: ClassVar[Mapping[str, str]] = MappingProxyType({})
    needs_tools: ClassVar[tuple[Tool, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__dataclass_fields__" in cls.__dict__:
            raise TypeError(f"{cls.__qualname__}: remove @dataclass, components are dataclasses by themselves")
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for declared in arguments_of(type(self)):
            given = getattr(self, declared.name)
            value = coerced(type(self), declared, given)
            if value is not given:
                object.__setattr__(self, declared.name, value)
        self.validate()

    def validate(self) -> None:
        """Check arguments against each other; raise :class:`ConfigError` if they do not go together."""

    @classmethod
    def dotted_path(cls) -> str:
        """Name of the class as the command line and result files give it."""
        return f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def summary(cls) -> str:
        """First line of the class's own docstring."""
        text = cls.__dict__.get("__doc__") or ""
        # A dataclass without a docstring is given its signature for one.
        return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text).partition("\n")[0]

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Required packages that are not installed (nothing is imported)."""
        return tuple(need for need in cls.requires if not any(map(_is_installed, need.split("|"))))

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

    def tools(self) -> tuple[Tool, ...]:
        """Return the programs that the component needs with these arguments; by default ``needs_tools``."""
        return self.needs_tools

    def check_ready(self) -> None:
        """Raise :class:`MissingDependency` unless all packages and programs are there that these arguments need."""
        self.check_installed()
        for tool in self.tools():
            tool.check(type(self).__qualname__)

    @classmethod
    def form_argparse(cls) -> argparse.ArgumentParser:
        """Make a parser without ``-h`` that holds this component's options in a group of its own."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        group = parser.add_argument_group(cls.__name__, cls.summary())
        for declared in arguments_of(cls):
            declared.add_to(group)
        return parser

    @classmethod
    def from_argparse(cls, namespace: argparse.Namespace) -> Self:
        """Make the component from parsed options; those of others are passed over."""
        given = vars(namespace)
        return cls.from_json({a.name: given[a.dest] for a in arguments_of(cls) if a.dest in given})

    @classmethod
    def from_json(cls, arguments: Mapping[str, Any]) -> Self:
        """Make the component from a JSON or YAML object of its arguments.

        Raises
        ------
        ConfigError
            Naming the first argument that is unknown, missing or unusable.
        """
        return cls(**values_from(cls, arguments))

    def to_json(self) -> dict[str, Any]:
        """Return the arguments as a JSON object; ``from_json`` of it equals this component."""
        return {a.name: plain(getattr(self, a.name)) for a in arguments_of(type(self))}

    def handicaps(self) -> tuple[str, ...]:
        """Return what keeps these arguments from the speed that the framework is made for, in a few words each.

        Results carry it on, and reports mark the candidate.
        """
        return ()

    def describe(self) -> dict[str, Any]:
        """Return the class's dotted path and the arguments, as result files hold them."""
        return {"class": self.dotted_path(), "arguments": self.to_json()}


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def overridden(component: Component | type[Component], method: str, base: type[Component]) -> bool:
    """Return whether a component offers an optional method, by having replaced its base's.

    Examples
    --------
    >>> from nnpipe.core.model import ModelWrapper
    >>> overridden(ModelWrapper, "train", ModelWrapper)
    False
    """
    cls = component if isinstance(component, type) else type(component)
    return getattr(cls, method) is not getattr(base, method)
