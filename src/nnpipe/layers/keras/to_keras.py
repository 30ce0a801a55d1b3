"""The construction of a ``keras.Model`` from a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import one_line
from nnpipe.frameworks.keras import copying_variables, import_keras
from nnpipe.frameworks.keras_functions import register
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import Weights, initial_weights, variables_of, weight_problems
from nnpipe.layers.keras.own_layers import register_own
from nnpipe.layers.keras.to_config import network_config
from nnpipe.layers.problems import raise_if
from nnpipe.layers.torch.to_torch import backend_problems


def to_keras(graph: NetworkGraph, weights: Weights | None = None, *, seed: int = 0) -> Any:
    """Return the Keras model of a graph.

    Parameters
    ----------
    graph
        The network.
    weights
        Its weights; by default its initialisers draw them, equal to those that
        :func:`~nnpipe.layers.torch.to_torch.to_torch` draws for the same seed.
    seed
        Seed of the initialisers.

    Returns
    -------
    keras.Model
        A functional or sequential model, like the graph.

    Raises
    ------
    ConfigError
        If the graph has problems, the weights do not fit, or Keras cannot build it.
    """
    check_call(to_keras, locals())
    variables = variables_of(graph)
    raise_if(backend_problems(graph, "keras"), graph.name or "network")
    weights = initial_weights(graph, seed) if weights is None else weights
    raise_if(weight_problems(variables, weights), graph.name or "network")
    _, keras = import_keras()
    try:
        register()
        register_own()
        model = keras.saving.deserialize_keras_object(network_config(graph), safe_mode=True)
    except Exception as error:  # Keras checks many arguments only when it builds the model
        raise ConfigError(f"{graph.name}: Keras cannot build it: {one_line(error)}") from None
    for name, variable in _variables(model, graph):
        variable.assign(np.asarray(weights[name]))
    return model


def keras_weights(model: Any, graph: NetworkGraph) -> dict[str, np.ndarray]:
    """Return the weights of a model that :func:`to_keras` built from ``graph``."""
    with copying_variables():
        return {name: np.asarray(variable.numpy()) for name, variable in _variables(model, graph)}


def _variables(model: Any, graph: NetworkGraph) -> list[tuple[str, Any]]:
    from nnpipe.layers.graph.shape_inference import infer

    expected, found = infer(graph).variables, []
    for entry in graph.entries:
        layer = entry.layer
        if layer.name not in expected:
            continue
        built = model.get_layer(layer.name) if expected[layer.name] else None
        if isinstance(layer, Submodel) and built is not None:
            found += [(f"{layer.name}/{name}", variable) for name, variable in _variables(built, layer.graph)]
            continue
        mine, its = expected[layer.name], built.weights if built is not None else []
        if [v.shape for v in mine] != [tuple(w.shape) for w in its]:
            raise ConfigError(
                f"{layer.name}: Keras has the weights {[w.path for w in its]}, not {[v.name for v in mine]}"
            )
        found += [(f"{layer.name}/{variable.name}", weight) for variable, weight in zip(mine, its, strict=True)]
    return found
