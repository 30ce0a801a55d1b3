"""Writing what PyTorch's ONNX exporter returns, with weights of more than 2 GB in a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnpipe.core.files import replacing, write_bytes

LARGEST = (1 << 31) - 1
"""Bytes that one ONNX file can hold, a limit of protocol buffers."""

_MARGIN = 64 << 20  # bytes for the graph itself


def write_exported(found: Any, path: Path, largest: int) -> None:
    """Write an exported model.

    Weights that do not fit into one file are written one after another to ``NAME.0.weights`` beside it, so that no copy
    of all of them is made in memory.  The model is written last, so that it never exists without them.

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
    if sum(weight.nbytes for weight in weights if weight is not None) + _MARGIN <= largest:
        write_bytes(path, found.model_proto.SerializeToString())
        return
    import onnx_ir

    with replacing(path) as temporary:
        onnx_ir.save(found.model, temporary, external_data=f"{path.name}.0.weights")
