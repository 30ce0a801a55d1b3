"""The options of TensorFlow Lite's operators that tell what they cost: strides, windows and fused activations.

Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).
"""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.formats._flatbuffer import FlatBufferTable

_OPERATOR_OPTIONS = 4
_LARGEST = 1 << 20
# Field, format and default, by option and by operator code.
_Field = tuple[int, str, int]
_CONVOLUTION: dict[str, _Field] = {
    "stride_w": (1, "<i", 1), "stride_h": (2, "<i", 1), "activation": (3, "<b", 0),
    "dilation_w": (4, "<i", 1), "dilation_h": (5, "<i", 1),
}  # fmt: skip
_POOL: dict[str, _Field] = {
    "stride_w": (1, "<i", 1), "stride_h": (2, "<i", 1), "filter_w": (3, "<i", 1), "filter_h": (4, "<i", 1),
    "activation": (5, "<b", 0),
}  # fmt: skip
_CONVOLUTION_3D: dict[str, _Field] = {
    "stride_d": (1, "<i", 1), "stride_w": (2, "<i", 1), "stride_h": (3, "<i", 1), "activation": (4, "<b", 0),
    "dilation_d": (5, "<i", 1), "dilation_w": (6, "<i", 1), "dilation_h": (7, "<i", 1),
}  # fmt: skip
_ACTIVATION: dict[str, _Field] = {"activation": (0, "<b", 0)}
_FIELDS: Mapping[int, Mapping[str, _Field]] = {
    0: _ACTIVATION,  # ADD
    1: _POOL,  # AVERAGE_POOL_2D
    3: _CONVOLUTION,  # CONV_2D
    4: {  # DEPTHWISE_CONV_2D
        "stride_w": (1, "<i", 1), "stride_h": (2, "<i", 1), "activation": (4, "<b", 0),
        "dilation_w": (5, "<i", 1), "dilation_h": (6, "<i", 1),
    },
    9: _ACTIVATION,  # FULLY_CONNECTED
    12: _POOL,  # L2_POOL_2D
    17: _POOL,  # MAX_POOL_2D
    18: _ACTIVATION,  # MUL
    41: _ACTIVATION,  # SUB
    42: _ACTIVATION,  # DIV
    67: {"stride_w": (1, "<i", 1), "stride_h": (2, "<i", 1), "activation": (3, "<b", 0)},  # TRANSPOSE_CONV
    126: {"adjoint_first": (0, "<b", 0), "adjoint_second": (1, "<b", 0)},  # BATCH_MATMUL
    132: _CONVOLUTION_3D,  # CONV_3D
    135: _CONVOLUTION_3D,  # CONV_3D_TRANSPOSE
}  # fmt: skip


def options_of(operator: FlatBufferTable, code: int) -> Mapping[str, int]:
    """Return the options of an operator that are known here, with the schema's defaults for those left out.

    Numbers that no network has, as in damaged files, are left out.
    """
    known = _FIELDS.get(code)
    table = operator.table(_OPERATOR_OPTIONS) if known else None
    if known is None or table is None:
        return {}
    found = {name: table.integer(field, form) or default for name, (field, form, default) in known.items()}
    return {name: value for name, value in found.items() if 0 <= value <= _LARGEST}
