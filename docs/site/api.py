"""A page for each name of ``nnpipe.__all__``, and one for each public package and family of
components.

They are written before each build.

What is public follows from the code, so the reference cannot be out of step with it.
"""

from __future__ import annotations

import functools
import inspect
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from pages import written

import nnpipe
from nnpipe.core.arguments import list_arguments
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.messages import docstring_summary
from nnpipe.core.registry import FAMILIES, PARTS, components

ERRORS, INTERFACES, FUNCTIONS, VALUES = "Errors", "Interfaces", "Functions", "Values and options"
FOLDERS = {FUNCTIONS: "functions", INTERFACES: "interfaces", VALUES: "values"}
"""Where a group's pages are; all errors share one."""
PACKAGES = ("training", "training.outputs", "training.sequences", "experiment", "layers", "tasks")
"""The packages of nnpipe whose names are public, too."""


@functools.cache
def public() -> dict[str, Any]:
    """Return what ``import nnpipe`` gives, by name."""
    return {name: getattr(nnpipe, name) for name in nnpipe.__all__ if not name.startswith("_")}


@functools.cache
def public_of_packages() -> dict[str, Any]:
    """Return what the public packages give, by the path within nnpipe, such as
    ``training.Trainer``.
    """
    found: dict[str, Any] = {}
    for package in PACKAGES:
        module = import_module(f"nnpipe.{package}")
        found |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return found


def group(thing: Any) -> str:
    """Return where in the reference a public thing belongs."""
    if not inspect.isclass(thing):
        return FUNCTIONS
    if issubclass(thing, Exception):
        return ERRORS
    return INTERFACES if inspect.isabstract(thing) or thing is nnpipe.Component else VALUES


def summary(thing: Any) -> str:
    """Return the first line of a docstring."""
    return docstring_summary(inspect.getdoc(thing))


def titled(title: str, *parts: str) -> str:
    """Write a page in reStructuredText."""
    return "\n\n".join((f"{title}\n{'=' * len(title)}", *parts)) + "\n"


def indented(text: str) -> str:
    """Move a directive's content below it."""
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


def arguments(cls: type) -> str:
    """List the fields of a component or of a group of options, with their defaults."""
    if not any(
        "nnpipe.argument" in field.metadata
        for field in getattr(cls, "__dataclass_fields__", {}).values()
    ):
        return ""
    rows = []
    for field in list_arguments(cls):
        default = "required" if field.required else f"default ``{field.default!r}``"
        rows.append(f"``{field.name}`` : {default}\n   {literally(field.help)}")
    return "\n\n".join((".. rubric:: Arguments", *rows))


def literally(text: str) -> str:
    """Keep the characters of a help text from meaning something in reStructuredText."""
    return "".join(f"\\{each}" if each in r"\*`_|" else each for each in text)


def described(name: str, thing: Any, *, members: bool = False) -> str:
    """Write the directive that describes a public thing or a component."""
    if not inspect.isclass(thing):
        return f".. autofunction:: {name}"
    directive = f".. autoclass:: {name}\n   :show-inheritance:"
    if members and not issubclass(thing, Exception):
        directive += "\n   :members:"
    fields = arguments(thing)
    return f"{directive}\n\n{indented(fields)}" if fields else directive


def part(cls: type[Discoverable]) -> str:
    """Describe a callback, a layer or a task: what files call it, what it is, and its options
    with their defaults.
    """
    rows = []
    for option in cls.options():
        default = "required" if option.required else f"default ``{option.default!r}``"
        kind = f"{literally(option.kind)}, " if option.kind else ""
        rows.append(
            f"``{option.name}`` : {kind}{default}\n   {literally(option.help) or 'see the class'}"
        )
    said = [
        f"Files and commands call it ``{cls.short_name()}``."
        if cls.short_name() != cls.__name__
        else ""
    ]
    said += [cls.summary(), *(("\n\n".join((".. rubric:: Options", *rows)),) if rows else ())]
    text = "\n\n".join(filter(None, said))
    return (
        f".. currentmodule:: {cls.__module__}\n\n.. py:class:: {cls.__name__}\n\n{indented(text)}"
    )


