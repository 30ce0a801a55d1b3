"""The reader of the calls of a layer in Keras's two formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.references import LayerEntry, Ref, Use
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.to_config import TENSOR
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.value_kinds import is_integer

_CONSTANT = "_CONSTANT_VALUE"


def read_uses(layer: Layer, raw: Any, path: str, found: list[NetworkProblem]) -> tuple[Use, ...]:
    """Return the calls of a layer; a call that cannot be read has no inputs, and a problem is added to ``found``."""
    if not isinstance(raw, list):
        found.append(NetworkProblem("structure", path, "is not a list of calls"))
        return ()
    uses = []
    for number, node in enumerate(raw):
        refs: list[Ref] = []
        try:
            if isinstance(node, Mapping):
                form = {"args": node.get("args") or [], "kwargs": node.get("kwargs") or {}}
                args, kwargs = (_template(form[key], refs) for key in ("args", "kwargs"))
                if not isinstance(args, list) or not isinstance(kwargs, dict):
                    raise ValueError("its arguments are no list, or those by name no object")
            else:
                args, kwargs = _old_form(node, refs)
        except (ValueError, TypeError, AttributeError) as error:
            found.append(NetworkProblem("structure", f"{path}[{number}]", f"is not a call: {error}"))
            uses.append(Use())
            continue
        if isinstance(node, Mapping) and layer.resting and kwargs.get("training") is False:
            kwargs = {**kwargs, "training": None}  # Keras 3 writes its default like this, and never uses it
        uses.append(_use(layer, args, kwargs, refs))
    return tuple(uses)


def _template(raw: Any, refs: list[Ref]) -> Any:
    """Replace each tensor by ``{"input": i}``, and append its reference to ``refs``."""
    if isinstance(raw, Mapping):
        if raw.get("class_name") == TENSOR:
            config = raw.get("config")
            return _noted(config.get("keras_history") if isinstance(config, Mapping) else None, refs)
        if raw.keys() == {"input"}:
            raise ValueError("an argument called input, alone")
        return {key: _template(value, refs) for key, value in raw.items()}
    return [_template(value, refs) for value in raw] if isinstance(raw, list) else raw


def _noted(place: Any, refs: list[Ref]) -> dict[str, int]:
    if not isinstance(place, list) or len(place) < 3 or not isinstance(place[0], str):
        raise ValueError("a tensor that names no output of a layer")
    if not all(is_integer(part) for part in place[1:3]):
        raise ValueError("a tensor that names no output of a layer")
    refs.append(Ref(*place[:3]))
    return {"input": len(refs) - 1}


def _old_form(node: Any, refs: list[Ref]) -> tuple[list[Any], dict[str, Any]]:
    """Read ``[[name, call, output, arguments], ...]``; a single entry may lack the outer list."""
    if not isinstance(node, list) or not node:
        raise ValueError("neither a list of tensors nor an object")
    if isinstance(node[0], str):
        node = [node]
    given: list[Any] = []
    kwargs: dict[str, Any] = {}
    for item in node:
        if not isinstance(item, list) or not item:
            raise ValueError("an input that is no list")
        if item[0] == _CONSTANT:
            given.append({"constant": item[2:3]})
        else:
            given.append(_noted(item, refs))
        more = item[3] if len(item) > 3 else None
        for key, value in (more if isinstance(more, Mapping) else {}).items():
            kwargs[key] = _old_argument(value, refs)
    return ([given] if len(given) > 1 else given), kwargs


def _old_argument(value: Any, refs: list[Ref]) -> Any:
    if isinstance(value, list) and len(value) in (3, 4) and isinstance(value[0], str) and is_integer(value[1]):
        return _noted(value, refs)
    return [_old_argument(item, refs) for item in value] if isinstance(value, list) else value


def _use(layer: Layer, args: list[Any], kwargs: dict[str, Any], refs: list[Ref]) -> Use:
    """Return a call in the usual form, or in its own if it has unknown arguments."""
    training = kwargs.get("training")
    given = {key: value for key, value in kwargs.items() if value is not None and key != "training"}
    flat: list[Any] = []
    for value in args:
        flat += value if isinstance(value, list) else [value]
    # Tensors given by name follow the positional ones, in the order of the layer's parameters.
    for name in layer.called[len(args) :] if len(layer.called) > 1 else ():
        value = given.pop(name, [])
        flat += value if isinstance(value, list) else [value]
    usual = not given and all(isinstance(value, dict) and value.keys() == {"input"} for value in flat)
    if not usual or not isinstance(training, (bool, type(None))) or len(flat) != len(refs):
        kept = {key: value for key, value in kwargs.items() if value is not None}
        return Use(tuple(refs), None, Raw.of({"args": args, "kwargs": kept}))
    return Use(tuple(refs[value["input"]] for value in flat), training)


def renumbered(graph: NetworkGraph) -> NetworkGraph:
    """Return the graph with the calls of nested networks numbered from 0.

    Keras 2 counts the call that creates such a network, which no file contains,
    so that the first call in the file has the number 1.
    """
    calls: dict[str, set[int]] = {}
    refs = [*graph.outputs, *(ref for entry in graph.entries for use in entry.uses for ref in use.inputs)]
    for ref in refs:
        calls.setdefault(ref.layer, set()).add(ref.call)
    late = {
        entry.layer.name
        for entry in graph.entries
        if isinstance(entry.layer, Submodel) and calls.get(entry.layer.name) == set(range(1, len(entry.uses) + 1))
    }
    if not late:
        return graph

    def moved(inputs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(replace(ref, call=ref.call - 1) if ref.layer in late else ref for ref in inputs)

    entries = tuple(
        LayerEntry(entry.layer, tuple(replace(use, inputs=moved(use.inputs)) for use in entry.uses))
        for entry in graph.entries
    )
    return replace(graph, entries=entries, outputs=moved(graph.outputs))
