"""From the calls of several runs, recorded in order, to the times of a runtime's steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnpipe.core.operation_times import KernelTime, Nanoseconds, OperationTimes

# The first whose pattern occurs in a name tells what it computes: fused functions are named after
# all their parts.
_WORDS = (
    ("depthwise", "convolution"), ("conv(?!ert)", "convolution"), ("attention", "attention"), ("matmul", "product"),
    ("dense", "product"), ("(?<!quantize_)linear", "product"), ("addmm", "product"), ("gemm", "product"),
    ("bmm", "product"), ("lstm", "lstm"), ("gru", "gru"), ("softmax", "softmax"), ("pool", "pooling"),
    ("norm", "normalisation"), ("mean", "reduction"), ("sum", "reduction"), ("reduction", "reduction"),
    ("resize", "resize"), ("upsample", "resize"), ("quantize", "quantisation"), ("add", "add"), ("mul", "mul"),
)  # fmt: skip


@dataclass(frozen=True)
class RecordedCall:
    """One call in a run: its name, the operator, its time in nanoseconds, and the rest of a step
    if it is known.
    """

    name: str
    operator: str
    ns: float
    sources: tuple[str, ...] = ()
    precision: str = ""


def compute_call_times(
    runs: Sequence[Sequence[RecordedCall]], walls: Nanoseconds
) -> OperationTimes:
    """Return the times of the steps; a call that occurs several times in a run is several steps.

    Parameters
    ----------
    runs
        The calls of each run, in order.
    walls
        The wall time of each run, ``(runs,)`` nanoseconds.
    """
    steps: dict[tuple[str, int], tuple[RecordedCall, Nanoseconds]] = {}
    for number, calls in enumerate(runs):
        seen: dict[str, int] = {}
        for call in calls:
            key = call.name, seen.get(call.name, 0)
            seen[call.name] = key[1] + 1
            steps.setdefault(key, (call, np.zeros(len(runs))))[1][number] += call.ns
    return OperationTimes(
        tuple(
            KernelTime(
                name if not place else f"{name} ({place + 1})",
                call.operator,
                ns,
                call.operator,
                call.precision,
                call.sources,
                computes="" if call.sources else classify_function(call.operator),
            )
            for (name, place), (call, ns) in steps.items()
        ),
        walls,
    )


def classify_function(name: str) -> str:
    """Return what a function computes by its name, as
    :attr:`~nnpipe.core.operation_times.KernelTime.computes`.

    Examples
    --------
    >>> classify_function("fused_conv2d1_add_clip"), classify_function("aten::relu_")
    ('convolution', 'relu')
    """
    found = next((word for part, word in _WORDS if re.search(part, name.lower())), None)
    return re.sub(r"^.*::|_$", "", name) if found is None else found


_COMPUTED = (
    ("convolution", "product"), ("deconvolution", "product"), ("fully connected", "product"),
    ("batch matrix multiply", "product"), ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"),
    ("softmax", "softmax"), ("mean", "reduction"), ("sum", "reduction"), ("max pooling", "pooling"),
    ("average pooling", "pooling"), ("global average pooling", "reduction"), ("resize", "resize"),
    ("concatenate", "concatenation"), ("constant pad", "pad"), ("transpose", "transpose"),
    ("static reshape", "reshape"), ("convert", "quantisation"), ("sigmoid", "logistic"), ("tanh", "tanh"),
)  # fmt: skip
_PRECISIONS = {
    "F32": "float32",
    "F16": "float16",
    "QU8": "uint8",
    "QS8": "int8",
    "QC8": "int8",
    "QD8": "int8",
}
_TYPE = re.compile(r"[FQ][A-Z]*\d+")


def parse_xnnpack_name(name: str) -> tuple[str, str, str]:
    """Return the operator, what it computes, and the type of its numbers.

    Examples
    --------
    >>> parse_xnnpack_name("Fully Connected (NC, QS8, QC8W) GEMM")
    ('Fully Connected', 'product', 'int8')
    """
    operator, _, rest = name.partition(" (")
    types = _TYPE.findall(rest)
    computed = next((word for start, word in _COMPUTED if operator.lower().startswith(start)), "")
    return operator, computed, _PRECISIONS.get(types[0], types[0]) if types else ""
