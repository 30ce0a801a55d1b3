"""Paths of weights in Keras files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nnpipe.core.naming import snake_case
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable
from nnpipe.layers.vocabulary.unknown import Unknown


@dataclass(frozen=True)
class WeightHolder:
    """A layer that may hold weights: its full name, its path in the file, and its weights (``None`` if not known).

    ``top`` is the name of the outermost layer that contains it, or its own name.
    """

    name: str
    top: str
    place: str
    layer: Layer
    variables: tuple[LayerVariable, ...] | None


def held(graph: NetworkGraph, name: str = "", place: str = "", top: str = "") -> Iterator[WeightHolder]:
    """Yield the layers of a graph with their paths in a ``.keras`` file: numbered by class, in order."""
    known = infer(graph).variables
    counts: Counter[str] = Counter()
    for entry in graph.entries:
        layer = entry.layer
        kind = snake_case(_class_of(layer))
        if isinstance(layer, Input) or _is_operation(layer):
            continue
        at = f"{place}layers/{kind}" + (f"_{counts[kind]}" if counts[kind] else "")
        counts[kind] += 1
        if isinstance(layer, Submodel):
            yield from held(layer.graph, f"{name}{layer.name}/", f"{at}/", top or layer.name)
        else:
            yield WeightHolder(f"{name}{layer.name}", top or layer.name, at, layer, known.get(layer.name))


def places(item: WeightHolder) -> dict[str, str]:
    """Return the path of each known weight, by the weight's name."""
    return {v.name: f"{item.place}/{v.place or f'vars/{i}'}" for i, v in enumerate(item.variables or ())}


def _class_of(layer: Layer) -> str:
    if isinstance(layer, Submodel):
        return "Sequential" if layer.graph.sequential else "Functional"
    if isinstance(layer, Unknown):
        return layer.class_name
    return type(layer).__name__ if layer.has_keras_hook() else layer.keras or type(layer).__name__


def _is_operation(layer: Layer) -> bool:
    """Return whether it is an operation on tensors, which Keras does not count as a layer."""
    return isinstance(layer, Unknown) and "keras.src.ops" in str(layer.raw.value.get("module"))
