"""Exporting PyTorch programs to ONNX, and writing them, with weights of more than 2 GB in a file of their own."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nnpipe.core.files import replacing, write_bytes
from nnpipe.core.messages import one_line
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_external_data import write_joined

LARGEST = (1 << 31) - 1
"""Bytes that one ONNX file can hold, a limit of protocol buffers."""

_MARGIN = 64 << 20  # bytes for the graph itself
_SMALL = 64 << 20  # bytes of weights of which copies in memory do no harm


# Colours of terminals, and where PyTorch says in which of its own files something happened.
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|Original traceback:.*|Use tlparse.*|\(Refer to the full.*", re.DOTALL)


def cause_of(error: BaseException) -> str:
    """Return in one line why an export failed: the first cause, since PyTorch's own message is mostly instructions."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(_DECORATION.sub("", str(error)) or type(error).__name__)


def write_exported(found: Any, path: Path, largest: int) -> None:
    """Write an exported model.

    Large weights are written one after another, so that no copy of all of them is made in memory.  Those that do not
    fit into one file stand in ``NAME.0.weights`` beside it; the model is written last, so that it never exists without
    them.

    Parameters
    ----------
    found
        The ``torch.onnx.ONNXProgram`` that ``torch.onnx.export`` returned.
    path
        The ONNX file.
    largest
        Bytes that one file can hold, usually :data:`LARGEST`.
    """
    weights = (value.const_value for value in found.model.graph.initializers.values())
    size = sum(weight.nbytes for weight in weights if weight is not None)
    if size <= min(_SMALL, largest - _MARGIN):
        write_bytes(path, found.model_proto.SerializeToString())
        return
    import onnx_ir

    with replacing(path) as temporary:
        if size + _MARGIN > largest:
            onnx_ir.save(found.model, temporary, external_data=f"{path.name}.0.weights")
            return
        with TemporaryDirectory(prefix=f".{path.stem[:80]}.", suffix=".partial", dir=path.parent) as folder:
            apart = Path(folder, "model.onnx")
            onnx_ir.save(found.model, apart, external_data="weights")
            write_joined(read_onnx(apart), temporary)
