"""ONNX models from files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.files import replacing
from nnpipe.core.live_model import LiveModel
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import TensorSpec
from nnpipe.formats.class_names import onnx_class_names
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_contents import Contents, read_contents
from nnpipe.formats.onnx_external_data import write_joined
from nnpipe.modelwrappers.files._one_file import refuse_one_file
from nnpipe.modelwrappers.files._onnx_external_data import write_beside
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.modelwrappers.files.onnx_wrapper import LARGEST, ONNXWrapper


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
            if file.external and not file.zipped and not _changed(live):
                if file.bytes_in_all > LARGEST:
                    write_beside(file, Path(path))
                else:
                    with replacing(path) as temporary:
                        write_joined(file, temporary)
                return self.artifact_of(Path(path), format, self.versions())
            if file.external or file.zipped:
                _ = live.native
        return super().export(live, path, format)

    def check_takers(self, takers: Sequence[type[ModelCompiler] | type[Runtime]], remote: bool = False) -> None:
        """Raise :class:`ConfigError` for bfloat16 that these do not work with, and a model too large for one file."""
        if not self.model_path.is_file():  # opening it reports this
            return
        inside = "bfloat16" in self.contents().numbers
        self._check_bfloat16(takers, inside, "export it in float32 where it was made")
        refuse_one_file(
            self.model_path, self.bytes_in_all, LARGEST, takers, remote,
            runtimes="ONNXRuntime and OpenVINORuntime", instead="compile it for OpenVINO, or measure it here",
        )  # fmt: skip

    def class_names_in_file(self, output: TensorSpec) -> tuple[str, ...]:
        """Return the names of classes in the file's properties, or in its classifiers of scikit-learn."""
        return self._class_names

    @cached_property
    def _class_names(self) -> tuple[str, ...]:
        return onnx_class_names(self.model_path)

    def contents(self) -> Contents:
        """Return the counts of the file's parts, without reading any weight."""
        return read_contents(self.model_path)


def _changed(live: LiveModel) -> bool:
    return live.is_built and bool(live.native.changed)
