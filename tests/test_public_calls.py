"""A value of a wrong kind, for each argument of each function and class in the documentation, is
refused by name.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import pytest

import nnpipe
from nnpipe.core.argument_checks import _get_hints
from nnpipe.core.component import Component
from nnpipe.core.errors import NNPipeError

ROOT = Path(__file__).resolve().parents[1]
IMPORT = re.compile(r"^\s*from (nnpipe[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


# Values that our own code makes, and the parts of scripts, which take anything so that ``check``
# can tell all at once.
MADE = (
    "measuring.run.",
    "measuring.series.",
    "measuring.statistics.Summary",
    "measuring.punctuality.",
    "analysis.classification.",
    "testing.fakes.",
)
PARTS_OF_SCRIPTS = ("codegen.ScriptGenerator", "codegen.Variable", "codegen.tasks.")


class Wrong:
    """What no function takes."""


def documented() -> dict[str, Any]:
    """Return the functions of the front door, and what pages and examples import but for
    components and constants.
    """
    found = {}
    for page in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*.py")),
    ]:
        for module, names in IMPORT.findall(page.read_text("utf-8")):
            for name in re.findall(r"\w+", re.sub(r"\bas \w+|#.*", "", names)):
                thing = getattr(import_module(module), name)
                if callable(thing) and not (
                    inspect.isclass(thing) and issubclass(thing, (Component, Exception))
                ):
                    found[f"{module}.{name}"] = thing
    for name in nnpipe.__all__:
        if inspect.isfunction(thing := getattr(nnpipe, name)):
            found[f"{thing.__module__}.{name}"] = thing
    return dict(sorted(found.items()))


def fitting(hint: Any) -> Any:
    """Make something of the kind that a parameter names, which nothing needs to work with."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if parts and origin is Literal:
        return parts[0]
    if type(None) in parts or hint is Any or hint is None:
        return None
    if str in parts and origin in (typing.Union, types.UnionType):
        return "x"
    if parts and not inspect.isclass(origin):
        return fitting(parts[0])
    if origin is type:
        return parts[0] if inspect.isclass(parts[0]) else int
    if origin is collections.abc.Callable:
        return lambda *_: None
    if inspect.isclass(origin):
        if issubclass(origin, tuple):
            return tuple(map(fitting, parts)) if parts and Ellipsis not in parts else ()
        return (
            {}
            if issubclass(origin, collections.abc.Mapping)
            else np.zeros(1)
            if origin is np.ndarray
            else []
        )
    made = {int: 1, float: 1.0, str: "x", bool: True, bytes: b"x", Path: Path("x")}
    return made[hint] if hint in made else mock.Mock(spec=hint if inspect.isclass(hint) else None)


def cases() -> Iterator[Any]:
    for path, thing in documented().items():
        if path.removeprefix("nnpipe.").startswith((*MADE, *PARTS_OF_SCRIPTS)):
            continue
        for name, hint in _get_hints(thing):
            if hint is not Any and not isinstance(hint, typing.TypeVar):
                yield pytest.param(thing, name, id=f"{path.removeprefix('nnpipe.')}({name})")


@pytest.mark.parametrize(("thing", "name"), [*cases()])
def test_a_wrong_kind_is_refused_by_name(
    thing: Any, name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    hints = dict(_get_hints(thing))
    called = thing.__init__ if inspect.isclass(thing) else thing
    needed = [
        p.name
        for p in inspect.signature(called).parameters.values()
        if p.default is p.empty
        and p.name not in ("self", name)
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    given = {each: fitting(hints.get(each, Any)) for each in needed}
    if inspect.isabstract(thing):
        thing = type(thing.__name__, (thing,), dict.fromkeys(thing.__abstractmethods__))
    with pytest.raises(NNPipeError) as error:
        thing(**given, **{name: Wrong()})
    assert name in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
