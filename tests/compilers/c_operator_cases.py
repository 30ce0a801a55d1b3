"""Operators that C is generated for, each as a few graphs of one operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from one_operator import Case, OneOperator, quantised


def numbers_in_another_scale() -> Iterator[Case]:
    zero = {"int8": 7, "int16": 0, "int32": 0}
    for given, made in (
        ("int8", "int16"),
        ("int16", "int8"),
        ("int16", "int16"),
        ("int16", "int32"),
    ):
        graph = OneOperator([1, 500], given, 0.0073, zero[given])
        graph.add("QUANTIZE", ([1, 500], made, 0.0029, zero[made]), options="QuantizeOptions")
        yield Case(f"{given} to {made}", graph)


def leaky_relu_of_16_bits() -> Iterator[Case]:
    graph = OneOperator([1, 3000], "int16", 0.014214295893907547, 0)
    graph.add(
        "LEAKY_RELU",
        ([1, 3000], "int16", 0.005958845838904381, 0),
        options="LeakyReluOptions",
        alpha=0.3,
    )
    yield Case("int16", graph)


def images_in_another_size() -> Iterator[Case]:
    kinds = (
        ("NEAREST_NEIGHBOR", "int8"),
        ("BILINEAR", "int8"),
        ("BILINEAR", "uint8"),
        ("BILINEAR", "float32"),
    )
    for (kind, dtype), (corners, centers) in itertools.product(
        kinds, ((False, False), (True, False), (False, True))
    ):
        scale = quantised(dtype, 0.02, 0)
        graph = OneOperator([2, 5, 4, 3], dtype, *scale)
        options = (
            "ResizeNearestNeighborOptions" if kind.startswith("N") else "ResizeBilinearOptions"
        )
        fields = {"alignCorners": corners, "halfPixelCenters": centers}
        graph.add(
            f"RESIZE_{kind}",
            ([2, 7, 9, 3], dtype, *scale),
            graph.axes(7, 9),
            options=options,
            **fields,
        )
        yield Case(f"{kind} {dtype} {fields}", graph, 1e-5)


def places_of_the_greatest_and_the_least() -> Iterator[Case]:
    for name, dtype, axis in (
        ("ARG_MAX", "int8", -1),
        ("ARG_MIN", "float32", 1),
        ("ARG_MAX", "uint8", 1),
    ):
        graph = OneOperator([2, 5, 4], dtype)
        made = [2, 5] if axis == -1 else [2, 4]
        options = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
        graph.add(
            name,
            (made, "int32"),
            graph._constant(np.array(axis, np.int32)),
            options=options,
            outputType=2,
        )
        yield Case(f"{name} {dtype}", graph)


def the_greater_and_the_lesser_of_two() -> Iterator[Case]:
    for name, dtype in (("MAXIMUM", "int8"), ("MINIMUM", "float32")):
        scale = quantised(dtype)
        graph = OneOperator([2, 5, 4], dtype, *scale)
        other = graph._constant(np.array([1, -2, 3, 0], dtype), *scale)
        graph.add(name, ([2, 5, 4], dtype, *scale), other, options="MaximumMinimumOptions")
        yield Case(name, graph)


def other_types() -> Iterator[Case]:
    for given, made in (
        ("int8", "int32"),
        ("int32", "int8"),
        ("uint8", "float32"),
        ("float32", "int32"),
        ("int8", "bool"),
    ):
        graph = OneOperator([1, 300], given)
        graph.add("CAST", ([1, 300], made))
        yield Case(f"{given} to {made}", graph)


def transposed_convolutions() -> Iterator[Case]:
    for case in (
        ((2, 3), 0, "int8", 1),
        ((1, 2), 1, "int8", 0),
        ((2, 3), 1, "int16", 0),
        ((1, 2), 0, "float32", 1),
    ):
        yield Case(str(case), _transposed_convolution(*case), 1e-4)


def _transposed_convolution(
    strides: tuple[int, int], padding: int, dtype: str, activation: int
) -> OneOperator:
    rng = np.random.default_rng(3)
    rows, columns, depth, channels, size = 3, 4, 3, 5, (3, 2)
    made = [
        n * stride if padding == 0 else n * stride + max(each - stride, 0)
        for n, stride, each in zip((rows, columns), strides, size, strict=True)
    ]
    scales = np.float32(rng.uniform(0.001, 0.01, channels))
    graph = OneOperator([2, rows, columns, depth], dtype, *quantised(dtype, 0.03, 5))
    weights = rng.integers(-127, 128, [channels, *size, depth])
    zeros = np.zeros(channels, np.int64)
    if dtype != "float32":
        kernel = graph._constant(weights.astype(np.int8), scales, zeros, 0)
        bias_type = np.int64 if dtype == "int16" else np.int32
        bias = graph._constant(
            rng.integers(-900, 900, channels).astype(bias_type), scales * np.float32(0.03), zeros
        )
    else:
        kernel = graph._constant((weights / 100).astype(np.float32))
        bias = graph._constant(rng.normal(size=channels).astype(np.float32))
    output = ([2, *made, channels], dtype, *quantised(dtype, 0.05 if dtype == "int8" else 0.02, -9))
    shape = graph.axes(2, *made, channels)
    graph._add_operator(
        "TRANSPOSE_CONV",
        [shape, kernel, graph._values[0], bias],
        graph._tensor(*output),
        "TransposeConvOptions",
        padding=padding,
        strideW=strides[1],
        strideH=strides[0],
        fusedActivationFunction=activation,
    )
    return graph


def parts_of_a_tensor() -> Iterator[Case]:
    for name in ("SPLIT", "SPLIT_V", "UNPACK"):
        graph = OneOperator([2, 6, 3], "int8", 0.02, 3)
        data, axis = graph._values[0], graph._constant(np.array(1, np.int32))
        lengths = [1, 3, 2] if name == "SPLIT_V" else [2, 2, 2]
        made = [graph._tensor([2, n, 3], "int8", 0.02, 3) for n in lengths]
        if name == "UNPACK":
            made = [graph._tensor([2, 6], "int8", 0.02, 3) for _ in range(3)]
        inputs = {"SPLIT": [axis, data], "UNPACK": [data]}.get(
            name, [data, graph.axes(1, -1, 2), axis]
        )
        fields = {"UNPACK": {"num": 3, "axis": 2}}.get(name, {"numSplits": 3})
        options = {"SPLIT": "SplitOptions", "SPLIT_V": "SplitVOptions", "UNPACK": "UnpackOptions"}[
            name
        ]
        graph._add_operator(name, inputs, made[0], options, **fields)
        graph._operators[-1].outputs = made
        graph._values = [data, made[1]]
        yield Case(name, graph)


def parts_from_places() -> Iterator[Case]:
    for name, made in (("GATHER", [3, 2, 3, 5]), ("GATHER_ND", [3, 5])):
        graph = OneOperator([4, 3, 5], "int8", 0.02, 3)
        places = graph._constant(np.array([[3, 1], [0, 2], [2, 2]], np.int32))
        options = "GatherOptions" if name == "GATHER" else "GatherNdOptions"
        graph.add(name, (made, "int8", 0.02, 3), places, options=options)
        yield Case(name, graph)


def reductions() -> Iterator[Case]:
    kinds = (
        ("REDUCE_MAX", "int8"),
        ("REDUCE_MIN", "float32"),
        ("SUM", "float32"),
        ("REDUCE_MAX", "uint8"),
    )
    for (name, dtype), (axes, keeps) in itertools.product(kinds, (([1, 2], True), ([-1], False))):
        scale = quantised(dtype)
        graph = OneOperator([2, 3, 4, 5], dtype, *scale)
        made = ([2, 1, 1, 5] if keeps else [2, 3, 4], dtype, *scale)
        graph.add(name, made, graph.axes(*axes), options="ReducerOptions", keepDims=keeps)
        yield Case(f"{name} {dtype} {axes}", graph, 1e-5)


def blocks_and_repetitions() -> Iterator[Case]:
    cases: list[tuple[str, list[int], list[int], list[Any], dict[str, int]]] = [
        ("SPACE_TO_DEPTH", [2, 4, 6, 3], [2, 2, 3, 12], [], {"blockSize": 2}),
        ("DEPTH_TO_SPACE", [2, 2, 3, 12], [2, 4, 6, 3], [], {"blockSize": 2}),
        ("SPACE_TO_BATCH_ND", [2, 5, 7, 3], [12, 4, 3, 3], [[2, 3], [[1, 2], [2, 0]]], {}),
        ("SPACE_TO_BATCH_ND", [1, 1, 6, 2], [6, 1, 4, 2], [[3, 2], [[2, 0], [1, 1]]], {}),
        ("BATCH_TO_SPACE_ND", [12, 4, 3, 2], [2, 8, 9, 2], [[2, 3], [[0, 0], [0, 0]]], {}),
        ("BROADCAST_TO", [3, 1, 4], [2, 3, 5, 4], [[2, 3, 5, 4]], {}),
    ]
    for name, given, made, constants, fields in cases:
        graph = OneOperator(given, "int8", 0.02, 3)
        extra = [graph._constant(np.array(each, np.int32)) for each in constants]
        options = f"{name.replace('_', ' ').title().replace(' ', '')}Options".replace(
            "NdOptions", "NDOptions"
        )
        graph.add(name, (made, "int8", 0.02, 3), *extra, options=options, **fields)
        yield Case(f"{name} {given}", graph)


def choices_by_truth_values() -> Iterator[Case]:
    rng = np.random.default_rng(9)
    for name, shape, dtype in itertools.product(
        ("SELECT", "SELECT_V2"), ([2, 3, 4], [3, 1]), ("int8", "float32")
    ):
        if name == "SELECT" and len(shape) == 2:
            continue
        graph = OneOperator(shape, "bool")
        first, second = (
            graph._constant(rng.integers(-9, 9, size).astype(dtype), *quantised(dtype))
            for size in ((2, 3, 4), (2, 3, 4))
        )
        if name == "SELECT_V2":
            second = graph._constant(rng.integers(-9, 9, 4).astype(dtype), *quantised(dtype))
        options = f"{name.title().replace('_', '')}Options"
        graph.add(name, ([2, 3, 4], dtype, *quantised(dtype)), first, second, options=options)
        yield Case(f"{name} {shape} {dtype}", graph)


def reductions_of_truth_values() -> Iterator[Case]:
    for name in ("REDUCE_ALL", "REDUCE_ANY"):
        graph = OneOperator([20, 3, 2], "bool")
        graph.add(name, ([20], "bool"), graph.axes(1, 2), options="ReducerOptions", keepDims=False)
        yield Case(name, graph)


def repeated_and_reversed() -> Iterator[Case]:
    graph = OneOperator([2, 3, 4], "int8", 0.02, 3)
    graph.add("TILE", ([4, 3, 12], "int8", 0.02, 3), graph.axes(2, 1, 3), options="TileOptions")
    yield Case("TILE", graph, reference=False)
    graph = OneOperator([2, 3, 4], "int8", 0.02, 3)
    graph.add(
        "REVERSE_V2", ([2, 3, 4], "int8", 0.02, 3), graph.axes(1, 2), options="ReverseV2Options"
    )
    yield Case("REVERSE_V2", graph, reference=False)


ALL: tuple[Callable[[], Iterator[Case]], ...] = (
    numbers_in_another_scale,
    leaky_relu_of_16_bits,
    images_in_another_size,
    places_of_the_greatest_and_the_least,
    the_greater_and_the_lesser_of_two,
    other_types,
    transposed_convolutions,
    parts_of_a_tensor,
    parts_from_places,
    reductions,
    blocks_and_repetitions,
    choices_by_truth_values,
    reductions_of_truth_values,
    repeated_and_reversed,
)
