"""The reader of networks in script descriptions, which are given layer by layer or as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.codegen.problems import ScriptProblem
from nnpipe.core.errors import NNPipeError
from nnpipe.core.messages import shown
from nnpipe.layers.description.from_description import from_description
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights
from nnpipe.layers.imports.network_files import KERAS, read_network
from nnpipe.layers.keras.read_file import read_keras


def network_of(name: str, data: Any, found: list[ScriptProblem]) -> tuple[NetworkGraph | None, Weights]:
    """Return a network and its stored weights; problems are appended to ``found``.

    The network is ``None`` if it cannot be read; the weights are empty if there are none.

    Parameters
    ----------
    name
        Name of the network.
    data
        A list of layers, or an object in the format of
        :mod:`nnpipe.layers.description.from_description`, or ``{file: PATH}`` with the
        path of such a description or of a Keras file; ``own_layers`` beside it names the user's layers in the file.
    found
        The list that problems are appended to.
    """
    where = f"networks.{name}"
    if isinstance(data, Mapping) and "file" in data:
        for key in data:
            if key not in ("file", "own_layers"):
                found.append(ScriptProblem("structure", f"{where}.{key}", "is not allowed beside file"))
        return _of_file(name, data["file"], data.get("own_layers", []), f"{where}.file", found)
    parsed = from_description({"layers": data} if isinstance(data, list) else data)
    for problem in parsed.problems:
        found.append(ScriptProblem("network", f"{where}.{problem.path}".rstrip("."), problem.message))
    return (None if parsed.graph is None else replace(parsed.graph, name=name)), {}


def _of_file(
    name: str, path: Any, own_layers: Any, where: str, found: list[ScriptProblem]
) -> tuple[NetworkGraph | None, Weights]:
    if not isinstance(path, str) or not path or "\0" in path:
        found.append(ScriptProblem("file", where, f"must be the path of a network, not {shown(path)}"))
        return None, {}
    if not isinstance(own_layers, list) or not all(isinstance(title, str) for title in own_layers):
        found.append(ScriptProblem("file", where, f"own_layers must be a list of names, not {shown(own_layers)}"))
        return None, {}
    try:
        keras = Path(path).suffix in KERAS
        reading = read_keras(path, own_layers=own_layers) if keras else read_network(path, own_layers)
    except NNPipeError as error:
        found.append(ScriptProblem("file", where, str(error)))
        return None, {}
    for problem in reading.problems:
        if problem.code != "changed-meaning":
            found.append(ScriptProblem("file", where, f"{path}: {problem}"))
    return (None if reading.graph is None else replace(reading.graph, name=name)), reading.weights
