"""The operators that become C, by their codes in TensorFlow Lite's schema."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.compilers._c_code.operators import (
    choices,
    convolutions,
    moves,
    pairs,
    pooling,
    reductions,
    resizing,
    transposed,
    unary,
)
from nnpipe.compilers._c_code.step import Builder

BUILDERS: Mapping[int, tuple[str, Builder]] = {
    0: ("ADD", pairs.add),
    1: ("AVERAGE_POOL_2D", pooling.average_pool_2d),
    2: ("CONCATENATION", moves.concatenation),
    3: ("CONV_2D", convolutions.conv_2d),
    4: ("DEPTHWISE_CONV_2D", convolutions.depthwise_conv_2d),
    6: ("DEQUANTIZE", unary.dequantize),
    9: ("FULLY_CONNECTED", convolutions.fully_connected),
    14: ("LOGISTIC", unary.logistic),
    17: ("MAX_POOL_2D", pooling.max_pool_2d),
    18: ("MUL", pairs.mul),
    19: ("RELU", unary.relu),
    20: ("RELU_N1_TO_1", unary.relu_n1_to_1),
    21: ("RELU6", unary.relu6),
    22: ("RESHAPE", moves.reshape),
    23: ("RESIZE_BILINEAR", resizing.resize_bilinear),
    25: ("SOFTMAX", pooling.softmax),
    28: ("TANH", unary.tanh),
    34: ("PAD", moves.pad),
    39: ("TRANSPOSE", moves.transpose),
    40: ("MEAN", reductions.mean),
    41: ("SUB", pairs.sub),
    43: ("SQUEEZE", moves.reshape),
    45: ("STRIDED_SLICE", moves.strided_slice),
    53: ("CAST", unary.cast),
    55: ("MAXIMUM", choices.maximum),
    56: ("ARG_MAX", choices.arg_max),
    57: ("MINIMUM", choices.minimum),
    60: ("PADV2", moves.pad),
    65: ("SLICE", moves.slice_of),
    67: ("TRANSPOSE_CONV", transposed.transpose_conv),
    70: ("EXPAND_DIMS", moves.reshape),
    79: ("ARG_MIN", choices.arg_min),
    83: ("PACK", moves.pack),
    97: ("RESIZE_NEAREST_NEIGHBOR", resizing.resize_nearest_neighbor),
    98: ("LEAKY_RELU", unary.leaky_relu),
    114: ("QUANTIZE", unary.quantize),
}
