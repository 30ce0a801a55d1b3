"""Layers without windows, products of matrices and recurrent layers that C is generated for,
each as a few graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from one_operator import Case, OneOperator, quantised


def vectors_of_length_one() -> Iterator[Case]:
    graph = OneOperator([2, 3, 7], "float32")
    graph.add("L2_NORMALIZATION", ([2, 3, 7], "float32"), options="L2NormOptions")
    yield Case("float32", graph, 1e-6)
    for length, zero in ((7, 9), (300, -128), (1, 3)):
        graph = OneOperator([2, 40, length], "int8", 0.07, zero)
        graph.add(
            "L2_NORMALIZATION", ([2, 40, length], "int8", 1 / 128, 0), options="L2NormOptions"
        )
        yield Case(f"int8 {length}", graph, varied=length == 7)


def dense_layers_with_a_bias_of_two_axes() -> Iterator[Case]:
    rng = np.random.default_rng(10)
    graph = OneOperator([4, 6], "int8", 0.05, 3)
    weights = graph._constant(rng.integers(-127, 128, (5, 6), np.int8), 0.01, 0)
    bias = graph._constant(rng.integers(-900, 900, (5, 1), np.int32), 0.0005, 0)
    graph.add(
        "FULLY_CONNECTED",
        ([4, 5], "int8", 0.06, -7),
        weights,
        bias,
        options="FullyConnectedOptions",
    )
    yield Case("int8", graph)


def softmax_of_8_bits() -> Iterator[Case]:
    for scale, length, dtype in (
        (0.00984, 6, "int8"),
        (0.03, 5, "uint8"),
        (0.1, 200, "int8"),
        (0.7, 3, "int8"),
    ):
        graph = OneOperator([3000 // length, length], dtype, scale, 9)
        zero = int(np.iinfo(dtype).min)
        made = ([3000 // length, length], dtype, 1 / 256, zero)
        graph.add("SOFTMAX", made, options="SoftmaxOptions", beta=1.0)
        yield Case(f"{dtype} {scale}", graph, varied=False)


def logarithms_of_softmax() -> Iterator[Case]:
    graph = OneOperator([2, 3, 7], "float32")
    graph.add("LOG_SOFTMAX", ([2, 3, 7], "float32"), options="LogSoftmaxOptions")
    yield Case("float32", graph, 1e-6)
    for scale, length in itertools.product((0.004, 0.03, 0.1, 0.7), (1, 5, 200)):
        graph = OneOperator([3, 30, length], "int8", scale, 9)
        graph.add(
            "LOG_SOFTMAX", ([3, 30, length], "int8", 1 / 16, 127), options="LogSoftmaxOptions"
        )
        yield Case(f"int8 {scale} {length}", graph, varied=False)


def products_of_matrices() -> Iterator[Case]:
    shapes: list[tuple[list[int], list[int], list[int]]] = [
        ([2, 3, 4, 5], [2, 3, 5, 6], [2, 3, 4, 6]),
        ([3, 4, 5], [5, 6], [3, 4, 6]),
        ([2, 1, 4, 5], [3, 5, 6], [2, 3, 4, 6]),
    ]
    rng = np.random.default_rng(7)
    for dtype, (first, second, made), swapped in itertools.product(
        ("float32", "int8", "int16"), shapes, ((False, False), (True, True))
    ):
        given = [*first[:-2], *first[:-3:-1]] if swapped[0] else first
        other = [*second[:-2], *second[:-3:-1]] if swapped[1] else second
        graph = OneOperator(given, dtype, *quantised(dtype, 0.02, 4))
        limits = (-32768, 32768) if dtype == "int16" else (-128, 128)
        content = rng.normal(size=other) if dtype == "float32" else rng.integers(*limits, other)
        constant = graph._constant(content.astype(dtype), *quantised(dtype, 0.01, -3))
        output = (made, dtype, *quantised(dtype, {"int8": 0.05, "int16": 9.0}.get(dtype, 0), 11))
        fields = {"adjX": swapped[0], "adjY": swapped[1]}
        graph.add("BATCH_MATMUL", output, constant, options="BatchMatMulOptions", **fields)
        yield Case(f"{dtype} {given} {other} {swapped}", graph, 1e-5)


def filters_with_memory() -> Iterator[Case]:
    rng = np.random.default_rng(8)
    batches, depth, units, rank, memory = 2, 7, 5, 3, 4
    filters = units * rank
    for activation, has_bias in ((0, True), (1, False)):
        graph = OneOperator([batches, depth], "float32")
        features, times, bias = (
            graph._constant(rng.normal(size=shape).astype(np.float32))
            for shape in ((filters, depth), (filters, memory), (units,))
        )
        state = graph._state([batches, memory * filters], "float32")
        fields = {"rank": rank, "fusedActivationFunction": activation}
        graph.add(
            "SVDF",
            ([batches, units], "float32"),
            features,
            times,
            bias if has_bias else -1,
            state,
            options="SVDFOptions",
            **fields,
        )
        yield Case(f"float32 {activation}", graph, 1e-5, runs=6)
    graph = OneOperator([batches, depth], "int8", 0.02, 5)
    features = graph._constant(rng.integers(-127, 128, (filters, depth), np.int8), 0.01, 0)
    times = graph._constant(rng.integers(-20000, 20000, (filters, memory), np.int16), 0.0001, 0)
    bias = graph._constant(rng.integers(-9000, 9000, units, np.int32), 1e-7, 0)
    state = graph._state([batches, memory * filters], "int16", 0.001, 0)
    graph.add(
        "SVDF",
        ([batches, units], "int8", 0.02, -3),
        features,
        times,
        bias,
        state,
        options="SVDFOptions",
        rank=rank,
        fusedActivationFunction=1,
    )
    yield Case("int8", graph, runs=6)


def recurrent_layers_of_8_bits() -> Iterator[Case]:
    cases = (
        (2, 5, 4, 7, False, 2**-11, 0.0),
        (3, 4, 6, 3, True, 2**-9, 3.0),
        (1, 9, 2, 40, False, 2**-15, 0.0),
    )
    for seed, case in enumerate(cases):
        yield Case(
            str(case), _recurrent_layer(np.random.default_rng(seed), *case), runs=4, varied=False
        )


def _recurrent_layer(
    rng: np.random.Generator,
    batches: int,
    steps: int,
    depth: int,
    units: int,
    time_major: bool,
    cell: float,
    clip: float,
) -> OneOperator:
    outer = [steps, batches] if time_major else [batches, steps]
    graph = OneOperator([*outer, depth], "int8", 0.03, 9)
    weights = [
        graph._constant(
            rng.integers(-127, 128, (units, width), np.int8), float(rng.uniform(0.005, 0.02)), 0
        )
        for width in [depth] * 4 + [units] * 4
    ]
    biases = [
        graph._constant(rng.integers(-3000, 3000, units, np.int32), 0.0003, 0) for _ in range(4)
    ]
    states = [
        graph._state([batches, units], "int8", 0.006, -5),
        graph._state([batches, units], "int16", cell, 0),
    ]
    inputs = [*weights, -1, -1, -1, *biases, -1, -1, *states]
    graph.add(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ([*outer, units], "int8", 0.006, -5),
        *inputs,
        options="UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
        cellClip=clip,
        timeMajor=time_major,
    )
    hidden = [graph._tensor([], "int16", 2**-12, 0) for _ in range(4)] + [
        graph._tensor([], "int8", 0.007, -4)
    ]
    graph._operators[-1].intermediates = hidden
    return graph


def mirrored_borders() -> Iterator[Case]:
    for (mode, widths), dtype in itertools.product(
        ((0, [[0, 0], [1, 2], [2, 1], [0, 1]]), (1, [[0, 1], [3, 0], [4, 2], [2, 2]])),
        ("int8", "float32"),
    ):
        graph = OneOperator([1, 3, 4, 2], dtype, *quantised(dtype))
        made = [n + sum(w) for n, w in zip([1, 3, 4, 2], widths, strict=True)]
        constant = graph._constant(np.array(widths, np.int32))
        output = (made, dtype, *quantised(dtype))
        graph.add("MIRROR_PAD", output, constant, options="MirrorPadOptions", mode=mode)
        yield Case(f"{dtype} {mode}", graph)
    graph = OneOperator([5, 3], "int16", 0.01, 0)
    graph.add(
        "MIRROR_PAD",
        ([9, 3], "int16", 0.01, 0),
        graph._constant(np.array([[4, 0], [0, 0]], np.int32)),
        options="MirrorPadOptions",
        mode=0,
    )
    yield Case("two axes", graph)


def running_sums() -> Iterator[Case]:
    for dtype, exclusive, reverse in itertools.product(
        ("float32", "int32"), (False, True), (False, True)
    ):
        graph = OneOperator([2, 5, 3], "int8")
        graph.add("CAST", ([2, 5, 3], dtype))
        first, graph._values = graph._values[0], graph._values[-1:]
        axis = graph._constant(np.array(-2, np.int32))
        fields = {"exclusive": exclusive, "reverse": reverse}
        graph.add("CUMSUM", ([2, 5, 3], dtype), axis, options="CumsumOptions", **fields)
        graph._values = [first, graph._values[-1]]
        yield Case(f"{dtype} {exclusive} {reverse}", graph, 1e-6)


def outputs_that_are_filled() -> Iterator[Case]:
    graph = OneOperator([3, 5], "float32")
    graph.add("SHAPE", ([2], "int32"), options="ShapeOptions", outType=2)
    yield Case("SHAPE", graph)
    for dtype in ("float32", "int8"):
        graph = OneOperator([], dtype, *quantised(dtype))
        graph._values = [graph.axes(2, 3), *graph._values]
        graph.add("FILL", ([2, 3], dtype, *quantised(dtype)), options="FillOptions")
        graph._values = graph._values[1:]
        yield Case(f"FILL {dtype}", graph)
    graph = OneOperator([3, 5], "float32")
    graph.add("ZEROS_LIKE", ([3, 5], "float32"), options="ZerosLikeOptions")
    yield Case("ZEROS_LIKE", graph, reference=False)


ALL: tuple[Callable[[], Iterator[Case]], ...] = (
    vectors_of_length_one,
    dense_layers_with_a_bias_of_two_axes,
    softmax_of_8_bits,
    logarithms_of_softmax,
    products_of_matrices,
    filters_with_memory,
    recurrent_layers_of_8_bits,
    mirrored_borders,
    running_sums,
    outputs_that_are_filled,
)
