"""Changing models the ways that trainings, converters and people do, without making a conversion
of them wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.live_model import LiveModel

# the range that epsilons are drawn from: hardly any is a framework's default
EPSILONS = (1e-6, 3e-2)
OF_SOURCES = ("as it is", "epsilons", "scales of zero")
OF_FILES = ("as it is", "reordered", "renamed", "reordered and renamed")


def mutate_source(model: LiveModel, kind: str, random: np.random.Generator) -> None:
    """Change the normalisations of a network in PyTorch or Keras, as ``kind`` says."""
    for norm in _normalisations(model.native):
        if kind == "epsilons":
            epsilon = float(np.exp(random.uniform(*np.log(EPSILONS))))
            setattr(norm, "eps" if hasattr(norm, "eps") else "epsilon", epsilon)
        elif kind == "scales of zero" and random.random() < 0.5:
            _set_scales(norm, random)


def _normalisations(native: Any) -> list[Any]:
    layers = native.modules() if hasattr(native, "modules") else native._flatten_layers()
    return [layer for layer in layers if "BatchNorm" in type(layer).__name__]


def _set_scales(norm: Any, random: np.random.Generator) -> None:
    """Set the scales of a normalisation to 0: of all channels, as at the end of residual
    branches, or of some.
    """
    if hasattr(norm, "gamma"):
        scales = np.array(norm.gamma.numpy())
        norm.gamma.assign(_zeroed(scales, random))
        return
    import torch

    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(_zeroed(norm.weight.detach().numpy().copy(), random)))


def _zeroed(scales: np.ndarray[Any, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
    part = 1.0 if random.random() < 0.3 else random.uniform(0.1, 0.6)
    scales[random.random(len(scales)) < part] = 0
    return scales


def mutate_onnx(path: Path, target: Path, kind: str, random: np.random.Generator) -> None:
    """Write an ONNX file anew with other names, or with nodes, weights and operands of sums in
    another order.
    """
    import onnx

    model = onnx.load(str(path))
    graph = model.graph
    if "reordered" in kind:
        nodes = _shuffled(list(graph.node), random)
        del graph.node[:]
        graph.node.extend(nodes)
        weights = [graph.initializer[n] for n in random.permutation(len(graph.initializer))]
        copies = [onnx.TensorProto.FromString(weight.SerializeToString()) for weight in weights]
        del graph.initializer[:]
        graph.initializer.extend(copies)
    if "renamed" in kind:
        kept = {value.name for value in (*graph.input, *graph.output)} | {""}
        names: dict[str, str] = {}

        def renamed(name: str) -> str:
            return (
                name if name in kept else names.setdefault(name, f"t{random.integers(1 << 40):x}")
            )

        for node in graph.node:
            node.name = f"n{random.integers(1 << 40):x}"
            for side in (node.input, node.output):
                side[:] = [renamed(name) for name in side]
        for weight in graph.initializer:
            weight.name = renamed(weight.name)
        del graph.value_info[:]
    onnx.save(model, str(target))


def _shuffled(nodes: list[Any], random: np.random.Generator) -> list[Any]:
    """Return nodes in a random order in which each follows those whose results it takes, and
    swap operands of sums.
    """
    import onnx

    makers = {name: number for number, node in enumerate(nodes) for name in node.output}
    waiting = {
        n: {makers[name] for name in node.input if name in makers} for n, node in enumerate(nodes)
    }
    found = []
    while waiting:
        ready = [number for number, before in waiting.items() if not before]
        number = ready[random.integers(len(ready))]
        del waiting[number]
        for before in waiting.values():
            before.discard(number)
        node = onnx.NodeProto.FromString(nodes[number].SerializeToString())
        if node.op_type in ("Add", "Mul") and random.random() < 0.5:
            node.input[:] = node.input[::-1]
        found.append(node)
    return found
