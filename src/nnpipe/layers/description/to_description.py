"""The writer of graphs as descriptions; see :mod:`nnpipe.layers.description.from_description` for the format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.layers.catalogue import name_of
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.references import LayerEntry, Ref, Use
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.unknown import Unknown
from nnpipe.layers.vocabulary.value_kinds import is_integer

_REF = re.compile(r"(?P<name>.+?)(?:@(?P<call>\d{1,9}))?(?:\[(?P<output>\d{1,9})\])?", re.DOTALL)


def to_description(graph: NetworkGraph) -> dict[str, Any]:
    """Return a network as an object for JSON or YAML; :func:`from_description` reads it."""
    check_call(to_description, locals())
    found: dict[str, Any] = {"name": graph.name}
    found["layers"] = [
        _entry(entry, graph.entries[number - 1].layer.name if number else None)
        for number, entry in enumerate(graph.entries)
    ]
    if graph.inputs != all_inputs(graph.entries):
        found["inputs"] = [_ref(ref) for ref in graph.inputs]
    if graph.outputs != ends(graph.entries):
        found["outputs"] = [_ref(ref) for ref in graph.outputs]
    if graph.sequential:
        found["sequential"] = True
    return found


def _entry(entry: LayerEntry, before: str | None) -> dict[str, Any]:
    found = _layer(entry.layer)
    usual = (Use(),) if isinstance(entry.layer, Input) else (Use((Ref(before),)),) if before is not None else None
    if entry.uses == usual:
        return found
    calls = [_call(use) for use in entry.uses]
    return found | (calls[0] if len(calls) == 1 else {"calls": calls})


def _layer(layer: Layer) -> dict[str, Any]:
    found: dict[str, Any] = {"class": name_of(layer)}
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
            found[item.name] = _layer(value) if isinstance(value, Layer) else item.kind.emit(value)
    return found | ({} if layer.dtype == "float32" else {"dtype": layer.dtype})


def _call(use: Use) -> dict[str, Any]:
    found: dict[str, Any] = {"inputs": [_ref(ref) for ref in use.inputs]}
    if use.training is not None:
        found["training"] = use.training
    return found | ({} if use.form is None else {"form": use.form.value})


def _ref(ref: Ref) -> Any:
    text = ref.layer + (f"@{ref.call}" if ref.call else "") + (f"[{ref.output}]" if ref.output else "")
    # A name may itself look like a reference.
    return text if read_ref(text) == ref else [ref.layer, ref.call, ref.output]


def all_inputs(entries: Iterable[LayerEntry]) -> tuple[Ref, ...]:
    """Return all inputs, in order."""
    return tuple(Ref(entry.layer.name) for entry in entries if isinstance(entry.layer, Input))


def ends(entries: tuple[LayerEntry, ...]) -> tuple[Ref, ...]:
    """Return the first output of each call whose outputs no layer takes."""
    taken = {(ref.layer, ref.call) for entry in entries for use in entry.uses for ref in use.inputs}
    calls = [(entry.layer.name, number) for entry in entries for number in range(len(entry.uses))]
    return tuple(Ref(*call) for call in calls if call not in taken)


def read_ref(raw: Any) -> Ref | None:
    """Return the reference to a tensor that a value of a description holds; ``None`` if it is not a reference."""
    if isinstance(raw, str) and (match := _REF.fullmatch(raw)):
        return Ref(match["name"], int(match["call"] or 0), int(match["output"] or 0))
    if isinstance(raw, list) and len(raw) == 3 and isinstance(raw[0], str) and all(map(is_integer, raw[1:])):
        return Ref(*raw)
    return None
