"""Random integer graphs for LiteRT with the operators that are rarer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnpipe.testing.integer_graphs import IntegerGraph, generate_integer_graph


class WideIntegerGraph(IntegerGraph):
    """A graph that grows operator by operator, of int8 or uint8 and of many kinds; requires
    ``ai_edge_litert``.
    """

    def grow(self) -> None:
        """Add an operator that fits the last value; half of them are those of
        :class:`IntegerGraph`.
        """
        source = self._values[-1]
        makers: list[Callable[[int], None]] = [
            self._add_elementwise,
            self._add_transpose,
            self._add_slice,
            self._add_reduction,
            self._add_maximum,
            self._add_prelu,
        ]
        if self._dtype == "int8":
            makers += [
                self._add_l2_normalization,
                self._add_log_softmax,
                self._add_mirror_pad,
                self._add_squared_difference,
                self._add_batch_matmul,
                self._add_abs,
            ]
            if len(self._get_shape(source)) == 2:
                makers += [self._add_svdf] * 6
            if len(self._get_shape(source)) == 3:
                makers += [self._add_lstm] * 6
        if self._random.integers(2):
            super().grow()
        else:
            makers[int(self._random.integers(len(makers)))](source)

    def _add_scaled_tensor(self, shape: Sequence[int], scale: float, zero: int) -> int:
        return self._tensor(shape, self._dtype, scale, zero)

    def _draw_numbers(
        self, shape: Sequence[int], *limits: int, dtype: str = ""
    ) -> np.ndarray[Any, Any]:
        kind = dtype or self._dtype
        info = np.iinfo(kind)
        low, high = limits or (int(info.min), int(info.max) + 1)
        return self._random.integers(low, high, shape).astype(kind)

    def _add_elementwise(self, source: int) -> None:
        name, options = [
            ("RELU", ""),
            ("RELU6", ""),
            ("LEAKY_RELU", "LeakyReluOptions"),
            ("HARD_SWISH", ""),
        ][int(self._random.integers(4))]
        held = float(np.asarray(self._tensors[source].quantization.scale)[0])
        output = self._add_value(self._get_shape(source))
        # A hard swish of another scale would end the process.
        self._tensors[output].quantization.scale = np.array(
            [held * self._random.uniform(1, 2)], np.float32
        )
        fields = {"alpha": float(self._random.uniform(0, 0.5))} if options else {}
        self._add_operator(name, [source], output, options, **fields)

    def _add_abs(self, source: int) -> None:
        self._add_operator("ABS", [source], self._add_value(self._get_shape(source)), "AbsOptions")

    def _add_transpose(self, source: int) -> None:
        shape = self._get_shape(source)
        order = [int(n) for n in self._random.permutation(len(shape))]
        made = self._add_value([shape[n] for n in order], like=source)
        self._add_operator(
            "TRANSPOSE",
            [source, self._constant(np.array(order, np.int32))],
            made,
            "TransposeOptions",
        )

    def _add_slice(self, source: int) -> None:
        shape = self._get_shape(source)
        begin = [int(self._random.integers(n)) for n in shape]
        size = [
            int(self._random.integers(1, n - at + 1)) for n, at in zip(shape, begin, strict=True)
        ]
        constants = [self._constant(np.array(each, np.int32)) for each in (begin, size)]
        self._add_operator(
            "SLICE", [source, *constants], self._add_value(size, like=source), "SliceOptions"
        )

    def _add_reduction(self, source: int) -> None:
        shape = self._get_shape(source)
        axis = int(self._random.integers(len(shape)))
        made = self._add_value(
            [1 if n == axis else length for n, length in enumerate(shape)], like=source
        )
        name = str(self._random.choice(["REDUCE_MAX", "REDUCE_MIN"]))
        self._add_operator(
            name,
            [source, self._constant(np.array([axis], np.int32))],
            made,
            "ReducerOptions",
            keepDims=True,
        )

    def _add_maximum(self, source: int) -> None:
        shape, held = self._get_shape(source), self._tensors[source].quantization
        other = self._constant(self._draw_numbers(shape[-1:]), held.scale, held.zeroPoint)
        name = str(self._random.choice(["MAXIMUM", "MINIMUM"]))
        self._add_operator(
            name, [source, other], self._add_value(shape, like=source), "MaximumMinimumOptions"
        )

    def _add_prelu(self, source: int) -> None:
        shape = self._get_shape(source)
        slopes = self._draw_numbers([1] * (len(shape) - 2) + shape[-1:])
        other = self._constant(
            slopes, float(self._random.uniform(0.001, 0.02)), int(self._draw_numbers([]))
        )
        self._add_operator("PRELU", [source, other], self._add_value(shape))

    def _add_l2_normalization(self, source: int) -> None:
        made = self._add_scaled_tensor(self._get_shape(source), 1 / 128, 0)
        self._add_operator("L2_NORMALIZATION", [source], made, "L2NormOptions")

    def _add_log_softmax(self, source: int) -> None:
        self._add_operator(
            "LOG_SOFTMAX",
            [source],
            self._add_scaled_tensor(self._get_shape(source), 1 / 16, 127),
            "LogSoftmaxOptions",
        )

    def _add_mirror_pad(self, source: int) -> None:
        shape, mode = self._get_shape(source), int(self._random.integers(2))
        widths = [
            [int(n) for n in self._random.integers(0, min(length + mode, 4), 2)] for length in shape
        ]
        made = self._add_value(
            [n + sum(w) for n, w in zip(shape, widths, strict=True)], like=source
        )
        constant = self._constant(np.array(widths, np.int32))
        self._add_operator("MIRROR_PAD", [source, constant], made, "MirrorPadOptions", mode=mode)

    def _add_squared_difference(self, source: int) -> None:
        shape = self._get_shape(source)
        held = float(np.asarray(self._tensors[source].quantization.scale)[0])
        other = self._constant(
            self._draw_numbers(shape[-1:]),
            held * float(self._random.uniform(0.2, 3)),
            int(self._draw_numbers([])),
        )
        made = self._add_scaled_tensor(
            shape, min(max(held * held * 40, 1e-3), 0.25), int(self._draw_numbers([]))
        )
        self._add_operator("SQUARED_DIFFERENCE", [source, other], made, "SquaredDifferenceOptions")

    def _add_batch_matmul(self, source: int) -> None:
        shape, columns = self._get_shape(source), int(self._random.integers(1, 7))
        swapped = bool(self._random.integers(2))
        matrix = [columns, shape[-1]] if swapped else [shape[-1], columns]
        other = self._constant(
            self._draw_numbers(matrix),
            float(self._random.uniform(0.002, 0.02)),
            int(self._draw_numbers([])),
        )
        made = self._add_value([*shape[:-1], columns])
        self._add_operator(
            "BATCH_MATMUL", [source, other], made, "BatchMatMulOptions", adjY=swapped
        )

    def _state(self, shape: Sequence[int], kind: str, scale: float, zero: int) -> int:
        number = self._tensor(shape, kind, scale, zero)
        self._tensors[number].isVariable = True
        return number

    def _add_svdf(self, source: int) -> None:
        (batches, depth), (units, rank, memory) = (
            self._get_shape(source),
            map(int, self._random.integers(1, 5, 3)),
        )
        weights = [
            self._constant(self._draw_numbers([units * rank, depth], -127, 128), 0.004, 0),
            self._constant(
                self._draw_numbers([units * rank, memory], -9000, 9000, dtype="int16"), 1e-4, 0
            ),
            self._constant(self._draw_numbers([units], -3000, 3000, dtype="int32"), 1e-7, 0),
        ]
        state = self._state([batches, units * rank * memory], "int16", 0.002, 0)
        fields = {"rank": rank, "fusedActivationFunction": 1}
        self._add_operator(
            "SVDF",
            [source, *weights, state],
            self._add_scaled_tensor([batches, units], 0.02, -9),
            "SVDFOptions",
            **fields,
        )

    def _add_lstm(self, source: int) -> None:
        (first, second, depth), units = self._get_shape(source), int(self._random.integers(1, 7))
        major = bool(self._random.integers(2))
        batches = second if major else first
        weights = [
            self._constant(
                self._draw_numbers([units, width], -127, 128),
                float(self._random.uniform(0.002, 0.02)),
                0,
            )
            for width in [depth] * 4 + [units] * 4
        ]
        biases = [
            self._constant(self._draw_numbers([units], -3000, 3000, dtype="int32"), 1e-4, 0)
            for _ in range(4)
        ]
        zero = int(self._random.integers(-30, 30))
        states = [self._state([batches, units], "int8", 0.007, zero)]
        states.append(
            self._state([batches, units], "int16", 2.0 ** -int(self._random.integers(9, 16)), 0)
        )
        inputs = [source, *weights, -1, -1, -1, *biases, -1, -1, *states]
        fields = {
            "fusedActivationFunction": 4,
            "timeMajor": major,
            "cellClip": float(self._random.integers(2)),
        }
        output = self._add_scaled_tensor([first, second, units], 0.007, zero)
        self._add_operator(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            inputs,
            output,
            "UnidirectionalSequenceLSTMOptions",
            **fields,
        )
        gates = [self._tensor([], "int16", 2.0**-12, 0) for _ in range(4)]
        self._operators[-1].intermediates = [*gates, self._tensor([], "int8", 0.007, zero)]


def generate_wide_integer_graph(seed: int, operators: int = 4) -> bytes:
    """Return a TensorFlow Lite file in 8-bit numbers with operators of many kinds; equal seeds give
    equal files.

    Parameters
    ----------
    seed
        Where choices come from.
    operators
        The number of operators.
    """
    return generate_integer_graph(seed, operators, WideIntegerGraph)
