"""The reader of ONNX files, without the onnx package or ONNX Runtime: structure and weights as a graph of layers.

Operators become layers of the vocabulary, with channels last inside; inputs
and outputs keep the order of axes in the file.  The batch size becomes free.
"""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ArtifactError
from nnpipe.formats.file_types import check_there
from nnpipe.formats.onnx_network import read_onnx_network
from nnpipe.layers.imports.translation import Foreign, build
from nnpipe.layers.keras.read_file import Reading
from nnpipe.layers.problems import NetworkProblem


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
        return Reading(None, {}, (NetworkProblem("damaged", "", str(error).removeprefix(f"{path}: ")),))
    inputs = {}
    for name, (dtype, shape) in found.inputs.items():
        if dtype is None or shape is None:
            problem = NetworkProblem("no-input-shape", name, "is an input of which the file does not say what it is")
            return Reading(None, {}, (problem,))
        inputs[name] = (dtype, shape)
    return build(
        Foreign(path.stem or "network", "onnx", inputs, found.constants, found.nodes, tuple(found.outputs), found.opset)
    )
