"""The reader of Keras files, without Keras: ``.keras``, and ``.h5`` of TensorFlow 1.x, 2.x and
Keras 3.

Files are not trusted.  No code in them is run, no link is followed, and the
sizes that they claim are checked against the file's size before memory is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_one_line
from nnpipe.formats.file_types import check_there
from nnpipe.formats.keras import (
    WeightsMismatch,
    compute_max_bytes,
    get_dataset,
    get_member,
    iterate_datasets,
    open_weights,
    read_array,
    read_names,
    read_structure,
)
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.submodel import Submodel
from nnpipe.layers.keras.from_config import from_keras
from nnpipe.layers.keras.named_layers import LayerNames, NamedLayers, find_named_layers
from nnpipe.layers.keras.weight_paths import (
    WeightHolder,
    WriterVersion,
    convert_to_current_layout,
    iter_layer_paths,
    map_weight_paths,
)
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.input import Unknown
from nnpipe.layers.vocabulary.layer import LayerVariable


@dataclass(frozen=True)
class Reading:
    """The content of a file.

    Attributes
    ----------
    graph
        The network, or ``None`` if the file has none.
    weights
        Its weights, by ``layer/weight``.  Weights of unknown layers have their
        names in the file.  Without a graph, these are all weights of the file,
        by their names there.
    problems
        Everything that is wrong; empty if the network can be built.
    """

    graph: NetworkGraph | None
    weights: Mapping[str, np.ndarray] = field(compare=False)
    problems: tuple[NetworkProblem, ...] = ()


def read_keras(
    path: str | Path, graph: NetworkGraph | None = None, own_layers: LayerNames = ()
) -> Reading:
    """Return the structure and the weights of a Keras file.

    Parameters
    ----------
    path
        A ``.keras``, ``.h5`` or ``.weights.h5`` file.
    graph
        The network, if the file holds weights only, or if its structure
        is to be ignored.
    own_layers
        The user's own layers: classes or their names, as in
        :func:`~nnpipe.layers.keras.named_layers.find_named_layers`. The file's layers whose classes
        have these names are read as such; those of Keras stay unknown.

    Raises
    ------
    ArtifactError
        If there is no such file.
    MissingDependency
        If h5py is not installed.  All other faults are problems in the result.
    """
    check_call(read_keras, locals())
    path = Path(path)
    check_there(path)
    found: list[NetworkProblem] = []
    if graph is None:
        graph = _read_structure(path, found, find_named_layers(own_layers))
    else:
        found += infer(graph).problems
    weights: dict[str, np.ndarray] = {}
    if all(problem.code != "damaged" for problem in found):
        try:
            with open_weights(path) as file:
                weights = _WeightReader(file, compute_max_bytes(path), found).read(graph)
        except ArtifactError as error:
            found.append(_describe_damage(path, error))
        except (WeightsMismatch, ValueError) as error:
            found.append(NetworkProblem("weights", "", format_one_line(error)))
        except Exception as error:  # h5py raises any exception for damaged content
            found.append(
                NetworkProblem(
                    "damaged", "", f"the weights cannot be read: {format_one_line(error)}"
                )
            )
    return Reading(graph, weights, tuple(found))


def _read_structure(
    path: Path, found: list[NetworkProblem], own: NamedLayers
) -> NetworkGraph | None:
    try:
        text = read_structure(path)
    except ArtifactError as error:
        found.append(_describe_damage(path, error))
        return None
    if text is None:
        message = "the file holds weights and no structure; give the graph they are for"
        found.append(NetworkProblem("weights-only", "", message))
        return None
    try:
        config = parse_json(text)
        parsed = from_keras(own.rename_layers(config) if own else config)
    except (ValueError, RecursionError) as error:
        found.append(
            NetworkProblem("damaged", "", f"the structure is damaged: {format_one_line(error)}")
        )
        return None
    found += parsed.problems
    return parsed.graph


def _describe_damage(path: Path, error: ArtifactError) -> NetworkProblem:
    return NetworkProblem("damaged", "", str(error).removeprefix(f"{path}: "))


@dataclass
class _WeightReader:
    """Reader of the weights in an open file; stops when they exceed the size that the file can
    hold.
    """

    file: Any
    left: int
    found: list[NetworkProblem]

    def read(self, graph: NetworkGraph | None) -> dict[str, np.ndarray]:
        old = get_member(self.file, "model_weights") if "model_weights" in self.file else self.file
        by_name = "layer_names" in old.attrs or "layer_names0" in old.attrs
        if graph is None:
            return {
                name: self._read_array(name, item)
                for name, item in iterate_datasets(old)
                if self._try_reserve(name, item)
            }
        if not self._is_possible(graph):
            return {}
        if by_name:
            return self._read_by_name(graph, old)
        if "layers" not in self.file:
            self.found.append(NetworkProblem("weights", "", "the file holds no weights of Keras's"))
            return {}
        return self._read_by_class(graph)

    def _is_possible(self, graph: NetworkGraph) -> bool:
        known = [v for item in iter_layer_paths(graph) for v in item.variables or ()]
        claimed = 4 * sum(math.prod(v.shape) for v in known)
        if claimed > self.left:
            message = (
                f"the structure claims {claimed:,} bytes of weights, far more than the file can "
                f"hold"
            )
            self.found.append(NetworkProblem("size", "", message))
        return claimed <= self.left

    def _try_reserve(self, name: str, item: Any) -> bool:
        size = math.prod(item.shape) * item.dtype.itemsize
        if size > self.left:
            self.found.append(
                NetworkProblem("size", name, f"claims {size:,} bytes, more than the file can hold")
            )
            return False
        self.left -= size
        return True

    def _read_array(self, name: str, item: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
        value = read_array(item)
        return value if shape is None else value.astype(np.float32, copy=False)

    # -- Keras 3: layers by class and number -----------------------------------------------------

    def _read_by_class(self, graph: NetworkGraph) -> dict[str, np.ndarray]:
        given = dict(iterate_datasets(self.file))
        weights: dict[str, np.ndarray] = {}
        for item in iter_layer_paths(graph):
            if item.variables is None:
                prefix = f"{item.place}/"
                wanted = {
                    name.removeprefix(prefix): name
                    for name in list(given)
                    if name.startswith(prefix)
                }
                for name, place in wanted.items():
                    self._add_weight(weights, f"{item.name}/{name}", given.pop(place))
                continue
            at = map_weight_paths(item)
            for variable in item.variables:
                self._add_weight(
                    weights,
                    f"{item.name}/{variable.name}",
                    given.pop(at[variable.name], None),
                    variable,
                )
        self._report_unused(name for name in given if "seed_generator" not in name)
        return weights

    def _add_weight(
        self,
        weights: dict[str, np.ndarray],
        name: str,
        item: Any,
        variable: LayerVariable | None = None,
    ) -> None:
        if item is None:
            self.found.append(NetworkProblem("weights", name, "is missing in the file"))
        elif variable is not None and tuple(item.shape) != variable.shape:
            message = f"has the shape {tuple(item.shape)} in the file, not {variable.shape}"
            self.found.append(NetworkProblem("weights", name, message))
        elif self._try_reserve(name, item):
            weights[name] = self._read_array(name, item, variable.shape if variable else None)

    def _report_unused(self, found: Any) -> None:
        rest = sorted(found)
        if rest:
            more = f" and {len(rest) - 1} more" if len(rest) > 1 else ""
            self.found.append(
                NetworkProblem("weights", rest[0], f"is in the file and not in the network{more}")
            )

    # -- earlier versions: layers by name --------------------------------------------------------

    def _read_by_name(self, graph: NetworkGraph, group: Any) -> dict[str, np.ndarray]:
        given = {
            name: read_names(get_member(group, name), "weight_names")
            for name in read_names(group, "layer_names")
        }
        weights: dict[str, np.ndarray] = {}
        age = WriterVersion.from_file(self.file)
        inside_of: dict[str, list[WeightHolder]] = {}
        for one in iter_layer_paths(graph):
            inside_of.setdefault(one.top, []).append(one)
        for entry in graph.entries:
            layer = entry.layer
            mine = inside_of.get(layer.name, [])
            inside = given.pop(layer.name, [])
            arrays = {
                name.removesuffix(":0"): get_dataset(group, f"{layer.name}/{name}")
                for name in inside
            }
            if isinstance(layer, Unknown) or any(item.variables is None for item in mine):
                for name, item in arrays.items():
                    self._add_weight(weights, f"{layer.name}/{name}", item)
                continue
            if not isinstance(layer, Submodel):
                arrays = _name_arrays(
                    convert_to_current_layout(layer, list(arrays.values()), age), arrays
                )
            wanted = _list_wanted_variables(mine, isinstance(layer, Submodel))
            matched = _match_arrays(
                [name.removeprefix(f"{layer.name}/") for name, _ in wanted], arrays
            )
            if isinstance(layer, Submodel):
                matched = _convert_nested_weights(mine, wanted, matched, age)
            for (name, variable), item in zip(wanted, matched, strict=True):
                self._add_weight(weights, name, item, variable)
            if len(arrays) > len(wanted):
                self._report_unused(f"{layer.name}/{name}" for name in list(arrays)[len(wanted) :])
        self._report_unused(name for name, inside in given.items() if inside)
        return weights


def _name_arrays(values: list[Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arrays under their previous names, or under numbers if their count has changed."""
    given = arrays if len(arrays) == len(values) else map(str, range(len(values)))
    return dict(zip(given, values, strict=True))


