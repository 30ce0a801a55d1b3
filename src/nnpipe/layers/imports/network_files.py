"""The reader of networks in files of any supported format."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.formats.file_types import check_there
from nnpipe.formats.onnx_network import read_onnx_network
from nnpipe.layers.description.from_description import read_description
from nnpipe.layers.imports.translation import OperationNetwork, build
from nnpipe.layers.keras.named_layers import LayerNames, find_named_layers
from nnpipe.layers.keras.open_file import remove_training_parts
from nnpipe.layers.keras.read_file import Reading, read_keras
from nnpipe.layers.problems import NetworkProblem, raise_if

# The reader of ONNX files, without the onnx package or ONNX Runtime: structure and weights as a
# graph of layers.
#
# Operators become layers of the vocabulary, with channels last inside; inputs and outputs keep the
# order of axes in the file.  The batch size becomes free.


def from_onnx(path: str | Path) -> Reading:
    """Return the structure and the weights of an ONNX file as a graph of layers.

    An operator without an equivalent layer becomes an ``Unknown`` layer that keeps its
    attributes and constants, and a problem names it.

    Raises
    ------
    ArtifactError
        If there is no such file.  All other faults are problems in the result.
    """
    check_call(from_onnx, locals())
    path = Path(path)
    check_there(path)
    try:
        found = read_onnx_network(path)
    except ArtifactError as error:
        return Reading(
            None, {}, (NetworkProblem("damaged", "", str(error).removeprefix(f"{path}: ")),)
        )
    inputs = {}
    for name, (dtype, shape) in found.inputs.items():
        if dtype is None or shape is None:
            problem = NetworkProblem(
                "no-input-shape", name, "is an input of which the file does not say what it is"
            )
            return Reading(None, {}, (problem,))
        inputs[name] = (dtype, shape)
    return build(
        OperationNetwork(
            path.stem or "network",
            "onnx",
            inputs,
            found.constants,
            found.nodes,
            tuple(found.outputs),
            found.opset,
        )
    )


DESCRIPTIONS = (".yaml", ".yml", ".json")
KERAS = (".keras", ".h5", ".hdf5")
ONNX = (".onnx",)
_TOLERATED = ("changed-meaning", "training-only")
_DAMAGE = {"damaged", "size", "weights"}


def read_network(path: str | Path, own_layers: LayerNames = ()) -> Reading:
    """Return the network in a file, with its weights if the file has any.

    Parameters
    ----------
    path
        A description (YAML or JSON), a Keras file or an ONNX file; its ending states which.
    own_layers
        The user's own layers in a Keras file, as in
        :func:`~nnpipe.layers.keras.read_file.read_keras`.

    Raises
    ------
    ConfigError
        If there is no such file, its ending is not known, or it has problems; the message lists
        them, or for an ONNX file names the first, which others follow from.  Also if ``own_layers``
        names a layer of Keras.
    ArtifactError
        If there is no such model file.
    """
    path, own = Path(path), find_named_layers(own_layers)
    if own.keras:
        raise ConfigError(
            f"own_layers names {', '.join(own.keras)}, a layer of Keras; this network is built "
            f"from nnpipe's, so "
            "declare it as a subclass of nnpipe.layers.vocabulary.layer.Layer"
        )
    if path.suffix in DESCRIPTIONS:
        return Reading(read_description(path), {})
    if path.suffix not in (*KERAS, *ONNX):
        known = ", ".join((*DESCRIPTIONS, *KERAS, *ONNX))
        raise ConfigError(f"{path}: networks are read from {known}, by the file's ending")
    if path.suffix in ONNX:
        reading = from_onnx(path)
    else:
        reading = remove_training_parts(path, read_keras(path, own_layers=own.declared.values()))
    problems = [problem for problem in reading.problems if problem.code not in _TOLERATED]
    if (
        path.suffix in ONNX
        and len(problems) > 1
        and not _DAMAGE.intersection(problem.code for problem in problems)
    ):
        # One operation without a layer leaves all that follow it without shapes, which would only
        # bury the cause.
        raise ConfigError(
            f"{path}: it cannot be rebuilt from layers, since {problems[0]} (and "
            f"{len(problems) - 1} more of its "
            "operations cannot); start from the model that it was exported from, such as PyTorch's "
            "(.pt2)"
        )
    raise_if(problems, str(path))
    return reading
