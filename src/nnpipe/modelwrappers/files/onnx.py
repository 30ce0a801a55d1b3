"""ONNX models from files."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ArtifactError, ConfigError, ConversionError
from nnpipe.core.files import replace_atomically
from nnpipe.core.graph import Graph, Profile, Selector, Shapes, with_shapes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import format_one_line
from nnpipe.core.model import Samples
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.formats.class_names import read_onnx_class_names
from nnpipe.formats.onnx import ONNXFile, read_onnx
from nnpipe.formats.onnx_external_data import write_joined
from nnpipe.formats.onnx_network import Contents, read_contents
from nnpipe.frameworks.onnxruntime import create_session, open_model, read_onnxruntime_io
from nnpipe.frameworks.onnxruntime_profile import record
from nnpipe.modelwrappers.files._onnx_graph import ONNXSource
from nnpipe.modelwrappers.files.file_model import FileModel, SelfContainedModel

LARGEST = (1 << 31) - 1
"""The bytes that a protocol buffer holds at most."""


class ONNXWrapper(SelfContainedModel):
    """A network that is saved, run by ONNX Runtime, and analysed as an ONNX file."""

    framework: ClassVar[str] = "ONNX"
    weights_format: ClassVar[str] = "onnx"
    exports: ClassVar[tuple[str, ...]] = ("onnx",)
    requires: ClassVar[tuple[str, ...]] = ("onnxruntime",)
    install: ClassVar[str] = "nnpipe[onnx]"

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )

    def read_io(self, path: Path) -> IOSpec:
        """Return the inputs and outputs of the model in a file."""
        return read_onnx(path).with_score_tensors().io()

    def read_model(self, path: Path) -> ONNXSource:
        """Return the model of a file; its content is read when it is first needed."""
        return ONNXSource(read_onnx(path))

    def _get_content(self, native: ONNXSource) -> bytes | Path:
        if not native.changed and not native.file.external:
            return native.file.path
        data = native.serialize()
        if len(data) > LARGEST:
            raise ConversionError(
                f"{native.file.path}: with its weights larger than 2 GB, more than one file can "
                f"hold"
            )
        return data

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the version of ONNX Runtime."""
        from importlib.metadata import version

        return (("onnxruntime", version("onnxruntime")),)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the present model on ONNX Runtime."""
        source: ONNXSource = live.native
        content = source.serialize() if source.changed else None

        def open_native(recording: Path | None = None) -> Any:
            return open_model(source.file, self.num_threads, content=content, recording=recording)

        native = open_native()
        read_onnxruntime_io(native, source.file)  # raises for tensors that cannot be put or got
        return create_session(native, self.io, source.file.path, open_native)

    # -- analysis ---------------------------------------------------------------------------------

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the nodes of the main graph with unique names; constants are tensors, not
        operations.
        """
        source: ONNXSource = live.native
        return source.graph(self.io)

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the nodes with the shapes that follow from those of the inputs."""
        source: ONNXSource = live.native
        return source.graph(with_shapes(self.io, shapes), sized=True)

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return copies of initialisers by name."""
        source: ONNXSource = live.native
        return source.get_weights(keys)

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the named initialisers; the others stay."""
        source: ONNXSource = live.native
        source.set_weights(weights)

    def profile_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Return the time of each node of the fused graph that sessions run, from ONNX Runtime's
        profiler.
        """
        source: ONNXSource = live.native
        content = source.serialize() if source.changed else None

        def open_native(folder: Path) -> Any:
            return open_model(source.file, self.num_threads, content=content, recording=folder)

        batches = self._require_batches(n_steps, samples)
        times = record(
            open_native,
            lambda native: create_session(native, self.io, source.file.path, open_native),
            batches,
        )
        return times.as_profile()

    def get_intermediates(
        self,
        live: LiveModel,
        selector: Selector,
        inputs: Batch | None = None,
        given: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one batch through the unoptimised graph and return the selected values by tensor
        name.
        """
        batch = generate_random_batch(self.io, 1) if inputs is None else inputs
        self.io.check_inputs(batch)
        source: ONNXSource = live.native
        return source.compute_intermediates(
            selector, live.get_inference_graph(), batch, given or {}
        )


def write_beside(file: ONNXFile, path: Path) -> None:
    """Copy a model and its weight files, which get the model's name and a number.

    The weights are copied first, so that the model never exists without them.

    Raises
    ------
    ArtifactError
        If the model cannot be read.
    """
    import onnx

    names = {
        location: f"{path.name}.{number}.weights" for number, location in enumerate(file.external)
    }
    try:
        model = onnx.load_model(str(file.path), load_external_data=False)
    except Exception as error:  # protobuf's errors share no base
        raise ArtifactError(
            f"{file.path}: not a usable ONNX model: {format_one_line(error, 200)}"
        ) from None
    for tensor in _list_tensors(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[entry.value]
    for location, name in names.items():
        with replace_atomically(path.with_name(name)) as temporary:
            shutil.copyfile(file.path.parent / location, temporary)  # by the kernel, if it can
    with replace_atomically(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _list_tensors(graph: Any) -> list[Any]:
    """Return all tensors of a graph and its subgraphs that may be stored in another file."""
    found = list(graph.initializer)
    found += [
        part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices)
    ]
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                found += _list_tensors(inner) if inner.node or inner.initializer else []
    return found


def check_one_file(
    path: Path,
    size: int,
    largest: int,
    takers: Sequence[type[ModelCompiler] | type[Runtime]],
    remote: bool,
    runtimes: str,
    instead: str,
) -> None:
    """Raise :class:`ConfigError` if a model does not fit into one ONNX file and one is needed.

    Parameters
    ----------
    path, size
        The model's file, and the bytes of the model with its weights.
    largest
        Bytes that one file can hold.
    takers, remote
        The stages that take the model, and whether it is sent to a target.
    runtimes
        The runtimes that run it as it is.
    instead
        What to do instead of sending it to a target.
    """
    if size <= largest:
        return
    first = takers[0]
    if issubclass(first, ModelCompiler) and first.one_file:
        raise ConfigError(
            f"{path}: with its weights it has {size:,} bytes, and {first.__name__} works on one "
            f"file of at most {largest:,}; the runtimes {runtimes} run it as it is"
        )
    if remote and len(takers) == 1:
        raise ConfigError(
            f"{path}: with its weights it has {size:,} bytes, more than the one file of "
            f"{largest:,} that is sent to a target; {instead}"
        )


class ONNXModel(FileModel, ONNXWrapper):
    """A model from an ONNX file; only a data set is needed to measure it.

    Running it needs ONNX Runtime only; analysing its graph, weights and
    intermediate values needs ``onnx_ir``.  Scores that a scikit-learn classifier
    gives as dictionaries (``ZipMap``) are replaced by the tensor behind them.
    """

    @property
    def bytes_in_all(self) -> int:
        """Return the size of the file and of its external weight files, in bytes."""
        return read_onnx(self.model_path).bytes_in_all

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model, unchanged unless weights have been set.

        The result is one file, unless that would exceed 2 GB: then the weights are
        in files with its name beside it.
        """
        if format == self.weights_format:
            file = read_onnx(self.model_path)
            file.check_external()
            if file.external and not file.zipped and not _is_changed(live):
                if file.bytes_in_all > LARGEST:
                    write_beside(file, Path(path))
                else:
                    with replace_atomically(path) as temporary:
                        write_joined(file, temporary)
                return self.artifact_of(Path(path), format, self.versions())
            if file.external or file.zipped:
                _ = live.native
        return super().export(live, path, format)

    def check_takers(
        self, takers: Sequence[type[ModelCompiler] | type[Runtime]], remote: bool = False
    ) -> None:
        """Raise :class:`ConfigError` for bfloat16 that these do not work with, and a model too
        large for one file.
        """
        if not self.model_path.is_file():  # opening it reports this
            return
        inside = "bfloat16" in self.contents().numbers
        self._check_bfloat16(takers, inside, "export it in float32 where it was made")
        check_one_file(
            self.model_path,
            self.bytes_in_all,
            LARGEST,
            takers,
            remote,
            runtimes="ONNXRuntime and OpenVINORuntime",
            instead="compile it for OpenVINO, or measure it here",
        )

    def read_class_names(self, output: TensorSpec) -> tuple[str, ...]:
        """Return the names of classes in the file's properties, or in its classifiers of
        scikit-learn.
        """
        return self._class_names

    @cached_property
    def _class_names(self) -> tuple[str, ...]:
        return read_onnx_class_names(self.model_path)

    def contents(self) -> Contents:
        """Return the counts of the file's parts, without reading any weight."""
        return read_contents(self.model_path)


def _is_changed(live: LiveModel) -> bool:
    return live.is_built and bool(live.native.changed)
