"""The signature of an exported PyTorch program, reduced to tensors in tuples, lists and dicts.

Programs from outside also take and return fixed numbers, ``None`` for arguments that were left out,
and dataclasses such as the outputs of Hugging Face models.  The fixed numbers are already part of
the graph, and a dataclass holds named values like a dict.  So the fixed values are removed and
dataclasses become dicts, and no foreign class has to be imported to load the program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats._pt2_archive import MalformedFile

_TUPLE, _LIST, _DICT = "builtins.tuple", "builtins.list", "builtins.dict"
_CONTAINERS = frozenset({_TUPLE, _LIST, _DICT})
_REFUSED = frozenset({"collections.defaultdict"})  # its structure names a function to import
_NAMED_TUPLE = "collections.namedtuple"
_FIXED = frozenset({"as_none", "as_int", "as_float", "as_bool", "as_string"})

Tree = dict[str, Any]
"""A ``TreeSpec`` of ``torch/utils/_pytree.py`` as JSON: ``type``, ``context``,
``children_spec``.
"""


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
        If the structure is of another version, is damaged, or holds a container whose parts have no
        names.
    """
    version, root = parse_json(text)
    if version != 1:
        raise MalformedFile(f"structures of version {version} are unknown")
    return _to_plain_tree(root, fields)


def _to_plain_tree(spec: Mapping[str, Any], fields: Mapping[str, Any]) -> Tree:
    kind, context = spec["type"], spec["context"]
    if kind is None:
        return {"type": None, "context": None, "children_spec": []}
    children = [_to_plain_tree(child, fields) for child in spec["children_spec"]]
    if kind in (_TUPLE, _LIST):
        if context is not None and parse_json(context) is not None:
            raise MalformedFile(f"the structure of a {kind} is damaged")
        return {"type": kind, "context": "null", "children_spec": children}
    names = _get_part_names(kind, context, fields) if kind not in _REFUSED else None
    if names is None or not all(isinstance(name, str) for name in names):
        if kind == _DICT:
            raise MalformedFile("takes or returns a dict whose keys are not strings")
        raise MalformedFile(f"takes or returns a {str(kind)[:80]!r}, not only tensors with names")
    if len(set(names)) != len(names) or len(names) != len(children):
        raise MalformedFile(f"the structure of a {str(kind)[:80]} is damaged")
    return {"type": _DICT, "context": json.dumps(names), "children_spec": children}


def _get_part_names(kind: str, context: Any, fields: Mapping[str, Any]) -> list[Any] | None:
    """Return the names of the parts of a dict, named tuple or dataclass; ``None`` if the
    container has no names.
    """
    found = parse_json(context) if isinstance(context, str) else None
    if kind == _NAMED_TUPLE:
        found = fields[found]["field_names"] if isinstance(found, str) else None
    if (
        isinstance(found, list)
        and len(found) == 2
        and all(isinstance(part, list) for part in found)
    ):
        found = found[0]  # a dataclass: its fields with values, then those that are None
    return found if isinstance(found, list) else None


