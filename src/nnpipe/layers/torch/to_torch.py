"""The construction of a ``torch.nn.Module`` from a graph.

The module's inputs and outputs have the axes of the graph, with channels last
where the graph has them last.  Inside, convolutions use the same memory as
PyTorch's channels-last format, so that nothing is copied.  Layers that PyTorch
has are PyTorch's own (``nn.Conv2d``, ``nn.Linear``), so that quantisers and
pruners find them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import MissingDependency
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import (
    Weights,
    find_weight_problems,
    initial_weights,
    list_variables,
)
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.torch.network_module import (
    as_keras,
    as_torch,
    build_network_module,
    iter_named_tensors,
)
from nnpipe.layers.vocabulary.input import Input, Unknown
from nnpipe.layers.vocabulary.layer import LayerVariable


def to_torch(graph: NetworkGraph, weights: Weights | None = None, *, seed: int = 0) -> Any:
    """Return the PyTorch module of a graph.

    Parameters
    ----------
    graph
        The network.
    weights
        Its weights; by default its initialisers draw them.
    seed
        Seed of the initialisers.

    Returns
    -------
    torch.nn.Module
        Called with a tensor for each input, in order, it returns the output, or
        a tuple of several.  ``penalty()`` returns the sum of the penalties for
        the last call, and ``constrain()`` applies the constraints to the weights;
        call it after each step of the optimiser.

    Raises
    ------
    ConfigError
        If the graph has problems, the weights do not fit, or PyTorch cannot
        compute it; the message lists the reasons.
    """
    check_call(to_torch, locals())
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"PyTorch is needed here: pip install 'nnpipe[torch]' ({error})"
        ) from None
    variables = list_variables(graph)
    raise_if(find_backend_problems(graph, "torch"), graph.name or "network")
    weights = initial_weights(graph, seed) if weights is None else weights
    raise_if(find_weight_problems(variables, weights), graph.name or "network")
    module = build_network_module(graph)
    for name, variable, tensor in iter_named_tensors(module):
        _copy_weight(tensor, variable, weights[name])
    return module


def torch_weights(module: Any) -> dict[str, np.ndarray]:
    """Return the weights of a module that :func:`to_torch` built, in Keras's layout."""
    return {
        name: np.array(as_keras(tensor.detach(), variable).cpu().numpy())
        for name, variable, tensor in iter_named_tensors(module)
    }


def find_backend_problems(graph: NetworkGraph, backend: str) -> list[NetworkProblem]:
    """Return a problem for each part of a graph that a backend, ``"torch"`` or ``"keras"``,
    cannot compute.
    """
    found = []
    for entry in graph.entries:
        layer = entry.layer
        limits = [*layer.limits(backend)]
        built = layer.keras or layer.has_keras_hook() or isinstance(layer, Unknown)
        if backend == "keras" and not built:
            limits.append(f"has no layer that computes what {type(layer).__name__} does")
        if backend == "keras" and "/" in layer.name:
            limits.append("a name may not contain '/'")
        found += [NetworkProblem("backend", layer.name, f"{backend}: {limit}") for limit in limits]
        if backend == "torch" and layer.dtype != "float32" and not isinstance(layer, Input):
            found.append(
                NetworkProblem(
                    "backend", layer.name, f"torch: computes in float32, not in {layer.dtype}"
                )
            )
        if isinstance(layer, Submodel):
            found += [
                NetworkProblem(p.code, f"{layer.name}/{p.path}", p.message)
                for p in find_backend_problems(layer.graph, backend)
            ]
    return found


def _copy_weight(tensor: Any, variable: LayerVariable, value: np.ndarray) -> None:
    import torch

    with torch.no_grad():
        tensor.copy_(as_torch(torch.from_numpy(np.array(value, dtype=np.float32)), variable))
