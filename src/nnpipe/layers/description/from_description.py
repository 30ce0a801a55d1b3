"""The reader of graphs in descriptions in YAML or JSON.

::

    name: digits
    layers:
      - {class: Input, shape: [28, 28, 1], name: image}
      - {class: Conv2d, filters: 16, kernel_size: 5, activation: relu}
      - {class: MaxPool2d}
      - {class: Flatten}
      - {class: Dense, units: 10}
      - {class: OutputClassification, target: label, name: digit}

An entry states the class of the layer and its arguments by name; arguments that are left out have
their defaults.  A class of one's own is named by its dotted path, such as ``mine.Swish``, and its
module is imported.  A layer is applied to the layer before it unless ``inputs`` names others:
``features``, ``features[1]`` for its second output, ``features@1`` for its second call.  ``calls``
in place of ``inputs`` lists several calls with the same weights.  By default, the inputs of the
network are all its ``Input`` layers, and its outputs are all tensors that no layer takes; the keys
``inputs`` and ``outputs`` of the network override this.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.messages import format_one_line, suggest_name
from nnpipe.experiment.settings import read_settings
from nnpipe.layers.catalogue import get_layer_class_name, get_layers_by_name, resolve_layer
from nnpipe.layers.graph.graph import NetworkGraph, choose_layer_names
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use, find_argument_problems, infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.from_config import ParsedConfig, read_layer
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.field_table import Raw
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.value_kinds import is_integer
from nnpipe.layers.vocabulary.wrappers import Nested

_REF = re.compile(r"(?P<name>.+?)(?:@(?P<call>\d{1,9}))?(?:\[(?P<output>\d{1,9})\])?", re.DOTALL)


def to_description(graph: NetworkGraph) -> dict[str, Any]:
    """Return a network as an object for JSON or YAML; :func:`from_description` reads it."""
    check_call(to_description, locals())
    found: dict[str, Any] = {"name": graph.name}
    found["layers"] = [
        _write_entry(entry, graph.entries[number - 1].layer.name if number else None)
        for number, entry in enumerate(graph.entries)
    ]
    if graph.inputs != list_input_refs(graph.entries):
        found["inputs"] = [_write_ref(ref) for ref in graph.inputs]
    if graph.outputs != find_unconsumed_outputs(graph.entries):
        found["outputs"] = [_write_ref(ref) for ref in graph.outputs]
    if graph.sequential:
        found["sequential"] = True
    return found


def _write_entry(entry: LayerEntry, before: str | None) -> dict[str, Any]:
    found = _write_layer(entry.layer)
    usual = (
        (Use(),)
        if isinstance(entry.layer, Input)
        else (Use((Ref(before),)),)
        if before is not None
        else None
    )
    if entry.uses == usual:
        return found
    calls = [_write_call(use) for use in entry.uses]
    return found | (calls[0] if len(calls) == 1 else {"calls": calls})


def _write_layer(layer: Layer) -> dict[str, Any]:
    found: dict[str, Any] = {"class": get_layer_class_name(layer)}
    if layer.name:
        found["name"] = layer.name
    if isinstance(layer, Unknown):
        found["raw"] = layer.raw.value
    for item in field_table.table(type(layer)):
        value = getattr(layer, item.name)
        default = item.kind.normal(item.default, layer.rank)
        if value == default and type(value) is type(default):
            continue
        if isinstance(value, NetworkGraph):
            found[item.name] = to_description(value)
        else:
            found[item.name] = (
                _write_layer(value) if isinstance(value, Layer) else item.kind.emit(value)
            )
    return found | ({} if layer.dtype == "float32" else {"dtype": layer.dtype})


def _write_call(use: Use) -> dict[str, Any]:
    found: dict[str, Any] = {"inputs": [_write_ref(ref) for ref in use.inputs]}
    if use.training is not None:
        found["training"] = use.training
    return found | ({} if use.form is None else {"form": use.form.value})


def _write_ref(ref: Ref) -> Any:
    text = (
        ref.layer + (f"@{ref.call}" if ref.call else "") + (f"[{ref.output}]" if ref.output else "")
    )
    # A name may itself look like a reference.
    return text if read_ref(text) == ref else [ref.layer, ref.call, ref.output]


def list_input_refs(entries: Iterable[LayerEntry]) -> tuple[Ref, ...]:
    """Return all inputs, in order."""
    return tuple(Ref(entry.layer.name) for entry in entries if isinstance(entry.layer, Input))


def find_unconsumed_outputs(entries: tuple[LayerEntry, ...]) -> tuple[Ref, ...]:
    """Return the first output of each call whose outputs no layer takes."""
    taken = {(ref.layer, ref.call) for entry in entries for use in entry.uses for ref in use.inputs}
    calls = [(entry.layer.name, number) for entry in entries for number in range(len(entry.uses))]
    return tuple(Ref(*call) for call in calls if call not in taken)


def read_ref(raw: Any) -> Ref | None:
    """Return the reference to a tensor that a value of a description holds; ``None`` if it is
    not a reference.
    """
    if isinstance(raw, str) and (match := _REF.fullmatch(raw)):
        return Ref(match["name"], int(match["call"] or 0), int(match["output"] or 0))
    if (
        isinstance(raw, list)
        and len(raw) == 3
        and isinstance(raw[0], str)
        and all(map(is_integer, raw[1:]))
    ):
        return Ref(*raw)
    return None


_NETWORK = frozenset({"name", "layers", "inputs", "outputs", "sequential"})
_CALL = frozenset({"inputs", "training", "form"})
_LAYER = frozenset({"class", "name", "dtype", "inputs", "calls", "training", "form"})
_DEEPEST = 50


def from_description(raw: Any) -> ParsedConfig:
    """Return the network of a parsed description, and everything that is wrong with it as problems
    with their places.

    Nothing is raised for faults; the graph is ``None`` if the description is not a network.
    """
    found: list[NetworkProblem] = []
    try:
        graph = _read_network(_make_json_compatible(raw), "", found, 0)
    except RecursionError:
        return ParsedConfig(None, (*found, NetworkProblem("structure", "", "is nested too deeply")))
    return ParsedConfig(graph, tuple(found))


def _read_network(
    raw: Any, path: str, found: list[NetworkProblem], depth: int
) -> NetworkGraph | None:
    where = f"{path}." if path else ""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("layers"), list):
        found.append(
            NetworkProblem("structure", path, "is not a network: it has no list of layers")
        )
        return None
    if depth > _DEEPEST:
        found.append(NetworkProblem("structure", path, "networks are nested too deeply"))
        return None
    _check_keys(raw, _NETWORK, path, "a network", found)
    layers = [
        _read_layer(item, f"{where}layers[{n}]", found, depth)
        for n, item in enumerate(raw["layers"])
    ]
    # Layers without a name get the same name as in Python.
    layers = [
        layer if layer.name else layer.alone(name=name)
        for layer, name in zip(layers, choose_layer_names(layers), strict=True)
    ]
    entries = []
    for number, (layer, item) in enumerate(zip(layers, raw["layers"], strict=True)):
        before = (Ref(layers[number - 1].name),) if number else ()
        uses: tuple[Use, ...] = (Use(),)
        if not isinstance(layer, Input):
            uses = _read_uses(
                item if isinstance(item, Mapping) else {}, before, f"{where}layers[{number}]", found
            )
        entries.append(LayerEntry(layer, uses))
    inputs, outputs = list_input_refs(entries), find_unconsumed_outputs(tuple(entries))
    if "inputs" in raw:
        inputs = _read_refs(raw["inputs"], f"{where}inputs", found)
    if "outputs" in raw:
        outputs = _read_refs(raw["outputs"], f"{where}outputs", found)
    name = raw.get("name", "network")
    if not isinstance(name, str):
        found.append(
            NetworkProblem("structure", f"{where}name", f"must be a text, not {name!r}"[:80])
        )
        name = "network"
    graph = NetworkGraph(
        name, tuple(entries), inputs, outputs, sequential=raw.get("sequential") is True
    )
    _check(graph, where, found)
    return graph


def _check(graph: NetworkGraph, where: str, found: list[NetworkProblem]) -> None:
    """Add the problems of the graph, with the places of the layers in the description."""
    told = {problem.path for problem in found}
    places = {
        entry.layer.name: f"{where}layers[{number}]" for number, entry in enumerate(graph.entries)
    }
    for problem in infer(graph).problems:
        name, _, argument = problem.path.partition(".")
        place = places.get(name, f"{where}{problem.path}")
        if (
            problem.code not in ("argument", "unknown-layer", "unknown-object")
            and place not in told
        ):
            found.append(
                NetworkProblem(
                    problem.code, f"{place}.{argument}" if argument else place, problem.message
                )
            )


def _read_layer(raw: Any, path: str, found: list[NetworkProblem], depth: int) -> Layer:
    kind = raw.get("class") if isinstance(raw, Mapping) else None
    if not isinstance(kind, str):
        found.append(
            NetworkProblem(
                "structure",
                path,
                "is not a layer: it does not say which, as in {class: Dense, units: 10}",
            )
        )
        return Unknown((), Raw.from_value({"class_name": "?", "config": {}}))
    name = raw.get("name", "")
    if not isinstance(name, str):
        found.append(
            NetworkProblem("argument", f"{path}.name", f"must be a text, not {name!r}"[:80])
        )
        name = ""
    try:
        cls, why = resolve_layer(kind), ""
    except ComponentNotFound as error:
        cls, why = None, format_one_line(error)
    if cls is Unknown:
        kept = raw.get("raw")
        if not isinstance(kept, dict) or not isinstance(kept.get("config", {}), dict):
            found.append(
                NetworkProblem(
                    "argument",
                    f"{path}.raw",
                    "must hold what Keras wrote: class_name, module, config",
                )
            )
            kept = {"class_name": "?"}
        return Unknown((), Raw.from_value(kept), name=name)
    if cls is None:
        why = why or f"there is no layer {kind[:60]!r}{suggest_name(kind, get_layers_by_name())}"
        found.append(NetworkProblem("unknown-layer", path, why))
        return Unknown(
            (), Raw.from_value({"class_name": kind, "config": _select_arguments(raw)}), name=name
        )
    rows = {item.name: item for item in field_table.table(cls)}
    _check_keys(raw, _LAYER | rows.keys(), path, kind, found)
    values: dict[str, Any] = {"name": name}
    if isinstance(raw.get("dtype", "float32"), str):
        values["dtype"] = raw.get("dtype", "float32")
    else:
        found.append(NetworkProblem("argument", f"{path}.dtype", "must be a text"))
    for key, item in rows.items():
        if key in raw:
            values[key] = _read_value(item, raw[key], f"{path}.{key}", found, depth)
        elif item.default is dataclasses.MISSING:
            found.append(NetworkProblem("argument", f"{path}.{key}", "is missing"))
            values[key] = None
    layer = cls(**values) if cls is Input else cls((), **values)
    told = {problem.path for problem in found}
    inside = isinstance(layer, Submodel) and any(
        place.startswith(f"{path}.graph") for place in told
    )
    if not inside:  # otherwise it was reported with its own place
        found += [
            problem for problem in find_argument_problems(layer, path) if problem.path not in told
        ]
    return layer


def _read_value(
    item: field_table.FieldRow, raw: Any, path: str, found: list[NetworkProblem], depth: int
) -> Any:
    if isinstance(raw, Mapping) and isinstance(raw.get("layers"), list):
        return _read_network(raw, path, found, depth + 1)
    if isinstance(raw, Mapping) and "class" in raw:
        if depth > _DEEPEST:
            found.append(NetworkProblem("structure", path, "layers are nested too deeply"))
            return None
        return _read_layer(raw, path, found, depth + 1)
    if isinstance(item.kind, Nested) and raw is not None:
        return read_layer(raw, path, found)
    return item.kind.parse(raw, path, found)


def _read_uses(
    raw: Mapping[str, Any], before: tuple[Ref, ...], path: str, found: list[NetworkProblem]
) -> tuple[Use, ...]:
    calls = raw.get("calls")
    if calls is None:
        return (_read_use(raw, before, path, found),)
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        found.append(
            NetworkProblem(
                "structure",
                f"{path}.calls",
                "is not a list of calls, as in [{inputs: [a]}, {inputs: [b]}]",
            )
        )
        return ()
    for key in ("inputs", "training", "form"):
        if key in raw:
            found.append(
                NetworkProblem(
                    "structure", f"{path}.{key}", "stands beside calls; put it into one of them"
                )
            )
    for number, call in enumerate(calls):
        _check_keys(call, _CALL, f"{path}.calls[{number}]", "a call", found)
    return tuple(
        _read_use(call, before, f"{path}.calls[{number}]", found)
        for number, call in enumerate(calls)
    )


def _read_use(
    raw: Mapping[str, Any], before: tuple[Ref, ...], path: str, found: list[NetworkProblem]
) -> Use:
    training, form = raw.get("training"), raw.get("form")
    if not isinstance(training, (bool, type(None))):
        found.append(
            NetworkProblem(
                "argument", f"{path}.training", f"must be true or false, not {training!r}"[:80]
            )
        )
        training = None
    refs = _read_refs(raw["inputs"], f"{path}.inputs", found) if "inputs" in raw else before
    return Use(refs, training, None if form is None else Raw.from_value(form))


def _read_refs(raw: Any, path: str, found: list[NetworkProblem]) -> tuple[Ref, ...]:
    items = raw if isinstance(raw, list) and not read_ref(raw) else [raw]
    refs = [read_ref(item) for item in items]
    for number, (item, ref) in enumerate(zip(items, refs, strict=True)):
        if ref is None:
            message = (
                f"names no tensor: {str(item)[:60]!r}; write a layer's name, name[1] or name@1"
            )
            found.append(NetworkProblem("structure", f"{path}[{number}]", message))
    return tuple(ref for ref in refs if ref is not None)


def _check_keys(
    raw: Mapping[str, Any], known: frozenset[str], path: str, what: str, found: list[NetworkProblem]
) -> None:
    for key in raw:
        if key not in known:
            place = f"{path}.{key[:60]}" if path else key[:60]
            found.append(
                NetworkProblem(
                    "unknown-argument",
                    place,
                    f"{what} has no such argument{suggest_name(key, known)}",
                )
            )


def _select_arguments(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in _LAYER}


def _make_json_compatible(value: Any) -> Any:
    """Return a value as JSON can hold it; values given in Python or YAML may contain dates and
    the like.
    """
    if isinstance(value, Mapping):
        return {str(key): _make_json_compatible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_json_compatible(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def read_description(path: str | Path) -> NetworkGraph:
    """Return the network that a YAML or JSON file describes.

    Raises
    ------
    ConfigError
        If there is no such file, or it has problems; the message lists them.
    """
    parsed = from_description(read_settings(Path(path)))
    raise_if(parsed.problems, str(path))
    assert parsed.graph is not None  # otherwise there would be a problem
    return parsed.graph
