"""The outputs of a network that declare a loss, and the network for inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import LayerEntry
from nnpipe.layers.vocabulary.outputs import LossOutput


def find_loss_outputs(graph: NetworkGraph) -> dict[str, LossOutput]:
    """Return the outputs of a graph that declare a loss, by name, in order."""
    layers = graph.layers
    ends = dict.fromkeys(ref.layer for ref in graph.outputs)
    return {name: layer for name in ends if isinstance(layer := layers.get(name), LossOutput)}


def to_inference(graph: NetworkGraph) -> NetworkGraph:
    """Return the network for inference: its outputs are results, such as probabilities, under
    the same names.
    """
    check_call(to_inference, locals())

    def replace_layer(entry: LayerEntry) -> LayerEntry:
        layer = entry.layer
        return (
            replace(entry, layer=layer.make_result_layer())
            if isinstance(layer, LossOutput)
            else entry
        )

    return replace(graph, entries=tuple(map(replace_layer, graph.entries)))


def finish(graph: NetworkGraph, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Turn the outputs of the graph's PyTorch module into the results that :func:`to_inference`
    describes.
    """
    layers = graph.layers

    def apply_result_layer(name: str, tensor: Any) -> Any:
        layer = layers[name]
        if not isinstance(layer, LossOutput):
            return tensor
        return layer.make_result_layer()._build_torch(tuple(tensor.shape)).call(None, tensor)

    return tuple(
        apply_result_layer(ref.layer, tensor)
        for ref, tensor in zip(graph.outputs, tensors, strict=True)
    )
