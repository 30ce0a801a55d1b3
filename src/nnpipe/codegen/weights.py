"""The writer of weight files in the safetensors format, which does not need that package.

https://github.com/huggingface/safetensors describes the format: eight bytes with
the length of a JSON header, the header, and the content of one tensor after another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import numpy as np

from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import list_variables


def encode_safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of a safetensors file with the arrays as float32; equal arrays give
    equal bytes.
    """
    header, parts, place = {}, [], 0
    for name in sorted(arrays):
        part = np.ascontiguousarray(arrays[name], dtype="<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(arrays[name].shape),
            "data_offsets": [place, place + len(part)],
        }
        parts.append(part)
        place += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of eight
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def build_keras_state(
    graph: NetworkGraph, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return weights by ``layer/number`` in Keras's order, so that a script can set them by
    their positions.
    """
    return {
        "/".join((*path, str(number))): weights[name]
        for name, (path, number) in locate_keras_weights(graph).items()
    }


def locate_keras_weights(graph: NetworkGraph) -> dict[str, tuple[tuple[str, ...], int]]:
    """Return the path of the layer and the index in the layer of each weight, by the weight's
    full name.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    found = {}
    for name in list_variables(graph):
        path = _find_layer_path(graph, name)
        found[name] = path, counts[path]
        counts[path] += 1
    return found


def _find_layer_path(graph: NetworkGraph, name: str) -> tuple[str, ...]:
    title, layer = next((t, layer) for t, layer in graph.layers.items() if name.startswith(f"{t}/"))
    rest = (
        _find_layer_path(layer.graph, name.removeprefix(f"{title}/"))
        if isinstance(layer, Submodel)
        else ()
    )
    return (title, *rest)
