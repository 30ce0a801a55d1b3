"""Networks for inference: without arguments for training, and with names that Keras accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.references import LayerEntry, Ref, Use
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.graph.weights import Weights
from nnpipe.layers.keras.from_config import read_layer
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import field_table
from nnpipe.layers.vocabulary.constraints import CONSTRAINT
from nnpipe.layers.vocabulary.initialisers import INITIALISER
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.regularisers import REGULARISER
from nnpipe.layers.vocabulary.unknown import Unknown

_KINDS = (INITIALISER, REGULARISER, CONSTRAINT)
_TRAINING = re.compile(r"(^|[._])(initializer|regularizer|constraint)(\.|$)")
_OF_CODES = ("unknown-object", "unknown-argument", "argument")


def without_training(path: Path, reading: Reading, everything: bool = False) -> Reading:
    """Return a network with known weights without those unknown parts that matter in training only.

    Parameters
    ----------
    path
        The file that was read.
    reading
        Its content.
    everything
        Whether to leave out known parts as well, for a network that will
        never be trained.

    Returns
    -------
    Reading
        The network; unknown parts that were left out are problems with the code ``training-only``.
    """
    graph = reading.graph
    if graph is None:
        return reading
    problems = tuple(map(_as_training_only, reading.problems))
    changed = _changed(graph, everything)
    if _kinds(changed) == _kinds(graph):
        return Reading(changed, reading.weights, problems)
    # Layers that can be read now had weights under the file's names before; now their shapes can be inferred.
    again = read_keras(path, changed)
    return Reading(changed, again.weights, (*training_only(problems), *again.problems))


def _kinds(graph: NetworkGraph) -> list[Any]:
    return [
        _kinds(entry.layer.graph) if isinstance(entry.layer, Submodel) else type(entry.layer) for entry in graph.entries
    ]


def training_only(problems: Iterable[NetworkProblem]) -> list[NetworkProblem]:
    """Return the problems about parts that were left out and matter in training only."""
    return [problem for problem in problems if problem.code == "training-only"]


def _as_training_only(problem: NetworkProblem) -> NetworkProblem:
    if problem.code in _OF_CODES and _TRAINING.search(problem.path.rpartition(".config.")[2] or problem.path):
        return NetworkProblem("training-only", problem.path, problem.message)
    return problem


def _changed(graph: NetworkGraph, everything: bool) -> NetworkGraph:
    entries = tuple(replace(entry, layer=_layer(entry.layer, everything)) for entry in graph.entries)
    return replace(graph, entries=entries)


def _layer(layer: Layer, everything: bool) -> Layer:
    if isinstance(layer, Submodel):
        return layer.alone(graph=_changed(layer.graph, everything))
    if isinstance(layer, Unknown):
        return _known_without(layer)
    changes: dict[str, Any] = {}
    for row in field_table.table(type(layer)):
        value = getattr(layer, row.name)
        if row.kind in _KINDS and (everything or isinstance(value, Raw)):
            changes[row.name] = row.default
    for field in fields(layer):
        value = getattr(layer, field.name)
        if isinstance(value, Layer) and field.name != "inputs":
            changes[field.name] = _layer(value, everything)
    return layer.alone(**changes) if changes else layer


def _known_without(layer: Unknown) -> Layer:
    """Read a layer again without arguments for training; return it unchanged if they were not the problem."""
    raw = layer.raw.value
    config = raw.get("config")
    if not isinstance(config, dict):
        return layer
    rest = {key: value for key, value in config.items() if not _TRAINING.search(key)}
    if rest == config:
        return layer
    found: list[NetworkProblem] = []
    again = read_layer({**raw, "config": {**rest, "name": layer.name}}, "", found)
    return layer if isinstance(again, Unknown) else again.alone(trainable=layer.trainable)


def with_names_for_keras(graph: NetworkGraph, weights: Weights) -> tuple[NetworkGraph, dict[str, np.ndarray]]:
    """Replace each ``/`` in names of layers, which Keras 3 rejects, by ``_``, in the names of weights as well."""
    found = dict(weights)
    changed = _renamed(graph, "", found)
    return changed, found


def _renamed(graph: NetworkGraph, prefix: str, weights: dict[str, np.ndarray]) -> NetworkGraph:
    names: dict[str, str] = {}
    taken = {entry.layer.name for entry in graph.entries if "/" not in entry.layer.name}
    entries = []
    for entry in graph.entries:
        layer = entry.layer
        if isinstance(layer, Submodel):
            layer = layer.alone(graph=_renamed(layer.graph, f"{prefix}{layer.name}/", weights))
        if "/" in layer.name:
            new = layer.name.replace("/", "_")
            while new in taken:
                new += "_"
            taken.add(new)
            names[layer.name] = new
            for name in [name for name in weights if name.startswith(f"{prefix}{layer.name}/")]:
                weights[prefix + new + name.removeprefix(prefix + layer.name)] = weights.pop(name)
            layer = layer.alone(name=new)
        entries.append(LayerEntry(layer, entry.uses))
    if not names:
        return replace(graph, entries=tuple(entries))

    def moved(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(replace(ref, layer=names.get(ref.layer, ref.layer)) for ref in refs)

    def used(use: Use) -> Use:
        return replace(use, inputs=moved(use.inputs))

    entries = [LayerEntry(entry.layer, tuple(map(used, entry.uses))) for entry in entries]
    return replace(graph, entries=tuple(entries), inputs=moved(graph.inputs), outputs=moved(graph.outputs))
