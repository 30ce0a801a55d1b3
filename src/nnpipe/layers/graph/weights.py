"""The weights of a graph: their names and shapes, their initial values, and checks of given
weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.vocabulary.initialisers import Initialiser
from nnpipe.layers.vocabulary.layer import LayerVariable

Weights: TypeAlias = "Mapping[str, np.ndarray]"
"""Arrays by ``layer/weight``, or ``submodel/layer/weight`` for a network inside a network, in
Keras's layout.
"""


def list_variables(graph: NetworkGraph) -> dict[str, LayerVariable]:
    """Return every weight of a graph by its full name, in order.

    Raises
    ------
    ConfigError
        If the graph has problems; the message lists them.
    """
    found = infer(graph)
    raise_if(found.problems, graph.name or "network")
    return {
        f"{entry.layer.name}/{variable.name}": variable
        for entry in graph.entries
        for variable in found.variables.get(entry.layer.name, ())
    }


def initial_weights(graph: NetworkGraph, seed: int = 0) -> dict[str, np.ndarray]:
    """Return initial weights drawn by the layers' initialisers, float32.

    Each weight has its own stream of random numbers, derived from its name, so
    that adding a layer does not change the initial weights of others.

    Raises
    ------
    ConfigError
        If the graph has problems, or an initialiser cannot fill its weight.
    """
    check_call(initial_weights, locals())
    problems, weights = [], {}
    for name, variable in list_variables(graph).items():
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        try:
            assert isinstance(variable.initialiser, Initialiser)
            weights[name] = variable.initialiser.draw(variable.shape, random)
        except (ValueError, TypeError) as error:
            kind = type(variable.initialiser).__name__
            problems.append(
                NetworkProblem(
                    "argument", name, f"{kind} cannot fill the shape {variable.shape}: {error}"
                )
            )
    raise_if(problems, graph.name or "network")
    return weights


def find_weight_problems(
    variables: Mapping[str, LayerVariable], weights: Weights
) -> list[NetworkProblem]:
    """Return a problem for each weight that is missing, unexpected, or of another shape."""
    found = []
    for name, variable in variables.items():
        if name not in weights:
            found.append(NetworkProblem("weights", name, "is missing"))
        elif tuple(weights[name].shape) != variable.shape:
            found.append(
                NetworkProblem(
                    "weights",
                    name,
                    f"has the shape {tuple(weights[name].shape)}, not {variable.shape}",
                )
            )
    return found + [
        NetworkProblem("weights", name, "is not in the network")
        for name in weights
        if name not in variables
    ]
