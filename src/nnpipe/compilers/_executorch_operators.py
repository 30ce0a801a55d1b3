"""Operators that ExecuTorch computes slowly."""

from __future__ import annotations

import re
from typing import Any

_LABOURING = (
    "convolution", "addmm", "bmm", "mm", "linear", "pool", "norm", "softmax", "gelu", "erf", "upsample", "grid_sampler",
)  # fmt: skip
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


def fit_windows(program: Any) -> None:
    """Cut windows of average pooling that reach beyond all of their input; the result is the same.

    ExecuTorch's kernel visits every place of a window, also outside of the input: 640 x 640
    places for an input of 2 x 2 take 0.26 s (ExecuTorch 1.5).

    Parameters
    ----------
    program
        A ``torch.export.ExportedProgram``; it is changed.
    """
    import torch

    for node in program.graph.nodes:
        if node.target is not torch.ops.aten.avg_pool2d.default:
            continue
        lengths = node.args[0].meta["val"].shape[-2:]
        windows = tuple(node.args[1]) * (2 // len(node.args[1]))
        given = dict(
            zip(("stride", "padding", "ceil_mode", "count_include_pad", "divisor"), node.args[2:], strict=False)
        )
        padding = given.get("padding", 0)
        whole = all(
            isinstance(length, int) and window >= length for window, length in zip(windows, lengths, strict=True)
        )
        if whole and given.get("divisor") is None and padding in (0, [0], [0, 0]):
            node.args = (node.args[0], list(lengths), list(lengths))


def slow_parts(program: Any, lowered: Any) -> list[str]:
    """Return in short texts what takes long in a program for ExecuTorch.

    Parameters
    ----------
    program
        The ``torch.export.ExportedProgram`` before it was lowered.
    lowered
        That of the ``EdgeProgramManager`` after partitioning.
    """
    found = ["recurrent layers are unrolled into their steps"] if _RECURRENT & set(_operators(program)) else []
    portable = [name for name in _operators(lowered) if any(part in name for part in _LABOURING)]
    return found + ([f"portable kernels for {', '.join(portable)}"] if portable else [])


def _operators(program: Any) -> list[str]:
    """Return the names of the operators that no backend took, each once."""
    names = (str(node.target) for node in program.graph.nodes if node.op == "call_function")
    found = (re.search(r"\baten\.(\w+)", name) for name in names)
    return list(dict.fromkeys(match[1] for match in found if match))
