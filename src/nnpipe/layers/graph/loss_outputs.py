"""The outputs of a network that declare a loss, and the network for inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry
from nnpipe.layers.vocabulary.outputs import JudgedOutput


def judged_outputs(graph: NetworkGraph) -> dict[str, JudgedOutput]:
    """Return the outputs of a graph that declare a loss, by name, in order."""
    layers = graph.layers
    ends = dict.fromkeys(ref.layer for ref in graph.outputs)
    return {name: layer for name in ends if isinstance(layer := layers.get(name), JudgedOutput)}


def finished(graph: NetworkGraph) -> NetworkGraph:
    """Return the network for inference: its outputs are results, such as probabilities, under
    the same names.
    """
    check_call(finished, locals())

    def change(entry: LayerEntry) -> LayerEntry:
        layer = entry.layer
        return replace(entry, layer=layer.meaning()) if isinstance(layer, JudgedOutput) else entry

    return replace(graph, entries=tuple(map(change, graph.entries)))


def finish(graph: NetworkGraph, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Turn the outputs of the graph's PyTorch module into the results that :func:`finished`
    describes.
    """
    layers = graph.layers

    def done(name: str, tensor: Any) -> Any:
        layer = layers[name]
        if not isinstance(layer, JudgedOutput):
            return tensor
        return layer.meaning()._torch(tuple(tensor.shape)).call(None, tensor)

    return tuple(
        done(ref.layer, tensor) for ref, tensor in zip(graph.outputs, tensors, strict=True)
    )
