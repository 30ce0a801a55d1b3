"""Functions of single elements and of two tensors that C is generated for, each as a few graphs
of one operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from one_operator import Case, OneOperator, quantised

WITHOUT_REFERENCE = ("CEIL", "ELU", "ROUND")


def functions_of_8_bits() -> Iterator[Case]:
    for name, dtype in itertools.product(("LOGISTIC", "TANH"), ("int8", "uint8")):
        lowest = int(np.iinfo(dtype).min)
        graph = OneOperator([1, 1000], dtype, 0.037, lowest + 117)
        scale, zero = (1 / 256, lowest) if name == "LOGISTIC" else (1 / 128, lowest + 128)
        graph.add(name, ([1, 1000], dtype, scale, zero))
        yield Case(f"{name} {dtype}", graph)
    for name, (scale, zero), made in (
        # a half after rounding to 32 bits, but not before
        ("LOGISTIC", (1 / 256, -128), (1 / 256, -128)),
        ("ELU", (0.031, 7), (0.017, -60)),
        ("LOG", (0.013, -128), (0.02, 40)),
        ("RSQRT", (0.013, -128), (0.03, -120)),
        ("ABS", (0.03, 9), (0.02, -128)),
        ("ABS", (0.03, -9), (0.03, -120)),
        ("ELU", (0.5, 0), (0.4, 3)),
    ):
        graph = OneOperator([1, 1000], "int8", scale, zero)
        graph.add(name, ([1, 1000], "int8", *made), options={"ABS": "AbsOptions"}.get(name, ""))
        yield Case(f"{name} {scale}", graph, reference=name not in WITHOUT_REFERENCE)


def hard_swish_of_8_bits() -> Iterator[Case]:
    for (dtype, zero), scale in itertools.product((("int8", -3), ("uint8", 130)), (0.11, 0.005)):
        graph = OneOperator([1, 1500], dtype, scale, zero)
        graph.add(
            "HARD_SWISH", ([1, 1500], dtype, scale * 0.9, zero - 9), options="HardSwishOptions"
        )
        yield Case(f"{dtype} {scale}", graph)


def functions_of_real_numbers() -> Iterator[Case]:
    for name in (
        "HARD_SWISH",
        "ABS",
        "NEG",
        "SQUARE",
        "EXP",
        "SQRT",
        "ELU",
        "LOG",
        "RSQRT",
        "SIN",
        "COS",
        "FLOOR",
        "CEIL",
        "ROUND",
        "LOGISTIC",
        "TANH",
    ):
        graph = OneOperator([3, 50], "float32")
        graph.add(name, ([3, 50], "float32"))
        yield Case(name, graph, 1e-6, reference=name not in WITHOUT_REFERENCE)
    graph = OneOperator([1, 40, 3], "float32")
    by = graph._constant(np.array([3, -7, 0.01], np.float32))
    graph.add("DIV", ([1, 40, 3], "float32"), by, options="DivOptions")
    yield Case("DIV", graph, 1e-7)


def halves_and_large_angles() -> Iterator[Case]:
    # A product of constants and the input 8-bit numbers: halves, and angles of many turns.
    for name, factor in (
        ("ROUND", 0.5),
        ("FLOOR", 0.5),
        ("CEIL", 0.5),
        ("SIN", 1e5),
        ("COS", 1e5),
        ("LOG", 1e30),
    ):
        graph = OneOperator([1, 300], "int8")
        graph.add("CAST", ([1, 300], "float32"))
        first, graph._values = graph._values[0], graph._values[-1:]
        times = graph._constant(np.array([factor], np.float32))
        graph.add("MUL", ([1, 300], "float32"), times, options="MulOptions")
        graph._values = graph._values[-1:]
        graph.add(name, ([1, 300], "float32"))
        graph._values = [first, graph._values[-1]]
        yield Case(name, graph, 1e-6, reference=name not in WITHOUT_REFERENCE)


def whole_numbers_without_scales() -> Iterator[Case]:
    for name in ("ADD", "SUB", "MUL", "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE"):
        options = "" if name.startswith("FLOOR") else f"{name.title().replace('_', '')}Options"
        graph = OneOperator([1, 4, 3], "int8")  # so that no product is too large
        graph.add("CAST", ([1, 4, 3], "int32"))
        given, graph._values = graph._values, graph._values[-1:]
        graph.add(name, ([1, 4, 3], "int32"), graph.axes(3, -7, 100), options=options)
        graph._values = [given[0], graph._values[-1]]
        yield Case(name, graph)


def squared_differences() -> Iterator[Case]:
    rng = np.random.default_rng(4)
    graph = OneOperator([2, 5, 4], "float32")
    other = graph._constant(rng.normal(size=(5, 1)).astype(np.float32))
    graph.add(
        "SQUARED_DIFFERENCE", ([2, 5, 4], "float32"), other, options="SquaredDifferenceOptions"
    )
    yield Case("float32", graph, 1e-6)
    for scales in ((0.03, 0.02, 0.1), (0.01, 0.05, 0.3)):
        graph = OneOperator([2, 50, 12], "int8", scales[0], 5)
        other = graph._constant(rng.integers(-128, 128, (50, 1), np.int8), scales[1], -20)
        made = ([2, 50, 12], "int8", scales[2], -128)
        graph.add("SQUARED_DIFFERENCE", made, other, options="SquaredDifferenceOptions")
        yield Case(f"int8 {scales}", graph)


def comparisons() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    names = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
    for name, dtype in itertools.product(names, ("int8", "uint8", "int32", "float32")):
        zero = {"int8": 5, "uint8": 130}.get(dtype, 0)
        graph = OneOperator([3, 7, 11], dtype, *quantised(dtype, 0.011, zero))
        other = rng.integers(-4, 5, (7, 1)).astype(dtype)
        options = f"{name.title().replace('_', '')}Options"
        number = graph._constant(other, *quantised(dtype, 0.017, zero - 3))
        graph.add(name, ([3, 7, 11], "bool"), number, options=options)
        yield Case(f"{name} {dtype}", graph)


def truth_values() -> Iterator[Case]:
    graph = OneOperator([4, 9], "bool")
    graph.add("LOGICAL_NOT", ([4, 9], "bool"), options="LogicalNotOptions")
    yield Case("LOGICAL_NOT", graph)
    for name, options in (("LOGICAL_AND", "LogicalAndOptions"), ("LOGICAL_OR", "LogicalOrOptions")):
        graph = OneOperator([4, 9], "bool")
        graph.add(name, ([4, 9], "bool"), graph._constant(np.arange(9) % 2 == 0), options=options)
        yield Case(name, graph)


def sums_of_many() -> Iterator[Case]:
    rng = np.random.default_rng(6)
    for dtype in ("float32", "int32"):
        graph = OneOperator([3, 5], "int8")  # so that no sum is too large
        graph.add("CAST", ([3, 5], dtype))
        first, graph._values = graph._values[0], graph._values[-1:]
        others = [graph._constant(rng.normal(scale=9, size=(3, 5)).astype(dtype)) for _ in range(3)]
        graph.add("ADD_N", ([3, 5], dtype), *others, options="AddNOptions")
        graph._values = [first, graph._values[-1]]
        yield Case(dtype, graph, 1e-6)


def slopes_for_negative_numbers() -> Iterator[Case]:
    rng = np.random.default_rng(2)
    graph, slope = (
        OneOperator([2, 3, 4, 5], "float32"),
        rng.normal(size=(1, 1, 5)).astype(np.float32),
    )
    graph.add("PRELU", ([2, 3, 4, 5], "float32"), graph._constant(slope))
    yield Case("float32", graph, 1e-6)
    for dtype, zero in (("int8", 4), ("uint8", 130)):
        info = np.iinfo(dtype)
        weights = rng.integers(info.min, info.max, (1, 1, 5), dtype)
        graph = OneOperator([2, 3, 4, 5], dtype, 0.03, zero)
        graph.add(
            "PRELU",
            ([2, 3, 4, 5], dtype, 0.05, zero + 7),
            graph._constant(weights, 0.02, zero - 11),
        )
        yield Case(dtype, graph)


ALL: tuple[Callable[[], Iterator[Case]], ...] = (
    functions_of_8_bits,
    hard_swish_of_8_bits,
    functions_of_real_numbers,
    halves_and_large_angles,
    whole_numbers_without_scales,
    squared_differences,
    comparisons,
    truth_values,
    sums_of_many,
    slopes_for_negative_numbers,
)
