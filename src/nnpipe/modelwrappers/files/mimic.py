"""Networks with random weights that cost as much as others, of which they show nothing else."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from nnpipe.analysis.stored_values import find_constants
from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConversionError, NotSupported
from nnpipe.core.graph import Graph, parse_shape
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.onnx_of_graph import build_onnx_of_graph
from nnpipe.layers.description.from_description import read_description
from nnpipe.layers.graph.operations import build_operation_graph
from nnpipe.layers.imports.network_files import DESCRIPTIONS
from nnpipe.modelwrappers.files._onnx_graph import ONNXSource
from nnpipe.modelwrappers.files.file_formats import find_wrapper, format_of
from nnpipe.modelwrappers.files.onnx import ONNXWrapper


def read_file_graph(path: Path, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return the graph of a model file, or of a network that is declared layer by layer and not
    built yet.

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
        return build_operation_graph(read_description(path), wanted)
    cls = find_wrapper(format_of(path))
    if cls is None or not cls.offers("get_sized_graph"):
        raise NotSupported(
            f"{path}: it does not show its graph; give the file that it was made from"
        )
    with cls.from_json({"model_path": str(path)}).open(path) as live:
        return live.get_sized_graph(wanted)


_FILE = "network.onnx"


class Mimic(ONNXWrapper):
    """A network with random weights that costs as much as another, of which it shows neither names
    nor weights.

    It has the operations of the original with their sizes, so it takes about as
    long and as much memory wherever it runs: a stand-in for a network that is
    not trained yet, or must not be passed on.  The original may be a model file,
    or a network declared layer by layer (.yaml, .json) that was never built.
    Channels come first, as in ONNX; numbers of 8 bits stay numbers of 8 bits.
    """

    requires: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnx")
    makes_weights: ClassVar[bool] = True

    original: Path = argument(help="file of the network whose cost is wanted", metavar="PATH")
    original_shapes: tuple[str, ...] = argument(
        (),
        help=(
            "shapes of its inputs, such as image=1,3,224,224 (default: its own, with the length 1 "
            "for each free axis)"
        ),
        metavar="INPUT=N,N,...",
    )
    seed: int = argument(0, help="determines the weights", minimum=0)

    def validate(self) -> None:
        """Check the form of the shapes."""
        super().validate()
        for each in self.original_shapes:
            parse_shape(each)

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.original})"

    @cached_property
    def _graph(self) -> Graph:
        """The graph of the original, without the objects of its framework."""
        graph = read_file_graph(
            self.original, dict(parse_shape(each) for each in self.original_shapes)
        )
        operations = tuple(replace(each, native=None) for each in graph.operations)
        return replace(graph, operations=operations, native=None)

    @cached_property
    def io(self) -> IOSpec:
        """Inputs and outputs: those of the original with other names, and with channels first."""
        self.check_installed()
        with self._write_temporary_file() as path:
            return self.read_io(path)

    def build(self) -> ONNXSource:
        """Return a network that costs as much as the original; the seed determines its weights."""
        with self._write_temporary_file(keep=True) as path:
            source = self.read_model(path)
        weakref.finalize(source, shutil.rmtree, path.parent, ignore_errors=True)
        return source

    @contextmanager
    def _write_temporary_file(self, keep: bool = False) -> Iterator[Path]:
        """Yield a file of the network; remove it afterwards unless ``keep``, and always if an
        error occurs.
        """
        try:
            content = build_onnx_of_graph(
                self._graph, np.random.default_rng(self.seed), find_constants(self._graph).folded
            )
        except (NotSupported, ConversionError) as error:
            raise type(error)(f"{self.original}: {error}") from None
        folder = Path(tempfile.mkdtemp(prefix="nnpipe-"))
        try:
            (folder / _FILE).write_bytes(content)
            yield folder / _FILE
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
