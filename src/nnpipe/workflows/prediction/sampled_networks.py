"""Random small networks whose kernels are measured, so that those of other networks can be
estimated.

A kernel that runs alone, again and again, finds its weights and values in the caches, and in the
layout that it likes best.  Between other kernels it does not.  So kernels are drawn as parts of
small networks, of the kinds that are common today, with random sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnpipe.frameworks.onnx_graph_values import ONNXBuilder

_LARGEST_WEIGHTS = 4 << 20  # numbers in one tensor of weights
_MOST_MACS = 150_000_000  # of one product


class NetworkSampler(ONNXBuilder):
    """Draws parts of networks; a value is its name with its shape."""

    def choose(self, *choices: int) -> int:
        """Draw one of these numbers."""
        return int(self.random.choice(choices))

    def draw_bool(self, share: float) -> bool:
        """Draw true with this probability."""
        return bool(self.random.random() < share)

    def width(self, low: int, high: int) -> int:
        """Draw a number of channels, as often small as large: mostly a multiple of 8 or 16, as
        networks have.
        """
        drawn = math.exp(self.random.uniform(math.log(low), math.log(high)))
        of = self.choose(1, 2, 4, 8, 8, 16, 16, 16)
        return max(low, round(drawn / of) * of)

    def activation(self, x: str, *words: str) -> str:
        """Add one of these activations, in one of the forms in which exporters write it."""
        word = str(self.random.choice(words))
        if word == "clip":
            low, high = (
                self.constant(np.array(0, np.float32)),
                self.constant(np.array(6, np.float32)),
            )
            return self.add("Clip", x, low, high)
        if word == "silu":
            return self.add("Mul", x, self.add("Sigmoid", x))
        if word == "gelu":
            root, one, half, other = (
                self.constant(np.array(value, np.float32))
                for value in (math.sqrt(2), 1, 0.5, math.sqrt(0.5))
            )
            if self.draw_bool(0.4):
                return self.add("Gelu", x)
            if self.draw_bool(0.5):  # as torch.onnx writes it
                inner = self.add("Add", self.add("Erf", self.add("Mul", x, other)), one)
                return self.add("Mul", self.add("Mul", x, half), inner)
            inner = self.add("Add", self.add("Erf", self.add("Div", x, root)), one)
            return self.add("Mul", self.add("Mul", x, inner), half)
        return x if word == "none" else self.add(word, x)

    def convolution(
        self,
        x: str,
        shape: tuple[int, ...],
        out: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
    ) -> tuple[str, tuple[int, ...]]:
        """Add a convolution with a bias over all axes behind the channels, padded so that
        strides alone shrink it.
        """
        axes = len(shape) - 2
        pad = (kernel - 1) * dilation // 2
        weights = self.weights(out, shape[1] // groups, *[kernel] * axes)
        y = self.add(
            "Conv",
            x,
            weights,
            self.weights(out),
            kernel_shape=[kernel] * axes,
            strides=[stride] * axes,
            pads=[pad] * axes * 2,
            group=groups,
            dilations=[dilation] * axes,
        )
        if self.draw_bool(0.15):  # most exporters fold it
            y = self.add_normalisation(y, out)
        reach = (kernel - 1) * dilation + 1
        return y, (
            shape[0],
            out,
            *((length + 2 * pad - reach) // stride + 1 for length in shape[2:]),
        )

    def add_normalisation(self, x: str, channels: int) -> str:
        """Add a batch normalisation."""
        means = [self.weights(channels, mean=value) for value in (1, 0, 0)]
        return self.add(
            "BatchNormalization", x, *means, self.constant(np.ones(channels, np.float32))
        )

    def reduce_channels(
        self, shape: tuple[int, ...], out: int, kernel: int, stride: int = 1
    ) -> int:
        """Return a number of channels out, at most ``out``, with which a convolution is no
        larger than allowed.
        """
        axes = len(shape) - 2
        positions = math.prod(-(-length // stride) for length in shape[2:])
        one = shape[1] * kernel**axes
        most = min(_MOST_MACS // (positions * one), _LARGEST_WEIGHTS // one)
        return out if out <= most else max(4, most // 16 * 16)

    def dense(self, x: str, rows: int, given: int, units: int) -> str:
        """Add a product with a matrix and a bias, as frameworks write it for one axis of samples
        or for several.
        """
        if self.draw_bool(0.5):
            return self.add("Gemm", x, self.weights(units, given), self.weights(units), transB=1)
        return self.add(
            "Add", self.add("MatMul", x, self.weights(given, units)), self.weights(units)
        )


def _add_input(b: NetworkSampler) -> tuple[str, tuple[int, ...]]:
    side = b.choose(24, 28, 32, 48, 64, 96, 112, 128, 160, 192, 224)
    shape: tuple[int, ...] = (1, b.choose(1, 3, 3), side, side)
    return b.input(shape), shape


def _add_stem(b: NetworkSampler) -> tuple[str, tuple[int, ...]]:
    x, shape = _add_input(b)
    stride = 2 if shape[2] > 48 else b.choose(1, 2)
    x, shape = b.convolution(x, shape, b.width(8, 64), b.choose(3, 3, 5, 7), stride)
    x = b.activation(x, "Relu", "clip", "HardSwish", "silu")
    if b.draw_bool(0.3):
        x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        shape = (*shape[:2], *((length - 1) // 2 + 1 for length in shape[2:]))
    return x, shape


def _start_middle(b: NetworkSampler) -> tuple[str, tuple[int, ...]]:
    """Begin within a network, where pictures are small and have many channels."""
    side = b.choose(4, 7, 8, 12, 14, 16, 20, 28, 56)
    shape: tuple[int, ...] = (1, b.width(16, 1024 if side < 15 else 256), side, side)
    x = b.input(shape)
    return b.convolution(x, shape, b.reduce_channels(shape, shape[1], 1), 1)


def _start_network(b: NetworkSampler) -> tuple[str, tuple[int, ...]]:
    return _add_stem(b) if b.draw_bool(0.5) else _start_middle(b)


def _add_classifier(b: NetworkSampler, x: str, shape: tuple[int, ...]) -> str:
    if b.draw_bool(0.6):
        return x
    axes = b.constant(np.arange(2, len(shape)))
    x = (
        b.add("GlobalAveragePool", x)
        if b.draw_bool(0.5)
        else b.add("ReduceMean", x, axes, keepdims=1)
    )
    x = b.add("Flatten", x)
    x = b.dense(x, 1, shape[1], b.choose(2, 10, 100, 1000))
    return b.add("Softmax", x, axis=1) if b.draw_bool(0.5) else x


def build_residual(b: NetworkSampler) -> str:
    """Return a network of two or three convolutions beside an addition."""
    x, shape = _start_network(b)
    for _ in range(2):
        stride = b.choose(1, 1, 2) if shape[2] > 8 else 1
        kernel = b.choose(3, 3, 3, 5)
        out = b.reduce_channels(shape, b.width(16, 512), kernel, stride)
        if b.draw_bool(0.4):  # a bottleneck
            inner, groups = max(8, out // 4 // 4 * 4), 1
            if b.draw_bool(0.5):
                groups = b.choose(2, 4, 8, 16, 32)
                inner = groups * b.choose(4, 8, 8, 16, 24)
            y, inside = b.convolution(x, shape, inner, 1)
            y, inside = b.convolution(b.add("Relu", y), inside, inner, kernel, stride, groups)
            y, inside = b.convolution(b.add("Relu", y), inside, out, 1)
        else:
            y, inside = b.convolution(x, shape, out, kernel, stride)
            y, inside = b.convolution(
                b.add("Relu", y), inside, b.reduce_channels(inside, out, kernel), kernel
            )
        if inside[1] != shape[1] or stride > 1:
            x, shape = b.convolution(x, shape, inside[1], 1, stride)
        x, shape = b.add("Relu", b.add("Add", y, x)), inside
    return _add_classifier(b, x, shape)


def build_mobile(b: NetworkSampler) -> str:
    """Return a network of depthwise convolutions between pointwise ones, with or without gates
    of channels.
    """
    x, shape = _start_network(b)
    word = str(b.random.choice(("Relu", "clip", "HardSwish", "silu")))
    gated = b.draw_bool(0.5)
    for _ in range(2):
        start, before = x, shape
        x, shape = b.convolution(
            x, shape, b.reduce_channels(shape, shape[1] * b.choose(1, 3, 4, 6), 1), 1
        )
        x = b.activation(x, word)
        x, shape = b.convolution(
            x, shape, shape[1], b.choose(3, 3, 5, 7), b.choose(1, 1, 2), groups=shape[1]
        )
        x = b.activation(x, word)
        if gated:
            inner = max(4, shape[1] // b.choose(4, 8, 16))
            y, small = b.convolution(b.add("GlobalAveragePool", x), (*shape[:2], 1, 1), inner, 1)
            y, _ = b.convolution(b.add("Relu", y), small, shape[1], 1)
            x = b.add("Mul", x, b.activation(y, "Sigmoid", "HardSigmoid"))
        out = (
            before[1]
            if shape[2:] == before[2:] and b.draw_bool(0.7)
            else b.reduce_channels(shape, b.width(16, 256), 1)
        )
        x, shape = b.convolution(x, shape, out, 1)
        if shape == before:
            x = b.add("Add", x, start)
    return _add_classifier(b, x, shape)


def build_branches(b: NetworkSampler) -> str:
    """Return a network of branches that are joined, with poolings and normalisations that cannot
    be folded.
    """
    x, shape = _start_network(b)
    for _ in range(2):
        y = x
        if b.draw_bool(0.6):
            y = b.add("Relu", b.add_normalisation(y, shape[1]))
        kernel = b.choose(1, 3, 3, 5)
        y, inside = b.convolution(
            y, shape, b.reduce_channels(shape, b.width(8, 64), kernel), kernel
        )
        x = b.add("Concat", x, b.activation(y, "Relu", "none", "LeakyRelu"), axis=1)
        shape = (1, shape[1] + inside[1], *inside[2:])
        if min(shape[2:]) > 8 and b.draw_bool(0.5):
            size = b.choose(2, 3)
            x = b.add(
                b.random.choice(("MaxPool", "AveragePool")),
                x,
                kernel_shape=[size] * 2,
                strides=[2, 2],
            )
            shape = (*shape[:2], *((length - size) // 2 + 1 for length in shape[2:]))
    return _add_classifier(b, x, shape)


def build_dense(b: NetworkSampler) -> str:
    """Return layers of products with matrices."""
    rows, width = b.choose(1, 1, 1, 8, 32), b.width(16, 1024)
    x = b.input((rows, width))
    for _ in range(4):
        units = b.width(16, b.choose(512, 1024, 2048))
        x = b.dense(x, rows, width, units)
        x, width = b.activation(x, "Relu", "Tanh", "Sigmoid", "gelu", "LeakyRelu"), units
    return b.add("Softmax", b.dense(x, rows, width, b.choose(4, 10, 100)), axis=1)


def build_attention(b: NetworkSampler) -> str:
    """Return a block of a transformer."""
    heads, depth, length = (
        b.choose(2, 3, 4, 8, 12),
        b.choose(16, 32, 64),
        b.choose(16, 49, 64, 128, 197, 256),
    )
    width = heads * depth
    x = b.input((1, length, width))
    y = _add_layer_normalisation(b, x, width)
    parts = []
    for place in range(3):
        z = b.add("Add", b.add("MatMul", y, b.weights(width, width)), b.weights(width))
        z = b.add("Reshape", z, b.constant(np.array([1, length, heads, depth], np.int64)))
        parts.append(b.add("Transpose", z, perm=[0, 2, 3, 1] if place == 1 else [0, 2, 1, 3]))
    scores = b.add("MatMul", parts[0], parts[1])
    scale = b.constant(np.array(math.sqrt(depth), np.float32))
    z = b.add("MatMul", b.add("Softmax", b.add("Div", scores, scale), axis=-1), parts[2])
    z = b.add("Transpose", z, perm=[0, 2, 1, 3])
    z = b.add("Reshape", z, b.constant(np.array([1, length, width], np.int64)))
    z = b.add("Add", b.add("MatMul", z, b.weights(width, width)), b.weights(width))
    x = b.add("Add", z, x)
    inner = width * b.choose(2, 4)
    y = b.add(
        "Add",
        b.add("MatMul", _add_layer_normalisation(b, x, width), b.weights(width, inner)),
        b.weights(inner),
    )
    y = b.activation(y, "gelu", "Relu")
    y = b.add("Add", b.add("MatMul", y, b.weights(inner, width)), b.weights(width))
    return _add_layer_normalisation(b, b.add("Add", y, x), width)


def _add_layer_normalisation(b: NetworkSampler, x: str, width: int) -> str:
    return b.add(
        "LayerNormalization", x, b.weights(width, mean=1), b.weights(width), axis=-1, epsilon=1e-5
    )


def build_series(b: NetworkSampler) -> str:
    """Return convolutions along one axis."""
    shape: tuple[int, ...] = (1, b.width(1, 64), b.choose(64, 128, 256, 512, 1024, 4000))
    x = b.input(shape)
    for _ in range(3):
        kernel, stride, dilation = b.choose(1, 3, 5, 7, 9), b.choose(1, 1, 2), b.choose(1, 1, 2, 4)
        depthwise = b.draw_bool(0.3)
        out = shape[1] if depthwise else b.reduce_channels(shape, b.width(8, 256), kernel, stride)
        groups = shape[1] if depthwise else 1
        x, shape = b.convolution(x, shape, out, kernel, stride, groups, dilation)
        x = b.activation(x, "Relu", "Relu", "silu", "Tanh")
        if shape[2] > 16 and b.draw_bool(0.4):
            x = b.add("MaxPool", x, kernel_shape=[2], strides=[2])
            shape = (*shape[:2], (shape[2] - 2) // 2 + 1)
    return _add_classifier(b, x, shape)


def build_recurrent(b: NetworkSampler) -> str:
    """Return layers with a state."""
    steps, width = b.choose(8, 16, 32, 64), b.width(8, 128)
    x = b.input((steps, 1, width))
    kind, gates = (("LSTM", 4), ("GRU", 3))[b.choose(0, 1)]
    for _ in range(2):
        units = b.width(8, 256)
        directions = b.choose(1, 1, 2)
        y = b.add(
            kind,
            x,
            b.weights(directions, gates * units, width),
            b.weights(directions, gates * units, units),
            b.weights(directions, 2 * gates * units),
            hidden_size=units,
            direction="forward" if directions == 1 else "bidirectional",
        )
        width = directions * units
        y = b.add("Transpose", y, perm=[0, 2, 1, 3])
        x = b.add("Reshape", y, b.constant(np.array([steps, 1, width], np.int64)))
    last = b.add("Gather", x, b.constant(np.array(steps - 1, np.int64)), axis=0)
    return b.dense(last, 1, width, b.choose(2, 10, 100))


def build_encoder_decoder(b: NetworkSampler) -> str:
    """Return a network that makes pictures smaller and larger again."""
    side = b.choose(16, 24, 32, 48)
    shape: tuple[int, ...] = (1, b.width(8, 128), side, side)
    x = b.input(shape)
    for _ in range(2):
        x, shape = b.convolution(
            x, shape, b.reduce_channels(shape, b.width(16, 128), 3), 3, dilation=b.choose(1, 1, 2)
        )
        x = b.add("Relu", x)
        if b.draw_bool(0.5):
            scales = b.constant(np.array([1, 1, 2, 2], np.float32))
            mode = str(b.random.choice(("nearest", "linear")))
            x = b.add(
                "Resize",
                x,
                "",
                scales,
                mode=mode,
                coordinate_transformation_mode="asymmetric" if mode == "nearest" else "half_pixel",
                nearest_mode="floor",
            )
            shape = (*shape[:2], shape[2] * 2, shape[3] * 2)
        else:
            out = max(8, shape[1] // 2)
            x = b.add(
                "ConvTranspose",
                x,
                b.weights(shape[1], out, 2, 2),
                kernel_shape=[2, 2],
                strides=[2, 2],
            )
            shape = (1, out, shape[2] * 2, shape[3] * 2)
    x, shape = b.convolution(x, shape, b.choose(1, 2, 4, 21), 1)
    return b.add("Sigmoid", x)


FAMILIES: dict[str, tuple[Callable[[NetworkSampler], str], float]] = {
    "residual": (build_residual, 6),
    "mobile": (build_mobile, 6),
    "joined": (build_branches, 3),
    "dense": (build_dense, 3),
    "attention": (build_attention, 2.5),
    "series": (build_series, 2.5),
    "recurrent": (build_recurrent, 2),
    "enlarging": (build_encoder_decoder, 1.5),
}
"""What draws a network, by family, and how often compared with the others."""


def get_family(number: int) -> str:
    """Return the family of a network by its number: each has its share of any first few."""
    most = sum(share for _, share in FAMILIES.values())
    taken = dict.fromkeys(FAMILIES, 0.0)
    found = ""
    for place in range(number + 1):
        found = max(FAMILIES, key=lambda name: FAMILIES[name][1] / most * (place + 1) - taken[name])
        taken[found] += 1
    return found


def sample_network(number: int, seed: int = 0) -> bytes:
    """Return the content of an ONNX file with a random network; number and seed determine it."""
    builder = NetworkSampler(np.random.default_rng((seed, number)))
    return builder.model(FAMILIES[get_family(number)][0](builder))