def _convert_nested_weights(
    mine: list[WeightHolder],
    wanted: list[tuple[str, LayerVariable]],
    matched: list[Any],
    age: WriterVersion,
) -> list[Any]:
    """Convert the weights of the layers of a nested network to today's layout."""
    found = dict(zip((name for name, _ in wanted), matched, strict=True))
    for item in mine:
        own = [f"{item.name}/{variable.name}" for variable in item.variables or ()]
        if own and all(found[name] is not None for name in own):
            values = convert_to_current_layout(item.layer, [found[name] for name in own], age)
            found |= dict(zip(own, values, strict=False))
    return [found[name] for name, _ in wanted]


def _list_wanted_variables(
    mine: list[WeightHolder], nested: bool
) -> list[tuple[str, LayerVariable]]:
    found = [
        (f"{item.name}/{variable.name}", variable)
        for item in mine
        for variable in item.variables or ()
    ]
    # For nested networks, the trained weights of all layers were written first.
    return sorted(found, key=lambda pair: not pair[1].trainable) if nested else found


def _match_arrays(wanted: list[str], arrays: dict[str, Any]) -> list[Any]:
    """Return the arrays in the order of the ``wanted`` names: matched by name if possible,
    otherwise by order.
    """
    tails = [[given for given in arrays if f"/{given}".endswith(f"/{name}")] for name in wanted]
    if all(len(tail) == 1 for tail in tails) and len({tail[0] for tail in tails}) == len(wanted):
        return [arrays[tail[0]] for tail in tails]
    given: list[Any] = list(arrays.values())
    return (given + [None] * len(wanted))[: len(wanted)]
