"""The writer of ``.keras`` files, without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import MissingDependency
from nnpipe.core.files import write_bytes
from nnpipe.formats.keras import CONFIG, METADATA, WEIGHTS
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights, weight_problems
from nnpipe.layers.keras.to_config import network_config
from nnpipe.layers.keras.weight_paths import held, places
from nnpipe.layers.problems import NetworkProblem, raise_if
from nnpipe.layers.torch.to_torch import backend_problems

_VERSION = "3.8.0"  # version of the format; Keras ignores it
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same network gives the same bytes


def write_keras(path: str | Path, graph: NetworkGraph, weights: Weights) -> None:
    """Write a network to a ``.keras`` file for Keras 3, whole or not at all.

    Unknown layers are written as they were read, with their weights.

    Raises
    ------
    ConfigError
        If the graph has problems, or the weights do not fit it.
    MissingDependency
        If h5py is not installed.
    """
    check_call(write_keras, locals())
    try:
        import h5py
    except ImportError as error:
        raise MissingDependency(f"h5py is needed here: pip install h5py ({error})") from None
    raise_if(backend_problems(graph, "keras"), graph.name or "network")
    config = json.dumps(network_config(graph))
    arrays = _placed(graph, weights)
    stored = io.BytesIO()
    with h5py.File(stored, "w") as file:
        file.create_group("layers")
        for place, value in arrays.items():
            file.create_dataset(place, data=value, track_times=False)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        metadata = json.dumps({"keras_version": _VERSION, "written_by": "nnpipe"})
        for name, content in ((METADATA, metadata), (CONFIG, config), (WEIGHTS, stored.getvalue())):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    write_bytes(path, written.getvalue())


def _placed(graph: NetworkGraph, weights: Weights) -> dict[str, np.ndarray]:
    """Return the weights by their paths in the file."""
    found: dict[str, np.ndarray] = {}
    expected: dict[str, Any] = {}
    rest = dict(weights)
    for item in held(graph):
        if item.variables is None:  # stored under their names below the layer
            prefix = f"{item.name}/"
            for name in [name for name in rest if name.startswith(prefix)]:
                found[f"{item.place}/{name.removeprefix(prefix)}"] = rest.pop(name)
            continue
        at = places(item)
        for variable in item.variables:
            name = f"{item.name}/{variable.name}"
            expected[name] = variable
            if name in rest:
                found[at[variable.name]] = rest.pop(name)
    known = {name: value for name, value in weights.items() if name in expected}
    problems = weight_problems(expected, known)
    problems += [NetworkProblem("weights", name, "is not in the network") for name in rest]
    raise_if(problems, graph.name or "network")
    return found
