"""Weights beside a script: safetensors, written without the package of that name.

The form is described at https://github.com/huggingface/safetensors: eight bytes
with the length of a JSON header, the header, and the values one after another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from nnpipe.layers.graph import Graph
from nnpipe.layers.inference import infer
from nnpipe.layers.submodels import Submodel


def encoded(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Give the content of a file; the same arrays give the same bytes."""
    header, parts, place = {}, [], 0
    for name in sorted(arrays):
        part = np.ascontiguousarray(arrays[name], dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(arrays[name].shape), "data_offsets": [place, place + len(part)]}
        parts.append(part)
        place += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # values begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def keras_state(graph: Graph, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give weights as ``layer/number``, in Keras's order, which a script can set without knowing their names."""
    found: dict[str, np.ndarray] = {}
    for name, variables in infer(graph).variables.items():
        layer = graph.layers[name]
        if isinstance(layer, Submodel):
            inner = {key.removeprefix(f"{name}/"): v for key, v in weights.items() if key.startswith(f"{name}/")}
            found |= {f"{name}/{key}": value for key, value in keras_state(layer.graph, inner).items()}
        else:
            found |= {f"{name}/{place}": weights[f"{name}/{v.name}"] for place, v in enumerate(variables)}
    return found
