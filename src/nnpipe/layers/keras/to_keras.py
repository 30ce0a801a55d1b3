"""The construction of a ``keras.Model`` from a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_one_line
from nnpipe.frameworks.keras import import_keras, suppress_copy_warning
from nnpipe.frameworks.keras_files import register
from nnpipe.layers.catalogue import list_layer_classes
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import (
    Weights,
    find_weight_problems,
    initial_weights,
    list_variables,
)
from nnpipe.layers.keras.from_config import read_layer
from nnpipe.layers.keras.to_config import (
    OWN_PACKAGE,
    arguments_config,
    network_config,
    own_layer_config,
)
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.torch.to_torch import find_backend_problems
from nnpipe.layers.vocabulary.field_table import write_object
from nnpipe.layers.vocabulary.layer import Layer, Shape

# Layers that Keras lacks, computed there by their hook ``_build_keras``.
#
# Each has a class in Keras, which creates the weights that the layer declares and calls the
# function of the hook.  In files it is named ``nnpipe>`` with the dotted path of the layer; a file
# with such a name is only read if the class is known, and nothing is imported for it.


@dataclass(frozen=True)
class KerasState:
    """What the function of a layer gets beside its inputs.

    Attributes
    ----------
    core
        The weights, by the names that the layer declares.
    training
        Whether the network is in training.
    """

    core: Mapping[str, Any]
    training: bool


def keras_layer(layer: Layer) -> Any:
    """Return the ``keras.layers.Layer`` of a layer with the hook ``_build_keras``; Keras builds it
    on its first call.
    """
    return _make_keras_class(type(layer))(layer)  # type: ignore[arg-type]  # a class has a hash


def register_own() -> None:
    """Register in Keras all known layers with the hook, so that this process can load models
    that use them.
    """
    for cls in list_layer_classes():
        if cls.has_keras_hook():
            _make_keras_class(cls)  # type: ignore[arg-type]  # as above


@cache
def _make_keras_class(cls: type[Layer]) -> Any:
    import keras

    class Own(keras.layers.Layer):  # type: ignore[misc, unused-ignore]  # Keras may not be installed for type checking
        def __init__(self, layer: Layer) -> None:
            regulariser = getattr(layer, "activity_regularizer", None)
            penalty = (
                {}
                if regulariser is None
                else {"activity_regularizer": _write_value("regularizers", regulariser)}
            )
            super().__init__(
                name=layer.name or None, trainable=layer.trainable, dtype=layer.dtype, **penalty
            )
            self.declared = layer

        @classmethod
        def from_config(cls, config: Mapping[str, Any]) -> Any:
            found: list[NetworkProblem] = []
            layer = read_layer(own_layer_config(cls.layer_class, config), "", found)
            raise_if(found, cls.layer_class.__name__)
            return cls(layer)

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), **arguments_config(self.declared)}

        def build(self, input_shape: Any) -> None:
            shapes = _read_shapes(input_shape)
            variables = self.declared.variables(*shapes)
            if [v.trainable for v in variables] != sorted(
                (v.trainable for v in variables), reverse=True
            ):
                raise ConfigError(
                    f"{type(self.declared).__name__} must declare the weights that are trained "
                    f"first"
                )
            core = {
                variable.name: self.add_weight(
                    name=variable.name,
                    shape=variable.shape,
                    trainable=variable.trainable,
                    initializer=_write_value("initializers", variable.initialiser),
                    regularizer=_write_value("regularizers", variable.regulariser),
                    constraint=_write_value("constraints", variable.constraint),
                )
                for variable in variables
            }
            # Keras would wrap a dictionary among its attributes, and store what is in it once more.
            self.resting, self.learning = KerasState(core, False), KerasState(core, True)
            self.parts = self.declared._build_keras(*shapes)
            self.built = True

        def call(self, inputs: Any, training: Any = None) -> Any:
            given = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
            return self.parts.call(self.learning if training else self.resting, *given)

    Own.layer_class = cls
    Own.__name__, Own.__qualname__, Own.__doc__ = cls.__name__, cls.__qualname__, cls.__doc__
    return keras.saving.register_keras_serializable(
        package=OWN_PACKAGE, name=cls.get_dotted_path()
    )(Own)


def _write_value(family: str, value: Any) -> Any:
    return None if value is None else write_object(f"keras.{family}", value)


def _read_shapes(given: Any) -> tuple[Shape, ...]:
    """Return the shapes of the inputs: of the only one, or of several."""
    return (
        tuple(map(tuple, given))
        if given and isinstance(given[0], (list, tuple))
        else (tuple(given),)
    )


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
    variables = list_variables(graph)
    raise_if(find_backend_problems(graph, "keras"), graph.name or "network")
    weights = initial_weights(graph, seed) if weights is None else weights
    raise_if(find_weight_problems(variables, weights), graph.name or "network")
    _, keras = import_keras()
    try:
        register()
        register_own()
        model = keras.saving.deserialize_keras_object(network_config(graph), safe_mode=True)
    except Exception as error:  # Keras checks many arguments only when it builds the model
        raise ConfigError(
            f"{graph.name}: Keras cannot build it: {format_one_line(error)}"
        ) from None
    for name, variable in _list_variables(model, graph):
        variable.assign(np.asarray(weights[name]))
    return model


def keras_weights(model: Any, graph: NetworkGraph) -> dict[str, np.ndarray]:
    """Return the weights of a model that :func:`to_keras` built from ``graph``."""
    with suppress_copy_warning():
        return {
            name: np.asarray(variable.numpy()) for name, variable in _list_variables(model, graph)
        }


def _list_variables(model: Any, graph: NetworkGraph) -> list[tuple[str, Any]]:
    from nnpipe.layers.graph.shape_inference import infer

    expected, found = infer(graph).variables, []
    for entry in graph.entries:
        layer = entry.layer
        if layer.name not in expected:
            continue
        built = model.get_layer(layer.name) if expected[layer.name] else None
        if isinstance(layer, Submodel) and built is not None:
            found += [
                (f"{layer.name}/{name}", variable)
                for name, variable in _list_variables(built, layer.graph)
            ]
            continue
        mine, its = expected[layer.name], built.weights if built is not None else []
        if [v.shape for v in mine] != [tuple(w.shape) for w in its]:
            raise ConfigError(
                f"{layer.name}: Keras has the weights {[w.path for w in its]}, not "
                f"{[v.name for v in mine]}"
            )
        found += [
            (f"{layer.name}/{variable.name}", weight)
            for variable, weight in zip(mine, its, strict=True)
        ]
    return found
