"""Networks from files of any kind that one can be read from."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.layers.description.from_description import read_description
from nnpipe.layers.imports.from_onnx import from_onnx
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.keras.without_training import without_training
from nnpipe.layers.problems import raise_if

DESCRIPTIONS = (".yaml", ".yml", ".json")
KERAS = (".keras", ".h5", ".hdf5")
ONNX = (".onnx",)
_TOLERATED = ("changed-meaning", "training-only")


def read_network(path: str | Path) -> Reading:
    """Read a network, with its weights where the file has some.

    Parameters
    ----------
    path
        A description (YAML or JSON), or a file of Keras or of ONNX; told apart by its ending.

    Raises
    ------
    ConfigError
        If there is no such file, its kind is not known, or something is wrong in it, with all that is.
    ArtifactError
        If there is no such file of a model.
    """
    path = Path(path)
    if path.suffix in DESCRIPTIONS:
        return Reading(read_description(path), {})
    if path.suffix not in (*KERAS, *ONNX):
        known = ", ".join((*DESCRIPTIONS, *KERAS, *ONNX))
        raise ConfigError(f"{path}: networks are read from {known}, by the file's ending")
    reading = from_onnx(path) if path.suffix in ONNX else without_training(path, read_keras(path))
    raise_if((problem for problem in reading.problems if problem.code not in _TOLERATED), str(path))
    return reading
