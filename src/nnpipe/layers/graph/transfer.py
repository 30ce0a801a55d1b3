"""Differences between two networks and the transfer of weights: transfer learning by
description.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import (
    Weights,
    find_weight_problems,
    initial_weights,
    list_variables,
)
from nnpipe.layers.keras.weight_paths import iter_layer_paths
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.vocabulary.initialisers import Constant, Identity, Ones, Zeros
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable

_SAME = (Constant, Identity, Ones, Zeros)
"""Initialisers without random numbers: a frozen bias of zeros is no mistake."""


@dataclass(frozen=True)
class ChangedLayer:
    """A layer that both networks have by name, with its differences: arguments, ``class``, or
    ``inputs``.
    """

    name: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class Delta:
    """The differences between two networks.  Layers are matched by name.

    Attributes
    ----------
    kept
        Layers that are equal, except perhaps for ``trainable``.
    changed
        Layers with other arguments, another class, or other inputs.
    new, removed
        Layers that only the second network has, and layers that only the first has.
    frozen, thawed
        Layers that are no longer trained, and layers that are trained again.
    reordered
        Whether the same inputs have another order.
    after
        The second network.
    """

    kept: tuple[str, ...]
    changed: tuple[ChangedLayer, ...]
    new: tuple[str, ...]
    removed: tuple[str, ...]
    frozen: tuple[str, ...]
    thawed: tuple[str, ...]
    reordered: bool
    after: NetworkGraph


@dataclass(frozen=True)
class Transferred:
    """All weights of a network derived from another, and the names of those that were kept or
    newly drawn.
    """

    weights: Mapping[str, np.ndarray]
    stayed: tuple[str, ...]
    fresh: tuple[str, ...]


def compare(before: NetworkGraph, after: NetworkGraph) -> Delta:
    """Compare two networks, layer by layer, by their names."""
    check_call(compare, locals())
    old = {entry.layer.name: entry for entry in before.entries}
    new = {entry.layer.name: entry for entry in after.entries}
    kept: list[str] = []
    changed: list[ChangedLayer] = []
    frozen: list[str] = []
    thawed: list[str] = []
    for name, entry in new.items():
        if name not in old:
            continue
        what = _list_differences(old[name].layer, entry.layer)
        if old[name].uses != entry.uses:
            what.append("inputs")
        if what:
            changed.append(ChangedLayer(name, tuple(what)))
        else:
            kept.append(name)
        if old[name].layer.trainable != entry.layer.trainable:
            (thawed if entry.layer.trainable else frozen).append(name)
    was, comes = [ref.layer for ref in before.inputs], [ref.layer for ref in after.inputs]
    return Delta(
        kept=tuple(kept),
        changed=tuple(changed),
        new=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        frozen=tuple(frozen),
        thawed=tuple(thawed),
        reordered=was != comes and sorted(was) == sorted(comes),
        after=after,
    )


def transfer(
    before: NetworkGraph, weights: Weights, after: NetworkGraph, *, seed: int = 0
) -> Transferred:
    """Return weights for ``after``, taken from ``before`` where they match.

    A weight is kept if both networks have a layer of the same name and class with
    a weight of the same name and shape.  The initialisers of ``after`` draw all others.

    Parameters
    ----------
    before, weights
        The first network, such as :func:`~nnpipe.layers.keras.read_file.read_keras` returns it, and
        its weights.
    after
        The second network.
    seed
        Seed of the initialisers.

    Raises
    ------
    ConfigError
        If a graph has problems, the weights are not those of ``before``, or a layer of ``after``
        would keep random weights for ever, because it is frozen and its weights are newly drawn.
    """
    check_call(transfer, locals())
    raise_if(find_weight_problems(list_variables(before), weights), before.name)
    made = initial_weights(after, seed)
    old = {item.name: item for item in iter_layer_paths(before)}
    stayed = []
    for item in iter_layer_paths(after):
        if item.name in old and type(old[item.name].layer) is type(item.layer):
            names = [f"{item.name}/{variable.name}" for variable in item.variables or ()]
            stayed += [
                name
                for name in names
                if name in weights and weights[name].shape == made[name].shape
            ]
    raise_if(find_frozen_problems(before, after, stayed), after.name or "network")
    result = made | {name: np.array(weights[name]) for name in stayed}
    return Transferred(
        result, tuple(stayed), tuple(name for name in made if name not in set(stayed))
    )


def find_frozen_problems(
    before: NetworkGraph, after: NetworkGraph, stayed: Collection[str]
) -> list[NetworkProblem]:
    """Return a problem for each layer that is frozen although its weights are newly drawn.

    Parameters
    ----------
    before, after
        The first and the second network.
    stayed
        Names of the weights that are kept.
    """
    was, found = list_variables(before), dict[str, str]()
    for name, variable in _iter_frozen_weights(after):
        if name in stayed or isinstance(variable.initialiser, _SAME):
            continue
        layer, _, weight = name.rpartition("/")
        old = f"was {was[name].shape}" if name in was else "was not there"
        found.setdefault(
            layer,
            f"is frozen, but its {weight} {variable.shape} {old}, so it would stay random; "
            "let the layer be trained, or leave it as it was",
        )
    return [NetworkProblem("weights", layer, message) for layer, message in found.items()]


def _iter_frozen_weights(
    graph: NetworkGraph, name: str = ""
) -> Iterator[tuple[str, LayerVariable]]:
    """Yield the weights of frozen layers with their full names."""
    known = infer(graph).variables
    for entry in graph.entries:
        layer = entry.layer
        if not layer.trainable:
            yield from (
                (f"{name}{layer.name}/{variable.name}", variable)
                for variable in known.get(layer.name, ())
            )
        elif isinstance(layer, Submodel):
            yield from _iter_frozen_weights(layer.graph, f"{name}{layer.name}/")


def _list_differences(old: Layer, new: Layer) -> list[str]:
    """Return the names of the arguments that differ, except ``trainable``."""
    if type(old) is not type(new):
        return ["class"]
    names = [
        field.name
        for field in dataclasses.fields(new)
        if field.compare and field.name not in ("name", "trainable")
    ]
    return [name for name in names if getattr(old, name) != getattr(new, name)]
