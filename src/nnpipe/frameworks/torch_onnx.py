"""Exporting PyTorch programs to ONNX, and writing them, with weights of more than 2 GB in a file
of their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.files import build_temporary_path, replace_atomically, write_bytes
from nnpipe.core.messages import format_one_line
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_external_data import write_joined

LARGEST = (1 << 31) - 1
"""Bytes that one ONNX file can hold, a limit of protocol buffers."""

_MARGIN = 64 << 20  # bytes for the graph itself
_SMALL = 64 << 20  # bytes of weights of which copies in memory do no harm


# Colours of terminals, and where PyTorch says in which of its own files something happened.
_DECORATION = re.compile(
    r"\x1b\[[0-9;]*m|Original traceback:.*|Use tlparse.*|\(Refer to the full.*", re.DOTALL
)


def find_export_cause(error: BaseException) -> str:
    """Return in one line why an export failed: the first cause, since PyTorch's own message is
    mostly instructions.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return format_one_line(_DECORATION.sub("", str(error)) or type(error).__name__)


@contextmanager
def mark_whole_pools(program: Any) -> Iterator[None]:
    """Let ``torch.export.ExportedProgram`` say of average pools that they cover the whole image,
    during the block.

    Some networks, such as transformers' EfficientNet, pool with windows far larger than the image.
    PyTorch takes the mean of what is there; OpenVINO refuses such an ``AveragePool``, and quantised
    ONNX divides by the whole window.
    """
    import torch

    aten, found = torch.ops.aten, []
    for node in program.graph.nodes:
        if node.target is aten.avg_pool2d.default and _is_whole_pool(*node.args):
            found.append((node, node.args))
            node.target, node.args = aten.adaptive_avg_pool2d.default, (node.args[0], [1, 1])
    program.graph_module.recompile()
    try:
        yield
    finally:
        for node, arguments in found:
            node.target, node.args = aten.avg_pool2d.default, arguments
        program.graph_module.recompile()


def _is_whole_pool(
    image: Any, window: Any, stride: Any = (), padding: Any = (), *rest: Any
) -> bool:
    """Return whether a pool's only window holds the whole image, and the mean is over the image
    alone.
    """
    sides, divisor = image.meta["val"].shape[-2:], rest[2] if len(rest) > 2 else None
    if divisor is not None or any(padding) or not all(isinstance(side, int) for side in sides):
        return False
    return all(length >= side for length, side in zip((*window, *window)[:2], sides, strict=True))


def write_exported(found: Any, path: Path, largest: int) -> None:
    """Write an exported model.

    Large weights are written one after another, so that no copy of all of them is made in memory.
    Those that do not fit into one file stand in ``NAME.0.weights`` beside it; the model is written
    last, so that it never exists without them.

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

    with replace_atomically(path) as temporary:
        if size + _MARGIN > largest:
            onnx_ir.save(found.model, temporary, external_data=f"{path.name}.0.weights")
            return
        folder = build_temporary_path(path, suffix="")
        folder.mkdir()
        try:
            onnx_ir.save(found.model, folder / "model.onnx", external_data="weights")
            write_joined(read_onnx(folder / "model.onnx"), temporary)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