def iterate_leaf_names(spec: Tree, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf, such as ``"boxes.0"``, from the outermost dict on; ``""`` for
    a leaf in no dict.
    """
    if spec["type"] is None:
        yield path
        return
    children = spec["children_spec"]
    if spec["type"] == _DICT:
        keys = [f"{path}.{key}" if path else key for key in parse_json(spec["context"])]
    else:
        keys = [f"{path}.{index}" if path else "" for index in range(len(children))]
    for key, child in zip(keys, children, strict=True):
        yield from iterate_leaf_names(child, key)


def _remove_leaves(spec: Tree, kept: Iterator[bool]) -> Tree | None:
    """Return a structure without the leaves for which ``kept`` yields false; ``None`` if it is
    such a leaf itself.
    """
    if spec["type"] is None:
        return spec if next(kept) else None
    children = [_remove_leaves(child, kept) for child in spec["children_spec"]]
    context = spec["context"]
    if spec["type"] == _DICT:
        names = parse_json(context)
        context = json.dumps(
            [name for name, child in zip(names, children, strict=True) if child is not None]
        )
    return spec | {
        "context": context,
        "children_spec": [child for child in children if child is not None],
    }


def serialize_tree(tree: Tree) -> str:
    """Return a structure as PyTorch writes it."""
    return json.dumps([1, tree])


def is_given(spec: Mapping[str, Any]) -> bool:
    """Return whether an input or output of the graph belongs to the arguments or results of the
    program.
    """
    return any(kind in spec for kind in ("user_input", "user_output", "constant_input"))


def get_argument(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the argument in the specification of an input or output; ``None`` if it is a fixed
    value.
    """
    if _is_fixed(spec):
        return None
    (value,) = spec.values()
    found: Mapping[str, Any] = value["arg"]
    return found


def remove_fixed(
    specs: Sequence[Any], values: Sequence[Any], tree: Tree
) -> tuple[list[Any], list[Any], Tree]:
    """Return the specifications, values and structure of a graph's inputs or outputs without the
    fixed values.

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
        raise MalformedFile(
            f"damaged: {len(values)} values in its graph and {len(specs)} in its signature"
        )
    kept = [not _is_fixed(spec) for spec in specs]
    given = iter([keep for spec, keep in zip(specs, kept, strict=True) if is_given(spec)])
    pruned = _remove_leaves(tree, given) or {"type": _TUPLE, "context": "null", "children_spec": []}
    return list(compress(specs, kept)), list(compress(values, kept)), pruned


def _is_fixed(spec: Mapping[str, Any]) -> bool:
    if "constant_input" in spec:
        return True
    return any(
        kind in spec and set(spec[kind]["arg"]) <= _FIXED for kind in ("user_input", "user_output")
    )


# ScalarType in torch/_export/serde/schema.py, with the bytes of one element.
DTYPES = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    12: ("bool", 1),
    13: ("bfloat16", 2),
    28: ("uint16", 2),
    34: ("uint32", 4),
    35: ("uint64", 8),
}
# Those that tensors of numpy and of the other frameworks do not have, or not with the same meaning.
_COMPLEX = {9: "complex32", 10: "complex64", 11: "complex128"}
_FLOAT8 = {
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
}


def build_tensor_specs(
    what: str, specs: Sequence[Any], tree: Tree, values: Mapping[str, Any]
) -> tuple[TensorSpec, ...]:
    """Return the specifications of the program's inputs or outputs; fixed values are left out."""
    arguments = [get_argument(spec) for spec in specs if is_given(spec)]
    names = list(iterate_leaf_names(tree))
    if len(names) != len(arguments):
        raise MalformedFile(
            f"{what} {len(arguments)} values in its graph and {len(names)} in its signature"
        )
    found = [
        (name, argument)
        for name, argument in zip(names, arguments, strict=True)
        if argument is not None
    ]
    if any("as_tensor" not in argument for _, argument in found):
        raise MalformedFile(f"{what} something that is no tensor")
    names = [name for name, _ in found]
    nodes = [argument["as_tensor"]["name"] for _, argument in found]
    if "" in names or len(set(names)) != len(names):
        names = [
            name if name and names.count(name) == 1 else node
            for name, node in zip(names, nodes, strict=True)
        ]
    return tuple(_build_spec(name, values[node]) for name, node in zip(names, nodes, strict=True))


def _build_spec(name: str, meta: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(size.get("as_int") for size in meta["sizes"])
    return TensorSpec(name, shape, get_element_type(name, meta)[0])


def get_element_type(name: str, meta: Mapping[str, Any]) -> tuple[str, int]:
    """Return the element type of a weight, an input or an output, and the bytes of one element."""
    number = meta["dtype"]
    if number in _COMPLEX:
        raise MalformedFile(
            f"{name!r} holds complex numbers ({_COMPLEX[number]}), which are not supported here: "
            f"export the model with "
            "torch.view_as_real of it, and make it complex inside with torch.view_as_complex"
        )
    if number in _FLOAT8:
        raise MalformedFile(
            f"{name!r} is {_FLOAT8[number]}, which is not supported here: export it as float32"
        )
    return DTYPES[number]


# Inlining of inner graphs in an exported PyTorch program.
#
# ``torch.no_grad()`` and ``torch.autocast(enabled=False)`` in a model become higher-order
# operators, which have a graph as an argument; Llama's rotary embedding has one.  For inference,
# the nodes of the inner graph give the same result without the operator.  The result is one flat
# graph, so every node can be checked.

_PREFIX = "torch.ops.higher_order."
# The position of the graph among the operator's arguments; the arguments of the graph follow it.
_GRAPH_AT = {
    "wrap_with_set_grad_enabled": 1,
    "wrap_with_autocast": 4,
    "strict_mode": 0,
    "tag_activation_checkpoint": 0,
    "wrap": 0,
}
_AUTOCAST, _AUTOCAST_ENABLED = "wrap_with_autocast", 2
_TABLES = ("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values")
_VALUE_NAMES = ("name", "as_name")


def inline_graphs(graph: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a graph in which each operator that calls an inner graph is replaced by the nodes of
    that graph.

    Parameters
    ----------
    graph
        A ``Graph`` of ``torch/_export/serde/schema.py``, as JSON.

    Returns
    -------
    tuple
        The flat graph, and the new names of renamed values by their old names.

    Raises
    ------
    MalformedFile
        If a graph is called under an enabled ``torch.autocast``, whose casts are not in the graph,
        or with arguments that do not fit its inputs.
    """
    if not any(str(node["target"]).startswith(_PREFIX) for node in graph["nodes"]):
        return dict(graph), {}
    whole = _FlatGraph(graph)
    renamed: dict[str, str] = {}
    whole.add(graph["nodes"], renamed)
    outputs = [with_names(output, renamed) for output in graph["outputs"]]
    return dict(graph) | whole.tables | {"nodes": whole.nodes, "outputs": outputs}, renamed


class _FlatGraph:
    """The flat graph under construction."""

    def __init__(self, graph: Mapping[str, Any]) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.tables = {table: dict(graph.get(table, {})) for table in _TABLES}
        self._taken = {name for table in self.tables.values() for name in table}
        self._taken |= {node["name"] for node in graph["nodes"] if node.get("name")}
        self._renamings = 0

    def add(self, nodes: list[dict[str, Any]], names: dict[str, str]) -> None:
        """Append the nodes of a graph, with inner graphs inlined.

        ``names`` gives the new names of the graph's values; the results of inner graphs are added
        to it.
        """
        for node in nodes:
            target = str(node["target"])
            operator = target.removeprefix(_PREFIX)
            if target.startswith(_PREFIX) and operator in _GRAPH_AT:
                self._add_graph(operator, node, names)
            else:
                self.nodes.append(_rename_node(node, names))

    def _add_graph(self, operator: str, node: Mapping[str, Any], names: dict[str, str]) -> None:
        arguments = [entry["arg"] for entry in node["inputs"]]
        if operator == _AUTOCAST and arguments[_AUTOCAST_ENABLED] != {"as_bool": False}:
            raise MalformedFile(
                "computes a part of the model under torch.autocast, whose casts are not in the "
                "file; export the model without autocast"
            )
        at = _GRAPH_AT[operator]
        inner = arguments[at]["as_graph"]["graph"]
        own = _match_arguments(
            inner["inputs"], [with_names(argument, names) for argument in arguments[at + 1 :]]
        )
        called = [
            _get_name(each)
            for entry in node["outputs"]
            for each in entry.get("as_tensors", [entry])
        ]
        results = list(map(_get_name, inner["outputs"]))
        if len(called) != len(results):
            raise MalformedFile(
                f"damaged: an inner graph returns {len(results)} values, not {len(called)}"
            )
        for outer, result in zip(called, results, strict=True):
            own.setdefault(result, names.get(outer, outer))
        self._add_values(inner, own)
        self.add(inner["nodes"], own)
        names.update((outer, own[result]) for outer, result in zip(called, results, strict=True))

    def _add_values(self, inner: Mapping[str, Any], own: dict[str, str]) -> None:
        """Add the descriptions of an inner graph's values to the flat graph.

        Values that ``own`` does not name yet get a name that is unused in the flat graph.
        """
        for table in _TABLES:
            for name, value in inner.get(table, {}).items():
                if name not in own:
                    own[name] = self._reserve_name(name)
                self.tables[table].setdefault(own[name], value)
        for name in (node["name"] for node in inner["nodes"] if node.get("name")):
            if name not in own:
                own[name] = self._reserve_name(name)

    def _reserve_name(self, name: str) -> str:
        found = name
        while found in self._taken:
            self._renamings += 1
            found = f"{name}_{self._renamings}"
        self._taken.add(found)
        return found


def _match_arguments(inputs: list[Any], given: list[Any]) -> dict[str, str]:
    """Return the names of the values that a graph is called with, by the names of its inputs;
    without constants.
    """
    if len(inputs) != len(given):
        raise MalformedFile(
            f"damaged: an inner graph takes {len(inputs)} values, and is given {len(given)}"
        )
    names = {}
    for taken, value in zip(inputs, given, strict=True):
        if _is_constant(taken):
            continue
        if set(taken) != set(value):
            raise MalformedFile(
                f"damaged: an inner graph takes {_format_kind(taken)}, and is given "
                f"{_format_kind(value)}"
            )
        names[_get_name(taken)] = _get_name(value)
    return names


def _is_constant(argument: Mapping[str, Any]) -> bool:
    return set(argument) <= {"as_int", "as_float", "as_bool", "as_none", "as_string"}


def _format_kind(argument: Mapping[str, Any]) -> str:
    return ", ".join(argument)[:80]


def _get_name(argument: Mapping[str, Any]) -> str:
    """Return the name of the only value in an argument."""
    (value,) = argument.values()
    return str(value["name"] if "name" in value else value["as_name"])


def _rename_node(node: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    inputs = [entry | {"arg": with_names(entry["arg"], names)} for entry in node["inputs"]]
    outputs = [with_names(output, names) for output in node["outputs"]]
    own = {"name": names.get(node["name"], node["name"])} if node.get("name") else {}
    return dict(node) | {"inputs": inputs, "outputs": outputs} | own


def with_names(argument: Any, names: Mapping[str, str]) -> Any:
    """Return an argument, or a part of the signature, with the names of values replaced."""
    if isinstance(argument, Mapping):
        return {
            key: names.get(value, value)
            if key in _VALUE_NAMES and isinstance(value, str)
            else with_names(value, names)
            for key, value in argument.items()
        }
    if isinstance(argument, list):
        return [with_names(value, names) for value in argument]
    return argument
