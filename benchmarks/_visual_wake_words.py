"""The network of MLPerf Tiny's visual wake words, a narrow MobileNetV1 for 96 x 96 pixels, with
random weights.
"""

from __future__ import annotations

import math

import numpy as np

from nnpipe.testing.integer_graphs import IntegerGraph

_LAYERS = (
    (1, 16),
    (2, 32),
    (1, 32),
    (2, 64),
    (1, 64),
    (2, 128),
    *[(1, 128)] * 5,
    (2, 256),
    (1, 256),
)
_RELU = 1
_SCALE = 6 / 255


class Network(IntegerGraph):
    """Layers whose outputs fill the range of int8, as calibration makes them."""

    def __init__(self, *shape: int) -> None:
        super().__init__(np.random.default_rng(0), "int8")
        self._tensors.clear()
        self._values = [self._tensor(shape, "int8", _SCALE, -128)]

    def convolution(self, kind: str, channels: int, size: int, stride: int) -> None:
        """Add a convolution with ReLU."""
        source = self._values[-1]
        _, height, width, depth = self._get_shape(source)
        alike = kind == "DEPTHWISE_CONV_2D"
        shape, axis = ([1, size, size, depth], 3) if alike else ([channels, size, size, depth], 0)
        extra = self._filled(
            self._add_weights(shape, channels, axis, source), size * size * (1 if alike else depth)
        )
        made = self._tensor(
            [1, -(-height // stride), -(-width // stride), channels], "int8", _SCALE, -128
        )
        fields = {
            "padding": 0,
            "strideH": stride,
            "strideW": stride,
            "fusedActivationFunction": _RELU,
        }
        fields |= {"dilationHFactor": 1, "dilationWFactor": 1} | (
            {"depthMultiplier": 1} if alike else {}
        )
        options = "DepthwiseConv2DOptions" if alike else "Conv2DOptions"
        self._add_operator(kind, [source, *extra], made, options, **fields)

    def sum(self, back: int) -> None:
        """Add the sum of the last value and of one that is some operators older."""
        first, second = self._values[-1 - back], self._values[-1]
        made = self._tensor(self._get_shape(second), "int8", _SCALE, -128)
        self._add_operator("ADD", [first, second], made, "AddOptions")

    def _filled(self, extra: list[int], products: int) -> list[int]:
        """Return weights and bias with such scales that outputs of the scale of the input fill
        the range.
        """
        # Even numbers of 8 bits deviate by 74.
        factor = 2 / (74 * math.sqrt(products))
        for number, held in zip(extra, (1.0, _SCALE), strict=True):
            quantization = self._tensors[number].quantization
            scales = np.asarray(quantization.scale)
            quantization.scale = np.float32(scales / scales.max() * factor * held)
        return extra

    def end(self) -> None:
        """Add the mean of all places, and a dense layer of two classes with softmax."""
        source = self._values[-1]
        _, height, width, depth = self._get_shape(source)
        fields = {
            "padding": 1,
            "strideH": 1,
            "strideW": 1,
            "filterHeight": height,
            "filterWidth": width,
        }
        mean = self._add_value([1, 1, 1, depth], like=source)
        self._add_operator(
            "AVERAGE_POOL_2D", [source], mean, "Pool2DOptions", fusedActivationFunction=0, **fields
        )
        extra = self._filled(self._add_weights([2, depth], 2, -1, mean), depth)
        made = self._tensor([1, 2], "int8", _SCALE, 0)
        self._add_operator(
            "FULLY_CONNECTED",
            [mean, *extra],
            made,
            "FullyConnectedOptions",
            fusedActivationFunction=0,
        )
        self._add_softmax(self._values[-1])


def visual_wake_words() -> bytes:
    """Return the network as a TensorFlow Lite file; it is always the same."""
    network = Network(1, 96, 96, 3)
    network.convolution("CONV_2D", 8, 3, 2)
    depth = 8
    for stride, channels in _LAYERS:
        network.convolution("DEPTHWISE_CONV_2D", depth, 3, stride)
        network.convolution("CONV_2D", channels, 1, 1)
        depth = channels
    network.end()
    return network.content()
