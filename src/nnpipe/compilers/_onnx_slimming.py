"""ONNX files without what no runtime needs: long names, texts, inner shapes, and constants that are there twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def slim(model: Any) -> None:
    """Shorten an ``onnx.ModelProto`` in place; names of its inputs and outputs are kept.

    Models with graphs inside nodes keep all names.
    """
    graph = model.graph
    for message in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        message.ClearField("doc_string")
    del graph.value_info[:]
    del model.metadata_props[:]
    used = {node.domain if node.domain != "ai.onnx" else "" for node in graph.node} | {""}
    kept = [each for each in model.opset_import if each.domain in used or each.domain == "ai.onnx"]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return
    _merge_constants(graph)
    _shorten_names(graph)


def _merge_constants(graph: Any) -> None:
    """Keep one of each set of equal constants."""
    first: dict[bytes, str] = {}
    instead: dict[str, str] = {}
    given = {value.name for value in (*graph.input, *graph.output)}
    kept = []
    for constant in graph.initializer:
        name = constant.name
        constant.name = ""
        content = constant.SerializeToString(deterministic=True)
        constant.name = name
        if name in given or first.setdefault(content, name) == name:
            kept.append(constant)
        else:
            instead[name] = first[content]
    if not instead:
        return
    copies = [type(each).FromString(each.SerializeToString()) for each in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
    for node in graph.node:
        node.input[:] = [instead.get(name, name) for name in node.input]


def _shorten_names(graph: Any) -> None:
    """Name nodes after their results, and give every tensor inside the shortest name that is left."""
    taken = {value.name for value in (*graph.input, *graph.output)} | {""}
    fresh = (name for name in _names() if name not in taken)
    short: dict[str, str] = {name: name for name in taken}
    for node in graph.node:
        node.ClearField("name")
        for side in (node.input, node.output):
            side[:] = [short[name] if name in short else short.setdefault(name, next(fresh)) for name in side]
    for constant in graph.initializer:
        constant.name = short[constant.name] if constant.name in short else short.setdefault(constant.name, next(fresh))
    graph.name = "g"


def _names() -> Iterator[str]:
    for length in itertools.count(1):
        yield from map("".join, itertools.product(_DIGITS, repeat=length))
