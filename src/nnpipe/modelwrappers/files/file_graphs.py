"""The operations of the network in a file, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnpipe.core.errors import NotSupported
from nnpipe.core.graph import Graph
from nnpipe.layers.description.from_description import read_description
from nnpipe.layers.graph.operations import operations_of
from nnpipe.layers.imports.network_files import DESCRIPTIONS
from nnpipe.modelwrappers.files.file_formats import format_of, wrapper_of


def graph_of_file(path: Path, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return the graph of a model file, or of a network that is declared layer by layer and not built yet.

    Parameters
    ----------
    path
        The file.
    shapes
        The shape of inputs by name; free axes of the others get the length 1.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged.
    ConfigError
        If a shape does not fit.
    NotSupported
        If files of this format do not show their graph.
    """
    wanted = {name: tuple(shape) for name, shape in shapes.items()}
    if path.suffix.lower() in DESCRIPTIONS:
        return operations_of(read_description(path), wanted)
    cls = wrapper_of(format_of(path))
    if cls is None or not cls.offers("get_sized_graph"):
        raise NotSupported(f"{path}: it does not show its graph; give the file that it was made from")
    with cls.from_json({"model_path": str(path)}).open(path) as live:
        return live.get_sized_graph(wanted)
