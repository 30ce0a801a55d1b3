"""The formats of model files, and the wrappers that open them."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.arguments import list_arguments
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ArtifactError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import components
from nnpipe.formats.file_types import check_there, describe_file_type

FORMATS = {
    ".onnx": "onnx",
    ".tflite": "tflite",
    ".keras": "keras",
    ".h5": "keras",
    ".hdf5": "keras",
    ".pt2": "torch-export",
    ".skops": "skops",
}
"""The formats of files that other software wrote, by the endings of their names."""


def format_of(path: Path) -> str:
    """Return a model file's format, from the description beside it or else from its ending.

    Raises
    ------
    ArtifactError
        If the file does not exist, or its format is not known.
    """
    check_there(path)
    return find_format(path)


def find_format(path: Path) -> str:
    """Return what a name says of a file that need not be there, or the description beside it."""
    if get_sidecar_path(path).is_file():
        return Artifact.read(path).format
    known = {cls.suffix: cls.produces for cls in components(ModelCompiler) if cls.suffix} | FORMATS
    found = known.get(path.suffix.lower())
    if found is None:
        if path.exists():
            check_there(path)
        raise ArtifactError(
            f"{path}: nothing tells what it is; its name should end in "
            f"{', '.join(sorted(known))}{describe_file_type(path)}"
        )
    return found


def find_wrapper(format: str) -> type[ModelWrapper] | None:
    """Return the wrapper class for files of a format that other software wrote; ``None`` if
    there is none.
    """
    for cls in components(ModelWrapper):
        takes_file = any(declared.name == "model_path" for declared in list_arguments(cls))
        if cls.weights_format == format and takes_file and cls.__module__.startswith("nnpipe."):
            return cls
    return None
