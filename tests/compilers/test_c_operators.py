"""Single operators as C compute what LiteRT's reference kernels compute: integers to the bit, floats closely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.external_tools import C
from nnpipe.formats.tflite import read_tflite
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.integer_graphs import IntegerGraph
from nnpipe.testing.sanitised_c import sanitised_outputs

needs("ai_edge_litert")
pytestmark = pytest.mark.skipif(C.find() is None, reason="no C compiler is installed (apt install gcc)")


class OneOperator(IntegerGraph):
    """A graph of one operator."""

    def __init__(self, *given: Any) -> None:
        super().__init__(np.random.default_rng(0), "int8")
        self._tensors.clear()
        self._values = [self._tensor(*given)]

    def add(self, name: str, output: tuple[Any, ...], *constants: int, options: str = "", **fields: Any) -> None:
        self._operator(name, [*self._values, *constants], self._tensor(*output), options, **fields)


def judged(data: bytes, tmp_path: Path, tolerance: float = 0) -> np.ndarray:
    """Check an operator on random inputs and return its output."""
    path = tmp_path / "one.tflite"
    path.write_bytes(data)
    source = Artifact.of(path, "tflite", read_tflite(path).io)
    made = CCompiler(arena_seconds=0).compile(source, tmp_path / "one.c")
    rng = np.random.default_rng(1)
    batch = {}
    for spec in source.io.inputs:
        kind, shape = np.dtype(spec.dtype), [n or 1 for n in spec.shape]
        if kind.kind == "f":
            batch[spec.name] = rng.normal(scale=3, size=shape).astype(kind)
        else:
            info = np.iinfo(kind)
            batch[spec.name] = rng.integers(info.min, info.max, shape, kind, endpoint=True)
    with LiteRTRuntime(reference_kernels=True).load(source) as reference:
        expected = reference.infer(batch)
    found = sanitised_outputs(made.path, made.io, batch)
    for name, wanted in expected.items():
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found[name], wanted, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(found[name], wanted, strict=True)
    return next(iter(found.values()))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
def test_functions_of_8_bits(name: str, dtype: str, tmp_path: Path) -> None:
    lowest = int(np.iinfo(dtype).min)
    graph = OneOperator([1, 1000], dtype, 0.037, lowest + 117)
    scale, zero = (1 / 256, lowest) if name == "LOGISTIC" else (1 / 128, lowest + 128)
    graph.add(name, ([1, 1000], dtype, scale, zero))
    assert len(np.unique(judged(graph.content(), tmp_path))) > 50


@pytest.mark.parametrize(
    ("given", "made"), [("int8", "int16"), ("int16", "int8"), ("int16", "int16"), ("int16", "int32")]
)
def test_numbers_get_another_scale(given: str, made: str, tmp_path: Path) -> None:
    zero = {"int8": 7, "int16": 0, "int32": 0}
    graph = OneOperator([1, 500], given, 0.0073, zero[given])
    graph.add("QUANTIZE", ([1, 500], made, 0.0029, zero[made]), options="QuantizeOptions")
    judged(graph.content(), tmp_path)


def test_leaky_relu_of_16_bits(tmp_path: Path) -> None:
    graph = OneOperator([1, 3000], "int16", 0.014214295893907547, 0)
    graph.add("LEAKY_RELU", ([1, 3000], "int16", 0.005958845838904381, 0), options="LeakyReluOptions", alpha=0.3)
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize(("corners", "centers"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("NEAREST_NEIGHBOR", "int8"), ("BILINEAR", "int8"), ("BILINEAR", "uint8"), ("BILINEAR", "float32")],
)
def test_images_get_another_size(kind: str, corners: bool, centers: bool, dtype: str, tmp_path: Path) -> None:
    scale = () if dtype == "float32" else (0.02, 0)
    graph = OneOperator([2, 5, 4, 3], dtype, *scale)
    size = graph._constant(np.array([7, 9], np.int32))
    options = "ResizeNearestNeighborOptions" if kind.startswith("N") else "ResizeBilinearOptions"
    fields = {"alignCorners": corners, "halfPixelCenters": centers}
    graph.add(f"RESIZE_{kind}", ([2, 7, 9, 3], dtype, *scale), size, options=options, **fields)
    judged(graph.content(), tmp_path, 1e-5)


@pytest.mark.parametrize(
    ("name", "dtype", "axis"), [("ARG_MAX", "int8", -1), ("ARG_MIN", "float32", 1), ("ARG_MAX", "uint8", 1)]
)
def test_the_place_of_the_greatest_and_the_least(name: str, dtype: str, axis: int, tmp_path: Path) -> None:
    graph = OneOperator([2, 5, 4], dtype)
    made = [2, 5] if axis == -1 else [2, 4]
    options = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
    graph.add(name, (made, "int32"), graph._constant(np.array(axis, np.int32)), options=options, outputType=2)
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize(("name", "dtype"), [("MAXIMUM", "int8"), ("MINIMUM", "float32")])
def test_the_greater_and_the_lesser_of_two(name: str, dtype: str, tmp_path: Path) -> None:
    scale = () if dtype == "float32" else (0.02, 3)
    graph = OneOperator([2, 5, 4], dtype, *scale)
    other = graph._constant(np.array([1, -2, 3, 0], dtype), *scale)
    graph.add(name, ([2, 5, 4], dtype, *scale), other, options="MaximumMinimumOptions")
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize(
    ("given", "made"),
    [("int8", "int32"), ("int32", "int8"), ("uint8", "float32"), ("float32", "int32"), ("int8", "bool")],
)
def test_types_become_others(given: str, made: str, tmp_path: Path) -> None:
    graph = OneOperator([1, 300], given)
    graph.add("CAST", ([1, 300], made))
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize(
    ("strides", "padding", "dtype", "activation"),
    [((2, 3), 0, "int8", 1), ((1, 2), 1, "int8", 0), ((2, 3), 1, "int16", 0), ((1, 2), 0, "float32", 1)],
)
def test_transposed_convolutions(
    strides: tuple[int, int], padding: int, dtype: str, activation: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    rows, columns, depth, channels, size = 3, 4, 3, 5, (3, 2)
    made = [
        n * stride if padding == 0 else n * stride + max(each - stride, 0)
        for n, stride, each in zip((rows, columns), strides, size, strict=True)
    ]
    quantised = dtype != "float32"
    scales = np.float32(rng.uniform(0.001, 0.01, channels))
    given = ([2, rows, columns, depth], dtype, 0.03, 0 if dtype == "int16" else 5) if quantised else (
        [2, rows, columns, depth], dtype
    )  # fmt: skip
    graph = OneOperator(*given)
    weights = rng.integers(-127, 128, [channels, *size, depth])
    zeros = np.zeros(channels, np.int64)
    if quantised:
        kernel = graph._constant(weights.astype(np.int8), scales, zeros, 0)
        bias_type = np.int64 if dtype == "int16" else np.int32
        bias = graph._constant(rng.integers(-900, 900, channels).astype(bias_type), scales * np.float32(0.03), zeros)
        output = ([2, *made, channels], dtype, 0.05 if dtype == "int8" else 0.02, 0 if dtype == "int16" else -9)
    else:
        kernel = graph._constant((weights / 100).astype(np.float32))
        bias = graph._constant(rng.normal(size=channels).astype(np.float32))
        output = ([2, *made, channels], dtype)
    shape = graph._constant(np.array([2, *made, channels], np.int32))
    graph._operator(
        "TRANSPOSE_CONV", [shape, kernel, graph._values[0], bias], graph._tensor(*output), "TransposeConvOptions",
        padding=padding, strideW=strides[1], strideH=strides[0], fusedActivationFunction=activation,
    )  # fmt: skip
    judged(graph.content(), tmp_path, 1e-4)


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "FLOOR_DIV"])
def test_whole_numbers_without_scales(name: str, tmp_path: Path) -> None:
    options = "" if name == "FLOOR_DIV" else f"{name.capitalize()}Options"
    graph = OneOperator([1, 4, 3], "int8")  # so that no product is too large
    graph.add("CAST", ([1, 4, 3], "int32"))
    given, graph._values = graph._values, graph._values[-1:]
    graph.add(name, ([1, 4, 3], "int32"), graph._constant(np.array([3, -7, 100], np.int32)), options=options)
    graph._values = [given[0], graph._values[-1]]
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize("name", ["SQRT", "DIV"])
def test_real_numbers(name: str, tmp_path: Path) -> None:
    graph = OneOperator([1, 40, 3], "float32")
    extra = [graph._constant(np.array([3, -7, 0.01], np.float32))] if name == "DIV" else []
    graph.add(name, ([1, 40, 3], "float32"), *extra, options="DivOptions" if extra else "")
    judged(graph.content(), tmp_path, 1e-7)


@pytest.mark.parametrize("name", ["SPLIT", "SPLIT_V", "UNPACK"])
def test_a_tensor_is_cut_into_parts(name: str, tmp_path: Path) -> None:
    shape = [2, 6, 3]
    graph = OneOperator(shape, "int8", 0.02, 3)
    data, axis = graph._values[0], graph._constant(np.array(1, np.int32))
    lengths = [1, 3, 2] if name == "SPLIT_V" else [2, 2, 2]
    made = [graph._tensor([2, n, 3], "int8", 0.02, 3) for n in lengths]
    if name == "UNPACK":
        made = [graph._tensor([2, 6], "int8", 0.02, 3) for _ in range(3)]
    inputs = {"SPLIT": [axis, data], "UNPACK": [data]}.get(
        name, [data, graph._constant(np.array([1, -1, 2], np.int32)), axis]
    )
    fields = {"UNPACK": {"num": 3, "axis": 2}}.get(name, {"numSplits": 3})
    options = {"SPLIT": "SplitOptions", "SPLIT_V": "SplitVOptions", "UNPACK": "UnpackOptions"}[name]
    graph._operator(name, inputs, made[0], options, **fields)
    graph._operators[-1].outputs = made
    graph._values = [data, made[1]]
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize("name", ["GATHER", "GATHER_ND"])
def test_parts_are_gathered_from_places(name: str, tmp_path: Path) -> None:
    graph = OneOperator([4, 3, 5], "int8", 0.02, 3)
    places = np.array([[3, 1], [0, 2], [2, 2]], np.int32)
    made = [3, 2, 3, 5] if name == "GATHER" else [3, 5]
    options = "GatherOptions" if name == "GATHER" else "GatherNdOptions"
    graph.add(name, (made, "int8", 0.02, 3), graph._constant(places), options=options)
    judged(graph.content(), tmp_path)


@pytest.mark.parametrize(("dtype", "zero"), [("int8", -3), ("uint8", 130)])
@pytest.mark.parametrize("scale", [0.11, 0.005])
def test_hard_swish_of_8_bits(scale: float, dtype: str, zero: int, tmp_path: Path) -> None:
    graph = OneOperator([1, 1500], dtype, scale, zero)
    graph.add("HARD_SWISH", ([1, 1500], dtype, scale * 0.9, zero - 9), options="HardSwishOptions")
    assert len(np.unique(judged(graph.content(), tmp_path))) > 20


@pytest.mark.parametrize("name", ["HARD_SWISH", "ABS", "NEG", "SQUARE", "EXP"])
def test_functions_of_real_numbers(name: str, tmp_path: Path) -> None:
    graph = OneOperator([3, 50], "float32")
    graph.add(name, ([3, 50], "float32"))
    judged(graph.content(), tmp_path, 1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
def test_slopes_for_negative_numbers(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    if dtype == "float32":
        graph, slope = OneOperator([2, 3, 4, 5], dtype), rng.normal(size=(1, 1, 5)).astype(np.float32)
        graph.add("PRELU", ([2, 3, 4, 5], dtype), graph._constant(slope))
    else:
        zero = {"int8": 4, "uint8": 130}[dtype]
        info = np.iinfo(dtype)
        slope = rng.integers(info.min, info.max, (1, 1, 5), dtype)
        graph = OneOperator([2, 3, 4, 5], dtype, 0.03, zero)
        graph.add("PRELU", ([2, 3, 4, 5], dtype, 0.05, zero + 7), graph._constant(slope, 0.02, zero - 11))
    judged(graph.content(), tmp_path, 1e-6)


@pytest.mark.parametrize(
    ("name", "dtype"), [("REDUCE_MAX", "int8"), ("REDUCE_MIN", "float32"), ("SUM", "float32"), ("REDUCE_MAX", "uint8")]
)
@pytest.mark.parametrize(("axes", "keeps"), [([1, 2], True), ([-1], False)])
def test_tensors_are_reduced(name: str, dtype: str, axes: list[int], keeps: bool, tmp_path: Path) -> None:
    scale = () if dtype == "float32" else (0.02, 3)
    graph = OneOperator([2, 3, 4, 5], dtype, *scale)
    made = ([2, 1, 1, 5] if keeps else [2, 3, 4], dtype, *scale)
    graph.add(name, made, graph._constant(np.array(axes, np.int32)), options="ReducerOptions", keepDims=keeps)
    judged(graph.content(), tmp_path, 1e-5)


@pytest.mark.parametrize(
    ("name", "given", "made", "constants", "fields"),
    [
        ("SPACE_TO_DEPTH", [2, 4, 6, 3], [2, 2, 3, 12], [], {"blockSize": 2}),
        ("DEPTH_TO_SPACE", [2, 2, 3, 12], [2, 4, 6, 3], [], {"blockSize": 2}),
        ("SPACE_TO_BATCH_ND", [2, 5, 7, 3], [12, 4, 3, 3], [[2, 3], [[1, 2], [2, 0]]], {}),
        ("SPACE_TO_BATCH_ND", [1, 1, 6, 2], [6, 1, 4, 2], [[3, 2], [[2, 0], [1, 1]]], {}),
        ("BATCH_TO_SPACE_ND", [12, 4, 3, 2], [2, 8, 9, 2], [[2, 3], [[0, 0], [0, 0]]], {}),
        ("BROADCAST_TO", [3, 1, 4], [2, 3, 5, 4], [[2, 3, 5, 4]], {}),
    ],
)
def test_blocks_and_repetitions(
    name: str, given: list[int], made: list[int], constants: list[Any], fields: dict[str, int], tmp_path: Path
) -> None:
    graph = OneOperator(given, "int8", 0.02, 3)
    extra = [graph._constant(np.array(each, np.int32)) for each in constants]
    options = f"{name.replace('_', ' ').title().replace(' ', '')}Options".replace("NdOptions", "NDOptions")
    graph.add(name, (made, "int8", 0.02, 3), *extra, options=options, **fields)
    judged(graph.content(), tmp_path)


def test_places_outside_of_the_input_read_nothing_outside(tmp_path: Path) -> None:
    graph = OneOperator([1, 2], "int32")
    graph.add("GATHER_ND", ([1, 4], "int8", 0.02, 3), options="GatherNdOptions")
    table = graph._constant(np.arange(12, dtype=np.int8).reshape(3, 1, 4), 0.02, 3)
    graph._operators[-1].inputs = [table, graph._values[0]]
    path = tmp_path / "one.tflite"
    path.write_bytes(graph.content())
    source = Artifact.of(path, "tflite", read_tflite(path).io)
    made = CCompiler().compile(source, tmp_path / "one.c")
    for place, row in (([2**31 - 1, -5], [8, 9, 10, 11]), ([-(2**31), 9], [0, 1, 2, 3])):
        batch = {source.io.inputs[0].name: np.array([place], np.int32)}
        assert sanitised_outputs(made.path, made.io, batch)[source.io.outputs[0].name].tolist() == [row]


def test_a_resized_image_must_keep_its_scale(tmp_path: Path) -> None:
    graph = OneOperator([1, 2, 2, 1], "int8", 0.02, 0)
    size = graph._constant(np.array([4, 4], np.int32))
    graph.add("RESIZE_BILINEAR", ([1, 4, 4, 1], "int8", 0.03, 0), size, options="ResizeBilinearOptions")
    path = tmp_path / "one.tflite"
    path.write_bytes(graph.content())
    with pytest.raises(CompileError, match=r"RESIZE_BILINEAR .*input and output have other scales"):
        CCompiler().compile(Artifact.of(path, "tflite", read_tflite(path).io), tmp_path / "one.c")
