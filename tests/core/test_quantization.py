"""Quantising agrees bit for bit with ONNX Runtime and, where it is right, with onnx.reference."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.quantization import (
    compute_quantization_parameters,
    dequantize_linear,
    quantize_linear,
)

TYPES = ("int8", "uint8", "int16", "uint16")
ORDINARY = (
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    127.5,
    -128.5,
    255.5,
    32767.5,
    65535.5,
    2**23,
    2**24 + 2,
)
EXTREME = (
    2**31,
    -(2**31),
    2**32,
    1e38,
    -1e38,
    3.4028235e38,
    1e-45,
    -1e-45,
    1.1754944e-38,
    np.inf,
    -np.inf,
    np.nan,
)
EDGES = np.array([*ORDINARY, *EXTREME], np.float32)
LEAST, LARGEST = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


@functools.cache
def onnx_operator(name, dtype, axis):
    """One operator of opset 21 as a model: (run by ONNX Runtime, run by onnx.reference)."""
    onnx = pytest.importorskip("onnx", reason="onnx writes the models that define the right answer")
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime gives the right answer")
    from onnx.reference import ReferenceEvaluator

    narrow, wide = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), onnx.TensorProto.FLOAT
    given_type, wanted_type = (wide, narrow) if name == "QuantizeLinear" else (narrow, wide)
    shape = [] if axis is None else ["channels"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node(
                    name, ["x", "scale", "zero"], ["y"], **({} if axis is None else {"axis": axis})
                )
            ],
            "one",
            [
                onnx.helper.make_tensor_value_info("x", given_type, None),
                onnx.helper.make_tensor_value_info("scale", wide, shape),
                onnx.helper.make_tensor_value_info("zero", narrow, shape),
            ],
            [onnx.helper.make_tensor_value_info("y", wanted_type, None)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session, ReferenceEvaluator(model)


def by_onnxruntime(name, dtype, x, scale, zero, axis=None):
    feeds = {"x": x, "scale": np.asarray(scale, np.float32), "zero": np.asarray(zero, dtype)}
    return onnx_operator(name, str(np.dtype(dtype)), axis)[0].run(None, feeds)[0]


def by_reference(name, dtype, x, scale, zero, axis=None):
    feeds = {"x": x, "scale": np.asarray(scale, np.float32), "zero": np.asarray(zero, dtype)}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return onnx_operator(name, str(np.dtype(dtype)), axis)[1].run(None, feeds)[0]


def assert_same_bits(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(
        ours.view(f"u{ours.itemsize}"), theirs.view(f"u{theirs.itemsize}")
    )


def numbers(seed, shape, scale):
    """Floats of every kind: random bit patterns, near and beyond the range, and exact halves of
    the scale.
    """
    random = np.random.default_rng(seed)
    size = int(np.prod(shape))
    steps = np.broadcast_to(np.asarray(scale, np.float32), shape).reshape(-1)
    with np.errstate(all="ignore"):
        kinds = np.stack(
            [
                random.integers(0, 2**32, size, np.uint32).view(np.float32),
                (random.standard_normal(size) * 100).astype(np.float32) * steps,
                (random.standard_normal(size) * 50_000).astype(np.float32) * steps,
                (random.integers(-70_000, 70_000, size) + np.float32(0.5)).astype(np.float32)
                * steps,
                random.choice(EDGES, size),
                random.choice(EDGES, size) * steps,
            ]
        )
    return np.choose(random.integers(0, len(kinds), size), kinds).reshape(shape)


scales = st.one_of(
    st.integers(-20, 20).map(lambda power: 2.0**power),
    st.floats(2.0**-30, 2.0**30, width=32),
    st.floats(LEAST, LARGEST, width=32, allow_subnormal=True),
)
seeds = st.integers(0, 2**32 - 1)


def zero_points(dtype):
    limits = np.iinfo(dtype)
    return st.one_of(
        st.integers(limits.min, limits.max), st.sampled_from([limits.min, 0, limits.max])
    )


@settings(max_examples=examples(150), deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(TYPES),
    seed=seeds,
    scale=scales,
    size=st.integers(0, 5000),
)
def test_quantising_a_tensor_equals_onnx_runtime(data, dtype, seed, scale, size):
    zero = data.draw(zero_points(dtype))
    x = numbers(seed, (size,), scale)
    ours = quantize_linear(x, scale, zero, dtype)
    assert_same_bits(ours, by_onnxruntime("QuantizeLinear", dtype, x, scale, zero))


@settings(max_examples=examples(150), deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(TYPES),
    seed=seeds,
    scale=scales,
    size=st.integers(0, 5000),
)
def test_quantising_equals_onnx_reference_wherever_its_int32_can_hold_the_quotient(
    data, dtype, seed, scale, size
):
    zero = data.draw(zero_points(dtype))
    x = numbers(seed, (size,), scale)
    with np.errstate(all="ignore"):
        x = x[np.abs(x / np.float32(scale)) < 2**30]
    ours = quantize_linear(x, scale, zero, dtype)
    assert_same_bits(ours, by_reference("QuantizeLinear", dtype, x, scale, zero))


@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(TYPES),
    seed=seeds,
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
)
def test_quantising_by_channel_equals_onnx_runtime(data, dtype, seed, shape):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    channels = shape[axis]
    scale = np.array(data.draw(st.lists(scales, min_size=channels, max_size=channels)), np.float32)
    zero = np.array(
        data.draw(st.lists(zero_points(dtype), min_size=channels, max_size=channels)), dtype
    )
    x = numbers(
        seed,
        shape,
        np.moveaxis(np.broadcast_to(scale, (*shape[:axis], *shape[axis:][1:], channels)), -1, axis),
    )
    ours = quantize_linear(x, scale, zero, dtype, axis)
    assert_same_bits(ours, by_onnxruntime("QuantizeLinear", dtype, x, scale, zero, axis))


@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(TYPES),
    seed=seeds,
    scale=scales,
    size=st.integers(0, 5000),
)
def test_dequantising_a_tensor_equals_onnx_runtime_and_onnx_reference(
    data, dtype, seed, scale, size
):
    zero = data.draw(zero_points(dtype))
    limits = np.iinfo(dtype)
    q = np.random.default_rng(seed).integers(limits.min, limits.max + 1, size).astype(dtype)
    ours = dequantize_linear(q, scale, zero)
    assert ours.dtype == np.float32
    assert_same_bits(ours, by_onnxruntime("DequantizeLinear", dtype, q, scale, zero))
    assert_same_bits(ours, by_reference("DequantizeLinear", dtype, q, scale, zero))


@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from((*TYPES, "int32")),
    seed=seeds,
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
)
def test_dequantising_by_channel_equals_onnx_runtime(data, dtype, seed, shape):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    channels = shape[axis]
    points = st.just(0) if dtype == "int32" else zero_points(dtype)
    scale = np.array(data.draw(st.lists(scales, min_size=channels, max_size=channels)), np.float32)
    zero = np.array(data.draw(st.lists(points, min_size=channels, max_size=channels)), dtype)
    limits = np.iinfo(dtype)
    q = np.random.default_rng(seed).integers(
        limits.min, limits.max, shape, endpoint=True, dtype=dtype
    )
    ours = dequantize_linear(q, scale, zero, axis)
    assert_same_bits(ours, by_onnxruntime("DequantizeLinear", dtype, q, scale, zero, axis))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300_001,), None), ((3, 200, 300), 0), ((5, 3, 90, 91), 1), ((4000, 33), 1)],
)
def test_tensors_larger_than_one_piece_equal_onnx_runtime(dtype, shape, axis):
    random = np.random.default_rng(7)
    limits = np.iinfo(dtype)
    channels = () if axis is None else (shape[axis],)
    scale = random.uniform(0.001, 0.1, channels).astype(np.float32)
    zero = random.integers(limits.min, limits.max, channels, dtype, endpoint=True)
    spread = scale if axis is None else scale.reshape(-1, *[1] * (len(shape) - axis - 1))
    x = numbers(8, shape, spread)
    ours = quantize_linear(x, scale, zero, dtype, axis)
    assert_same_bits(ours, by_onnxruntime("QuantizeLinear", dtype, x, scale, zero, axis))
    back = dequantize_linear(ours, scale, zero, axis)
    assert_same_bits(back, by_onnxruntime("DequantizeLinear", dtype, ours, scale, zero, axis))


def test_every_quantised_value_survives_the_way_there_and_back():
    for dtype in TYPES:
        limits = np.iinfo(dtype)
        q = np.arange(limits.min, limits.max + 1).astype(dtype)
        np.testing.assert_array_equal(
            quantize_linear(dequantize_linear(q, 0.037, 5), 0.037, 5, dtype), q
        )


def test_halves_go_to_the_even_neighbour_before_the_zero_point_is_added():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    np.testing.assert_array_equal(quantize_linear(x, 1.0), [-2, -2, 0, 0, 2, 2])
    np.testing.assert_array_equal(quantize_linear(x, 1.0, 1), [-1, -1, 1, 1, 3, 3])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 100_000])
def test_infinities_saturate_and_nan_becomes_the_lowest_value(dtype, size):
    limits = np.iinfo(dtype)
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0], np.float32), size)
    low, high = limits.min, limits.max
    np.testing.assert_array_equal(
        quantize_linear(x, 0.5, 3, dtype), np.tile([low, high, low, high, low, 3], size)
    )


def test_other_real_types_are_converted_to_float32_first():
    doubles = np.array([0.1, 1e300, -1e300, 0.50000001])
    np.testing.assert_array_equal(
        quantize_linear(doubles, 1.0), quantize_linear([0.1, np.inf, -np.inf, 0.5], 1.0)
    )
    pixels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(quantize_linear(pixels, 1.0, -128), np.arange(-128, 128))
    half = np.array([0.5, 1.5, 65504], np.float16)
    np.testing.assert_array_equal(quantize_linear(half, 1.0, 0, "uint8"), [0, 2, 255])


def test_any_memory_layout_and_shape_will_do_and_the_input_is_left_alone():
    x = np.random.default_rng(3).standard_normal((4, 5, 6)).astype(np.float32)
    kept = x.copy()
    scale = np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32)
    turned = quantize_linear(x.transpose(2, 0, 1), scale, axis=-1)
    np.testing.assert_array_equal(turned, quantize_linear(x, scale, axis=1).transpose(2, 0, 1))
    assert turned.flags.c_contiguous
    assert quantize_linear(np.float32(7), 2.0).shape == ()
    assert dequantize_linear(np.int8(7), 2.0).shape == ()
    assert quantize_linear(np.empty((0, 3), np.float32), [1.0, 2.0, 3.0], axis=1).shape == (0, 3)
    assert quantize_linear(np.empty((3, 0), np.float32), [1.0, 2.0, 3.0], axis=0).shape == (3, 0)
    np.testing.assert_array_equal(x, kept)


def test_a_vector_of_one_is_a_number_and_one_zero_point_serves_all_channels():
    x = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        quantize_linear(x, [0.1], [4], axis=1), quantize_linear(x, 0.1, 4)
    )
    by_channel = quantize_linear(x, [0.1, 0.2, 0.3], 4, axis=1)
    np.testing.assert_array_equal(
        by_channel, quantize_linear(x, [0.1, 0.2, 0.3], [4, 4, 4], axis=1)
    )
    shifted = np.add(quantize_linear(x, 0.1), [1, 2, 3])
    np.testing.assert_array_equal(quantize_linear(x, 0.1, [1, 2, 3], axis=1), shifted)


def test_a_scale_of_zero_can_be_read_but_not_written_with():
    np.testing.assert_array_equal(
        dequantize_linear(np.array([-3, 4], np.int8), [0.0, 0.5], axis=0), [0.0, 2.0]
    )
    with pytest.raises(SpecMismatch, match="above zero"):
        quantize_linear([1.0], 0.0)


X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"scale": -1.0}, "above zero"),
        ({"scale": np.nan}, "finite"),
        ({"scale": 1e300}, "finite"),
        ({"scale": 1e-300}, "above zero"),
        ({"scale": "small"}, "real number"),
        ({"scale": None}, "real number"),
        ({"scale": 1.0, "dtype": "integer"}, "use one of int8"),
        ({"scale": [1.0, 2.0, 3.0]}, "which axis"),
        ({"scale": [1.0, 2.0], "axis": 1}, "has 2 values, but axis 1"),
        ({"scale": [1.0, 2.0, 3.0], "axis": 2}, "axis 2 does not exist"),
        ({"scale": [1.0, 2.0, 3.0], "axis": -3}, "axis -3 does not exist"),
        ({"scale": np.ones((2, 3)), "axis": 1}, "number or a vector"),
        ({"scale": [], "axis": 1}, "has 0 values"),
        ({"scale": 1.0, "zero_point": 128}, "outside int8"),
        ({"scale": 1.0, "zero_point": -1, "dtype": "uint8"}, "outside uint8"),
        ({"scale": 1.0, "zero_point": 0.0}, "whole number"),
        ({"scale": 1.0, "zero_point": [1, 2], "axis": 1}, "zero_point has 2 values"),
        ({"scale": 1.0, "dtype": "int32"}, "use one of int8"),
        ({"scale": 1.0, "dtype": "int4"}, "use one of int8"),
        ({"scale": 1.0, "dtype": None}, "use one of int8"),
        ({"x": np.zeros(3, np.complex64), "scale": 1.0}, "real numbers"),
        ({"x": np.zeros(3, bool), "scale": 1.0}, "real numbers"),
        ({"x": np.array(["a"]), "scale": 1.0}, "real numbers"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(arguments, complaint):
    with pytest.raises(SpecMismatch, match=complaint) as caught:
        quantize_linear(**{"x": X, **arguments})
    assert "\n" not in str(caught.value)


def test_dequantising_refuses_floats_and_a_zero_point_for_int32():
    with pytest.raises(SpecMismatch, match="float32 is not a quantised type"):
        dequantize_linear(X, 1.0)
    with pytest.raises(SpecMismatch, match="without a zero point"):
        dequantize_linear(np.zeros(3, np.int32), 1.0, 1)


@settings(max_examples=examples(200), deadline=None)
@given(
    limits=st.tuples(*[st.floats(-(2.0**100), 2.0**100, width=32)] * 2).map(sorted),
    dtype=st.sampled_from(TYPES),
    symmetric=st.booleans(),
)
def test_parameters_keep_zero_exact_and_every_value_of_the_range_within_one_step(
    limits, dtype, symmetric
):
    low, high = limits
    scale, zero = compute_quantization_parameters(low, high, dtype, symmetric)
    assert scale.dtype == np.float32
    assert zero.dtype == np.int32
    assert dequantize_linear(quantize_linear(0.0, scale, zero, dtype), scale, zero) == 0.0
    values = np.linspace(min(low, 0), max(high, 0), 1001).astype(np.float32)
    back = dequantize_linear(quantize_linear(values, scale, zero, dtype), scale, zero)
    slack = np.float64(scale) + 1e-6 * max(abs(low), abs(high))
    assert np.abs(back.astype(np.float64) - values).max() <= slack


def test_parameters_of_known_ranges():
    assert compute_quantization_parameters(-1.0, 1.0, "int8", symmetric=True) == (
        np.float32(1 / 127),
        0,
    )
    assert compute_quantization_parameters(-1.0, 0.5, "uint8", symmetric=True) == (
        np.float32(1 / 127),
        128,
    )
    assert compute_quantization_parameters(0.0, 255.0, "uint8") == (1.0, 0)
    assert compute_quantization_parameters(0.0, 255.0, "int8") == (1.0, -128)
    assert compute_quantization_parameters(2.0, 255.0, "uint8") == (1.0, 0)
    assert compute_quantization_parameters(0.0, 0.0) == (1.0, -128)
    scale, zero = compute_quantization_parameters([-1.0, 0.0], [1.0, 0.0], symmetric=True)
    np.testing.assert_array_equal(scale, np.array([1 / 127, 1], np.float32))
    np.testing.assert_array_equal(zero, [0, 0])


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, -1.0), (np.nan, 1.0), (0.0, np.inf), (-1e300, 0.0), ([0, 5], [1, 4])]
)
def test_a_range_that_is_none_has_no_parameters(low, high):
    with pytest.raises(SpecMismatch, match="low <= high"):
        compute_quantization_parameters(low, high)
