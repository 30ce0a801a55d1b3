"""The base of all parts of a pipeline: arguments, a name, and required packages and programs.

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
import inspect
from abc import ABC
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from nnpipe.core.arguments import (
    Kind,
    coerce_argument,
    encode_argument,
    list_arguments,
    read_json_arguments,
)
from nnpipe.core.discoverable import Discoverable, Option, Tool
from nnpipe.core.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    # for other bases of frozen values
    from typing_extensions import dataclass_transform as dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Replace the typing decorator, which Python 3.10 does not have."""
        return lambda cls: cls


C = TypeVar("C", bound="Component")


# Type checkers only see a default that a field specifier takes by keyword.  `argument` takes it by
# position, and is therefore not named here: any value then counts as a default.
@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
class Component(Discoverable, ABC):
    """Base of datasets, model wrappers, compilers, runtimes, protocols and conversions.

    Every subclass becomes a frozen dataclass.  Instances never change and hold
    arguments only.  Objects with a state (a loaded model, a connection) are made
    by a method and used in a ``with`` block.

    :class:`~nnpipe.core.discoverable.Discoverable` says what ``requires``, ``install``,
    ``formerly`` and ``needs_tools`` on a class mean.

    Attributes
    ----------
    no_options
        Messages for options that users may expect but that do not exist, by flag.

    Examples
    --------
    >>> from nnpipe import Runtime, find
    >>> runtime = find("ONNXRuntime", Runtime)(num_threads=2)
    >>> runtime.to_json()["num_threads"]
    2
    >>> type(runtime).from_json(runtime.to_json()) == runtime
    True
    """

    no_options: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__dataclass_fields__" in cls.__dict__:
            raise TypeError(
                f"{cls.__qualname__}: remove @dataclass, components are dataclasses by themselves"
            )
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for declared in list_arguments(type(self)):
            given = getattr(self, declared.name)
            value = coerce_argument(type(self), declared, given)
            if value is not given:
                object.__setattr__(self, declared.name, value)
        self.validate()

    def validate(self) -> None:
        """Check the arguments together; raise :class:`ConfigError` if they contradict each
        other.
        """

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the options of the arguments."""
        return tuple(
            Option(
                ", ".join(a.flags),
                a.kind.describe(),
                a.help,
                a.default if a.required else encode_argument(a.default),
            )
            for a in list_arguments(cls)
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return the programs that the component needs with these arguments; ``needs_tools`` by
        default.
        """
        return self.needs_tools

    def check_ready(self) -> None:
        """Raise :class:`MissingDependency` if a package or program that the component needs is
        not installed.
        """
        self.check_installed()
        for tool in self.tools():
            tool.check(type(self).__qualname__)

    def import_framework(self) -> None:
        """Import all packages that loading a first model would import, so that load times do not
        include imports.

        It is called after all of ``requires`` have been imported, may raise :class:`ImportError`,
        and does nothing by default.
        """

    @classmethod
    def form_argparse(cls) -> argparse.ArgumentParser:
        """Return a parser, without ``-h``, that has this component's options in their own group."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        group = parser.add_argument_group(cls.__name__, cls.summary())
        for declared in list_arguments(cls):
            declared.add_to(group)
        return parser

    @classmethod
    def from_argparse(cls, namespace: argparse.Namespace) -> Self:
        """Make the component from parsed options; options of other components are ignored."""
        given = vars(namespace)
        return cls.from_json(
            {a.name: given[a.dest] for a in list_arguments(cls) if a.dest in given}
        )

    @classmethod
    def from_json(cls, arguments: Mapping[str, Any]) -> Self:
        """Make the component from a JSON or YAML object of its arguments.

        Raises
        ------
        ConfigError
            If an argument is unknown, missing or unusable; the message names the first one.
        """
        return cls(**read_json_arguments(cls, arguments))

    def to_json(self) -> dict[str, Any]:
        """Return the arguments as a JSON object, from which ``from_json`` makes an equal
        component.
        """
        return {a.name: encode_argument(getattr(self, a.name)) for a in list_arguments(type(self))}

    def performance_caveats(self) -> tuple[str, ...]:
        """Return the reasons, in short texts, why the component is slower with these arguments than
        it could be.

        Results record them, and reports mark the candidate.
        """
        return ()

    def describe(self) -> dict[str, Any]:
        """Return the class's dotted path and the arguments, in the form of result files."""
        return {"class": self.get_dotted_path(), "arguments": self.to_json()}


def is_overridden(
    component: Discoverable | type[Discoverable], method: str, base: type[Discoverable]
) -> bool:
    """Return whether a component overrides an optional method of its base class.

    Examples
    --------
    >>> from nnpipe.core.model import ModelWrapper
    >>> is_overridden(ModelWrapper, "train", ModelWrapper)
    False
    """
    cls = component if isinstance(component, type) else type(component)
    return getattr(cls, method) is not getattr(base, method)


def parse_arguments(cls: type[Component], words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments that words state; lists are separated by commas, and ``none`` stands for
    nothing.

    Names that the class does not know are returned as they are, for its own message.

    Raises
    ------
    ConfigError
        If a word is no ``NAME=VALUE``, or the value is unusable.
    """
    known = {each.name: each for each in list_arguments(cls)}
    given: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        key = key.replace("-", "_")
        if not sign:
            example = f", as in {next(iter(known))}=..." if known else ""
            raise ConfigError(f"{cls.__name__}: {word!r} is no option; write NAME=VALUE{example}")
        try:
            given[key] = _parse_value(known[key].kind, text) if key in known else text
        except ArgumentTypeError as error:
            raise ConfigError(f"{cls.__name__}.{key}: {error}") from None
    return given


def _parse_value(kind: Kind, text: str) -> Any:
    if kind.optional and text == "none" and text not in kind.choices:
        return None
    if kind.item is bool:
        if text not in ("true", "false"):
            raise ArgumentTypeError(f"{text!r} is neither true nor false")
        return text == "true"
    return tuple(map(kind, text.split(","))) if kind.many is not None else kind(text)


def find_source_files(*components: Component) -> list[Path]:
    """Return the source files of the components' classes, each once; none for classes defined
    without a file.
    """
    found = []
    for component in components:
        try:
            path = Path(inspect.getfile(type(component)))
        except (TypeError, OSError):
            continue
        if path.is_file():
            found.append(path)
    return list(dict.fromkeys(found))