def package_page(package: str) -> str:
    """Describe what a public package gives; layers have their options on the page of their
    family.
    """
    parts = [
        f".. currentmodule:: nnpipe.{package}",
        import_module(f"nnpipe.{package}").__doc__ or "",
    ]
    layers = []
    for name, thing in public_of_packages().items():
        if name.rpartition(".")[0] != package:
            continue
        if inspect.isclass(thing) and issubclass(thing, PARTS["layers"]):
            layers.append(f"``{thing.__name__}``")
        else:
            parts.append(described(f"nnpipe.{name}", thing, members=True))
    if layers:
        parts.append(
            f":doc:`Layers, with their options <../families/layers>`: {', '.join(layers)}."
        )
    return titled(f"nnpipe.{package}", *parts)


def reference() -> dict[str, str]:
    """Return all pages of the reference, by their paths."""
    groups: dict[str, dict[str, Any]] = {}
    for name, thing in public().items():
        groups.setdefault(group(thing), {})[name] = thing
    pages, index = {}, []
    for caption, folder in FOLDERS.items():
        for name, thing in groups[caption].items():
            pages[f"{folder}/{name}.rst"] = titled(
                name, ".. currentmodule:: nnpipe", described(f"nnpipe.{name}", thing, members=True)
            )
        rows = "\n".join(f"{name} <{folder}/{name}>" for name in groups[caption])
        index.append(
            f"{caption}\n{'-' * len(caption)}\n\n.. toctree::\n   :maxdepth: 1\n\n{indented(rows)}"
        )
    pages |= {f"packages/{package}.rst": package_page(package) for package in PACKAGES}
    rows = "\n".join(f"nnpipe.{package} <packages/{package}>" for package in PACKAGES)
    index.append(f"Packages\n--------\n\n.. toctree::\n   :maxdepth: 1\n\n{indented(rows)}")
    errors = [described(f"nnpipe.{name}", error) for name, error in groups[ERRORS].items()]
    pages["errors.rst"] = titled(ERRORS, ".. currentmodule:: nnpipe", *errors)
    for family, parent in PARTS.items():
        own = [cls for cls in components(parent) if cls.__module__.startswith("nnpipe.")]
        pages[f"families/{family}.rst"] = titled(
            family, f"{len(own)} classes, each a ``{parent.__name__}``.", *map(part, own)
        )
    for family, base in FAMILIES.items():
        ours = [cls for cls in components(base) if cls.__module__.startswith("nnpipe.")]
        each = [
            f".. currentmodule:: {cls.__module__}\n\n{described(cls.get_dotted_path(), cls)}"
            for cls in ours
        ]
        pages[f"families/{family}.rst"] = titled(
            family, f"{len(ours)} classes, each a :class:`nnpipe.{base.__name__}`.", *each
        )
    rows = "\n".join(("errors", *(f"families/{family}" for family in (*FAMILIES, *PARTS))))
    index.append(
        f"Errors and components\n---------------------\n\n.. toctree::\n   :maxdepth: "
        f"1\n\n{indented(rows)}"
    )
    preamble = (
        "What ``import nnpipe`` and its public packages give, and the classes that come with it. "
        "The rest may change in any version."
    )
    return pages | {"index.rst": titled("Reference", preamble, *index)}


def write(app: Any) -> None:
    """Write the pages, and remove those of names that are gone."""
    folder = Path(app.srcdir) / "api"
    pages = reference()
    for old in folder.rglob("*.rst"):
        if old.relative_to(folder).as_posix() not in pages:
            old.unlink()
    for path, text in pages.items():
        written(folder / path, text)


def setup(app: Any) -> dict[str, Any]:
    """Join the build."""
    app.connect("builder-inited", write)
    return {
        "version": metadata.version("sphinx"),
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
