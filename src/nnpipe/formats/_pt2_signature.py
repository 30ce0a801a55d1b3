"""The signature of an exported PyTorch program, reduced to tensors in tuples, lists and dicts.

Programs from outside also take and return fixed numbers, ``None`` for arguments that were left out, and dataclasses
such as the outputs of Hugging Face models.  The fixed numbers are already part of the graph, and a dataclass holds
named values like a dict.  So the fixed values are removed and dataclasses become dicts, and no foreign class has to be
imported to load the program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.formats._pt2_check import MalformedFile

_TUPLE, _LIST, _DICT = "builtins.tuple", "builtins.list", "builtins.dict"
_CONTAINERS = frozenset({_TUPLE, _LIST, _DICT})
_REFUSED = frozenset({"collections.defaultdict"})  # its structure names a function to import
_NAMED_TUPLE = "collections.namedtuple"
_FIXED = frozenset({"as_none", "as_int", "as_float", "as_bool", "as_string"})

Tree = dict[str, Any]
"""A ``TreeSpec`` of ``torch/utils/_pytree.py`` as JSON: ``type``, ``context``, ``children_spec``."""


def read_tree(text: str, fields: Mapping[str, Any]) -> Tree:
    """Return the structure of arguments or results, expressed with tuples, lists and dicts only.

    Parameters
    ----------
    text
        The structure as PyTorch writes it.
    fields
        The fields of named tuples, by the names of their classes.

    Raises
    ------
    MalformedFile
        If the structure is of another version, is damaged, or holds a container whose parts have no names.
    """
    version, root = parse_json(text)
    if version != 1:
        raise MalformedFile(f"structures of version {version} are unknown")
    return _plain(root, fields)


def _plain(spec: Mapping[str, Any], fields: Mapping[str, Any]) -> Tree:
    kind, context = spec["type"], spec["context"]
    if kind is None:
        return {"type": None, "context": None, "children_spec": []}
    children = [_plain(child, fields) for child in spec["children_spec"]]
    if kind in (_TUPLE, _LIST):
        if context is not None and parse_json(context) is not None:
            raise MalformedFile(f"the structure of a {kind} is damaged")
        return {"type": kind, "context": "null", "children_spec": children}
    names = _names(kind, context, fields) if kind not in _REFUSED else None
    if names is None or not all(isinstance(name, str) for name in names):
        if kind == _DICT:
            raise MalformedFile("takes or returns a dict whose keys are not strings")
        raise MalformedFile(f"takes or returns a {str(kind)[:80]!r}, not only tensors with names")
    if len(set(names)) != len(names) or len(names) != len(children):
        raise MalformedFile(f"the structure of a {str(kind)[:80]} is damaged")
    return {"type": _DICT, "context": json.dumps(names), "children_spec": children}


def _names(kind: str, context: Any, fields: Mapping[str, Any]) -> list[Any] | None:
    """Return the names of the parts of a dict, named tuple or dataclass; ``None`` if the container has no names."""
    found = parse_json(context) if isinstance(context, str) else None
    if kind == _NAMED_TUPLE:
        found = fields[found]["field_names"] if isinstance(found, str) else None
    if isinstance(found, list) and len(found) == 2 and all(isinstance(part, list) for part in found):
        found = found[0]  # a dataclass: its fields with values, then those that are None
    return found if isinstance(found, list) else None


def leaf_names(spec: Tree, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf, such as ``"boxes.0"``, from the outermost dict on; ``""`` for a leaf in no dict."""
    if spec["type"] is None:
        yield path
        return
    children = spec["children_spec"]
    if spec["type"] == _DICT:
        keys = [f"{path}.{key}" if path else key for key in parse_json(spec["context"])]
    else:
        keys = [f"{path}.{index}" if path else "" for index in range(len(children))]
    for key, child in zip(keys, children, strict=True):
        yield from leaf_names(child, key)


def _without(spec: Tree, kept: Iterator[bool]) -> Tree | None:
    """Return a structure without the leaves for which ``kept`` yields false; ``None`` if it is such a leaf itself."""
    if spec["type"] is None:
        return spec if next(kept) else None
    children = [_without(child, kept) for child in spec["children_spec"]]
    context = spec["context"]
    if spec["type"] == _DICT:
        names = parse_json(context)
        context = json.dumps([name for name, child in zip(names, children, strict=True) if child is not None])
    return spec | {"context": context, "children_spec": [child for child in children if child is not None]}


def written(tree: Tree) -> str:
    """Return a structure as PyTorch writes it."""
    return json.dumps([1, tree])


def is_given(spec: Mapping[str, Any]) -> bool:
    """Return whether an input or output of the graph belongs to the arguments or results of the program."""
    return any(kind in spec for kind in ("user_input", "user_output", "constant_input"))


def argument_of(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the argument in the specification of an input or output; ``None`` if it is a fixed value."""
    if _is_fixed(spec):
        return None
    (value,) = spec.values()
    found: Mapping[str, Any] = value["arg"]
    return found


def without_fixed(specs: Sequence[Any], values: Sequence[Any], tree: Tree) -> tuple[list[Any], list[Any], Tree]:
    """Return the specifications, values and structure of a graph's inputs or outputs without the fixed values.

    No node uses such an input, because the nodes hold its value.

    Parameters
    ----------
    specs
        The specification of each input or output.
    values
        The inputs or outputs of the graph, in the same order.
    tree
        The structure of the arguments or results of the program.

    Raises
    ------
    MalformedFile
        If the numbers of specifications and values differ.
    """
    if len(values) != len(specs):
        raise MalformedFile(f"damaged: {len(values)} values in its graph and {len(specs)} in its signature")
    kept = [not _is_fixed(spec) for spec in specs]
    given = iter([keep for spec, keep in zip(specs, kept, strict=True) if is_given(spec)])
    pruned = _without(tree, given) or {"type": _TUPLE, "context": "null", "children_spec": []}
    return list(compress(specs, kept)), list(compress(values, kept)), pruned


def _is_fixed(spec: Mapping[str, Any]) -> bool:
    if "constant_input" in spec:
        return True
    return any(kind in spec and set(spec[kind]["arg"]) <= _FIXED for kind in ("user_input", "user_output"))
