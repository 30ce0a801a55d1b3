"""Names of layers and weights that are the same in every model of a class.

Keras numbers layers without a given name across the whole process: the first
model's ``conv2d`` is the second model's ``conv2d_1``.  Here, such names are
numbered within the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nnpipe.frameworks.keras import automatic_name, is_automatic


def graph_of(operation: Any) -> Any:
    """Return the graph of operations inside a model, or ``None`` for other operations.

    A user's class that overrides ``call`` has no graph, as only its code defines
    its computation.
    """
    import keras

    if not isinstance(operation, keras.Model) or not type(operation).call.__module__.startswith("keras.src.models"):
        return None
    inner = getattr(operation, "_functional", None) if isinstance(operation, keras.Sequential) else operation
    return inner if hasattr(inner, "operations") else None


def layer_paths(model: Any) -> dict[int, str]:
    """Return the stable path of each operation by its ``id``, including operations in nested models.

    An operation shared by several nested models has its path in the first.
    """
    found: dict[int, str] = {}

    def walk(graph: Any, prefix: str) -> None:
        names = _counted(graph.operations)
        for operation in graph.operations:
            path = found.setdefault(id(operation), prefix + names[operation.name])
            if (inner := graph_of(operation)) is not None:
                walk(inner, path + "/")

    walk(graph_of(model), "")
    return found


def named_weights(model: Any) -> dict[str, Any]:
    """Return the weights of a model (Keras variables) by stable name: the layer's path and the name in the layer."""
    paths = layer_paths(model)
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def add(name: str, variable: Any) -> None:
        if id(variable) not in seen:
            seen.add(id(variable))
            found[free_name(name, found)] = variable

    def walk(graph: Any) -> None:
        for operation in graph.operations:
            if (inner := graph_of(operation)) is not None:
                walk(inner)
            for name, variable in _own_weights(operation):
                add(f"{paths[id(operation)]}/{name}", variable)

    walk(graph_of(model))
    for variable in model.weights:  # a user's model class may hold weights outside its layers
        add(variable.name, variable)
    return found


def names_inside(operation: Any) -> dict[str, str]:
    """Return the stable names of the layers that a layer creates inside, by their names in Keras."""
    layers = getattr(operation, "_flatten_layers", None)
    return {} if layers is None else _counted(layers(include_self=False))


def _own_weights(operation: Any) -> Iterable[tuple[str, Any]]:
    """Yield a layer's weights with their names below the layer."""
    weights = getattr(operation, "weights", ())
    if not weights:
        return
    stable = names_inside(operation)
    for variable in weights:
        parts = variable.path.split("/")
        start = parts.index(operation.name) + 1 if operation.name in parts[:-1] else len(parts) - 1
        yield "/".join(stable.get(part, part) for part in parts[start:]), variable


def _counted(operations: Iterable[Any]) -> dict[str, str]:
    """Return new names for these operations: automatic names are numbered from the start, given names stay."""
    automatic: dict[str, str] = {}
    names: dict[str, str] = {}
    for operation in operations:
        if is_automatic(operation):
            automatic[operation.name] = automatic_name(operation)
        else:
            names[operation.name] = operation.name
    taken = dict.fromkeys(names.values())
    for name, stem in automatic.items():
        names[name] = stable = free_name(stem, taken)
        taken[stable] = None
    return names


def free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return ``name``, with a number if it is taken."""
    count = 0
    found = name
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
