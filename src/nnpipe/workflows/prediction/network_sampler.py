"""Drawing parts of random networks, as ONNX."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.frameworks.onnx_builder import ONNXBuilder

_LARGEST_WEIGHTS = 4 << 20  # numbers in one tensor of weights
_MOST_MACS = 150_000_000  # of one product


class NetworkSampler(ONNXBuilder):
    """Draws parts of networks; a value is its name with its shape."""

    def pick(self, *choices: int) -> int:
        """Draw one of these numbers."""
        return int(self.random.choice(choices))

    def chance(self, share: float) -> bool:
        """Draw true with this probability."""
        return bool(self.random.random() < share)

    def width(self, low: int, high: int) -> int:
        """Draw a number of channels, as often small as large: mostly a multiple of 8 or 16, as networks have."""
        drawn = math.exp(self.random.uniform(math.log(low), math.log(high)))
        of = self.pick(1, 2, 4, 8, 8, 16, 16, 16)
        return max(low, round(drawn / of) * of)

    def activation(self, x: str, *words: str) -> str:
        """Add one of these activations, in one of the forms in which exporters write it."""
        word = str(self.random.choice(words))
        if word == "clip":
            low, high = self.constant(np.array(0, np.float32)), self.constant(np.array(6, np.float32))
            return self.add("Clip", x, low, high)
        if word == "silu":
            return self.add("Mul", x, self.add("Sigmoid", x))
        if word == "gelu":
            root, one, half, other = (
                self.constant(np.array(value, np.float32)) for value in (math.sqrt(2), 1, 0.5, math.sqrt(0.5))
            )
            if self.chance(0.4):
                return self.add("Gelu", x)
            if self.chance(0.5):  # as torch.onnx writes it
                inner = self.add("Add", self.add("Erf", self.add("Mul", x, other)), one)
                return self.add("Mul", self.add("Mul", x, half), inner)
            inner = self.add("Add", self.add("Erf", self.add("Div", x, root)), one)
            return self.add("Mul", self.add("Mul", x, inner), half)
        return x if word == "none" else self.add(word, x)

    def convolution(
        self, x: str, shape: tuple[int, ...], out: int, kernel: int, stride: int = 1, groups: int = 1, dilation: int = 1
    ) -> tuple[str, tuple[int, ...]]:
        """Add a convolution with a bias over all axes behind the channels, padded so that strides alone shrink it."""
        axes = len(shape) - 2
        pad = (kernel - 1) * dilation // 2
        weights = self.weights(out, shape[1] // groups, *[kernel] * axes)
        y = self.add(
            "Conv", x, weights, self.weights(out), kernel_shape=[kernel] * axes, strides=[stride] * axes,
            pads=[pad] * axes * 2, group=groups, dilations=[dilation] * axes,
        )  # fmt: skip
        if self.chance(0.15):  # most exporters fold it
            y = self.normalisation(y, out)
        reach = (kernel - 1) * dilation + 1
        return y, (shape[0], out, *((length + 2 * pad - reach) // stride + 1 for length in shape[2:]))

    def normalisation(self, x: str, channels: int) -> str:
        """Add a batch normalisation."""
        means = [self.weights(channels, mean=value) for value in (1, 0, 0)]
        return self.add("BatchNormalization", x, *means, self.constant(np.ones(channels, np.float32)))

    def affordable(self, shape: tuple[int, ...], out: int, kernel: int, stride: int = 1) -> int:
        """Return a number of channels out, at most ``out``, with which a convolution is no larger than allowed."""
        axes = len(shape) - 2
        positions = math.prod(-(-length // stride) for length in shape[2:])
        one = shape[1] * kernel**axes
        most = min(_MOST_MACS // (positions * one), _LARGEST_WEIGHTS // one)
        return out if out <= most else max(4, most // 16 * 16)

    def dense(self, x: str, rows: int, given: int, units: int) -> str:
        """Add a product with a matrix and a bias, as frameworks write it for one axis of samples or for several."""
        if self.chance(0.5):
            return self.add("Gemm", x, self.weights(units, given), self.weights(units), transB=1)
        return self.add("Add", self.add("MatMul", x, self.weights(given, units)), self.weights(units))
