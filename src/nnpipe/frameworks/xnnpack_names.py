"""What XNNPACK's names of operators say: LiteRT and ExecuTorch give them with their times."""

from __future__ import annotations

import re

_COMPUTED = (
    ("convolution", "product"), ("deconvolution", "product"), ("fully connected", "product"),
    ("batch matrix multiply", "product"), ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"),
    ("softmax", "softmax"), ("mean", "reduction"), ("sum", "reduction"), ("max pooling", "pooling"),
    ("average pooling", "pooling"), ("global average pooling", "reduction"), ("resize", "resize"),
    ("concatenate", "concatenation"), ("constant pad", "pad"), ("transpose", "transpose"),
    ("static reshape", "reshape"), ("convert", "quantisation"), ("sigmoid", "logistic"), ("tanh", "tanh"),
)  # fmt: skip
_PRECISIONS = {"F32": "float32", "F16": "float16", "QU8": "uint8", "QS8": "int8", "QC8": "int8", "QD8": "int8"}
_TYPE = re.compile(r"[FQ][A-Z]*\d+")


def xnnpack_operator(name: str) -> tuple[str, str, str]:
    """Return the operator, what it computes, and the type of its numbers.

    Examples
    --------
    >>> xnnpack_operator("Fully Connected (NC, QS8, QC8W) GEMM")
    ('Fully Connected', 'product', 'int8')
    """
    operator, _, rest = name.partition(" (")
    types = _TYPE.findall(rest)
    computed = next((word for start, word in _COMPUTED if operator.lower().startswith(start)), "")
    return operator, computed, _PRECISIONS.get(types[0], types[0]) if types else ""
