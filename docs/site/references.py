"""References to what has no page: to a public name by another path, or to what is not public.

Docstrings and annotations name things as the code does. A name that leads to something public
becomes a link, one that leads to anything else in Python is shown without a link, and one that
leads nowhere stays a fault of the docstring."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Any

from api import public, public_of_packages
from sphinx.util.nodes import make_refnode

import nnpipe

_PUBLIC = {id(thing): f"nnpipe.{name}" for name, thing in (public_of_packages() | public()).items()}


def resolve(app: Any, environment: Any, node: Any, shown: Any) -> Any:
    """Return a link, or the text alone, for a Python name without a page; nothing where there is
    no such thing.
    """
    if node.get("refdomain") != "py":
        return None
    if node.get("refspecific") and "." not in node["reftarget"]:
        return shown  # a word within a parameter's type, such as "shape" or "optional"
    for path, found in meanings(node):
        public_name = _PUBLIC.get(id(found)) or path
        domain = environment.get_domain("py")
        target = domain.objects.get(public_name)
        if target is not None:
            return make_refnode(
                app.builder, node["refdoc"], target.docname, target.node_id, shown, public_name
            )
        return shown
    return None


def meanings(node: Any) -> Iterator[tuple[str, Any]]:
    """Find what a name leads to: as a whole, within its class, within its class's module, or in
    Python itself.
    """
    name = node["reftarget"].strip(".").removesuffix("()").partition("[")[0]
    name = re.sub(r"^np\.", "numpy.", name)
    described = (
        looked_up(f"{node.get('py:module') or 'nnpipe'}.{node['py:class']}")
        if node.get("py:class")
        else None
    )
    yield from with_path(name, looked_up(name))
    if described is not None:
        yield from with_path(name, within(described, name))
        yield from with_path(name, within(inspect.getmodule(described), name))
    for module in {node.get("py:module") or "nnpipe", "nnpipe"}:
        yield from with_path(name, within(import_module(module), name))
    page = str(node.get("refdoc", "")).rpartition("/")[2]
    if page in nnpipe.__all__:
        yield from with_path(name, within(inspect.getmodule(getattr(nnpipe, page)), name))
    yield from with_path(name, within(builtins, name))
    for thing in (*public().values(), *public_of_packages().values()):
        yield from with_path(name, within(inspect.getmodule(thing), name))
    for base in bases_in(import_module(node.get("py:module") or "nnpipe")):
        yield from with_path(name, within(inspect.getmodule(base), name))


def bases_in(module: Any) -> Iterator[type]:
    """Find the bases of a module's classes: an inherited annotation is as the base's module has
    it.
    """
    for thing in vars(module).values():
        if inspect.isclass(thing):
            yield from thing.__mro__


def with_path(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    """Pass on what was found, with its path as the code has it."""
    if found is not None:
        owner, _, attribute = getattr(found, "__qualname__", "").rpartition(".")
        home = (
            looked_up(f"{found.__module__}.{owner}")
            if owner and getattr(found, "__module__", None)
            else None
        )
        yield (f"{_PUBLIC[id(home)]}.{attribute}" if id(home) in _PUBLIC else name), found


def looked_up(path: str) -> Any:
    """Import what a dotted path names, or return None."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:count]))
        except (ImportError, ValueError):
            continue
        return within(module, ".".join(parts[count:])) if parts[count:] else module
    return None


def within(thing: Any, path: str) -> Any:
    """Follow a dotted path from a class or module."""
    for name in path.split("."):
        thing = (
            getattr(thing, name, None)
            if hasattr(thing, name)
            else vars(thing).get("__annotations__", {}).get(name)
        )
        if thing is None:
            return None
    return thing


def setup(app: Any) -> dict[str, Any]:
    """Join the build."""
    app.connect("missing-reference", resolve)
    return {
        "version": metadata.version("sphinx"),
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
