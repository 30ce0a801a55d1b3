"""Inlining of inner graphs in an exported PyTorch program.

``torch.no_grad()`` and ``torch.autocast(enabled=False)`` in a model become higher-order operators, which have a graph
as an argument; Llama's rotary embedding has one.  For inference, the nodes of the inner graph give the same result
without the operator.  The result is one flat graph, so every node can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.formats._pt2_check import MalformedFile

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


def flattened(graph: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a graph in which each operator that calls an inner graph is replaced by the nodes of that graph.

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
        If a graph is called under an enabled ``torch.autocast``, whose casts are not in the graph, or with
        arguments that do not fit its inputs.
    """
    if not any(str(node["target"]).startswith(_PREFIX) for node in graph["nodes"]):
        return dict(graph), {}
    whole = _Whole(graph)
    renamed: dict[str, str] = {}
    whole.add(graph["nodes"], renamed)
    outputs = [with_names(output, renamed) for output in graph["outputs"]]
    return dict(graph) | whole.tables | {"nodes": whole.nodes, "outputs": outputs}, renamed


class _Whole:
    """The flat graph under construction."""

    def __init__(self, graph: Mapping[str, Any]) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.tables = {table: dict(graph.get(table, {})) for table in _TABLES}
        self._taken = {name for table in self.tables.values() for name in table}
        self._taken |= {node["name"] for node in graph["nodes"] if node.get("name")}
        self._renamings = 0

    def add(self, nodes: list[dict[str, Any]], names: dict[str, str]) -> None:
        """Append the nodes of a graph, with inner graphs inlined.

        ``names`` gives the new names of the graph's values; the results of inner graphs are added to it.
        """
        for node in nodes:
            target = str(node["target"])
            operator = target.removeprefix(_PREFIX)
            if target.startswith(_PREFIX) and operator in _GRAPH_AT:
                self._add_graph(operator, node, names)
            else:
                self.nodes.append(_renamed_node(node, names))

    def _add_graph(self, operator: str, node: Mapping[str, Any], names: dict[str, str]) -> None:
        arguments = [entry["arg"] for entry in node["inputs"]]
        if operator == _AUTOCAST and arguments[_AUTOCAST_ENABLED] != {"as_bool": False}:
            raise MalformedFile(
                "computes a part of the model under torch.autocast, whose casts are not in the file; export the model "
                "without autocast"
            )
        at = _GRAPH_AT[operator]
        inner = arguments[at]["as_graph"]["graph"]
        own = _bound(inner["inputs"], [with_names(argument, names) for argument in arguments[at + 1 :]])
        called = [_name_of(each) for entry in node["outputs"] for each in entry.get("as_tensors", [entry])]
        results = list(map(_name_of, inner["outputs"]))
        if len(called) != len(results):
            raise MalformedFile(f"damaged: an inner graph returns {len(results)} values, not {len(called)}")
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
                    own[name] = self._unused(name)
                self.tables[table].setdefault(own[name], value)
        for name in (node["name"] for node in inner["nodes"] if node.get("name")):
            if name not in own:
                own[name] = self._unused(name)

    def _unused(self, name: str) -> str:
        found = name
        while found in self._taken:
            self._renamings += 1
            found = f"{name}_{self._renamings}"
        self._taken.add(found)
        return found


def _bound(inputs: list[Any], given: list[Any]) -> dict[str, str]:
    """Return the names of the values that a graph is called with, by the names of its inputs; without constants."""
    if len(inputs) != len(given):
        raise MalformedFile(f"damaged: an inner graph takes {len(inputs)} values, and is given {len(given)}")
    names = {}
    for taken, value in zip(inputs, given, strict=True):
        if _is_constant(taken):
            continue
        if set(taken) != set(value):
            raise MalformedFile(f"damaged: an inner graph takes {_kind(taken)}, and is given {_kind(value)}")
        names[_name_of(taken)] = _name_of(value)
    return names


def _is_constant(argument: Mapping[str, Any]) -> bool:
    return set(argument) <= {"as_int", "as_float", "as_bool", "as_none", "as_string"}


def _kind(argument: Mapping[str, Any]) -> str:
    return ", ".join(argument)[:80]


def _name_of(argument: Mapping[str, Any]) -> str:
    """Return the name of the only value in an argument."""
    (value,) = argument.values()
    return str(value["name"] if "name" in value else value["as_name"])


def _renamed_node(node: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    inputs = [entry | {"arg": with_names(entry["arg"], names)} for entry in node["inputs"]]
    outputs = [with_names(output, names) for output in node["outputs"]]
    own = {"name": names.get(node["name"], node["name"])} if node.get("name") else {}
    return dict(node) | {"inputs": inputs, "outputs": outputs} | own


def with_names(argument: Any, names: Mapping[str, str]) -> Any:
    """Return an argument, or a part of the signature, with the names of values replaced."""
    if isinstance(argument, Mapping):
        return {
            key: names.get(value, value) if key in _VALUE_NAMES and isinstance(value, str) else with_names(value, names)
            for key, value in argument.items()
        }
    if isinstance(argument, list):
        return [with_names(value, names) for value in argument]
    return argument
