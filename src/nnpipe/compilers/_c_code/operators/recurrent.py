"""Recurrent layers, whose states are kept from one run to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import (
    get_activation_range,
    get_scale,
    get_zero_point,
    quantize_multiplier,
)
from nnpipe.compilers._c_code.operators.convolutions import format_bias_argument
from nnpipe.compilers._c_code.operators.quantised_layer import CLAMP, CLAMP_Q, RESCALE, get_bias
from nnpipe.compilers._c_code.operators.tables import LOGISTIC, TANH
from nnpipe.compilers._c_code.step import (
    CKernel,
    CStep,
    OperatorView,
    format_float,
    format_initializer,
    format_struct,
)

_TANH = 4
# Places of the inputs: of input, forget, cell and output gate.
_WEIGHTS, _RECURRENT, _BIASES, _LEFT_OUT = (
    (1, 2, 3, 4),
    (5, 6, 7, 8),
    (12, 13, 14, 15),
    (9, 10, 11, 16, 17),
)
_OUTPUT_STATE, _CELL_STATE = 18, 19
_MOST = 1 << 15  # numbers in a sum of products of 8-bit numbers


@dataclass(frozen=True)
class _Layer:
    """The numbers of a layer, how far its steps and batches are apart, and its weights, stacked
    by gates.
    """

    batches: int
    steps: int
    depth: int
    units: int
    next_step: int
    next_batch: int
    clip: float
    stacked: dict[str, npt.NDArray[np.generic]]


def build_unidirectional_sequence_lstm(op: OperatorView) -> CStep:
    """Return the step of UNIDIRECTIONAL_SEQUENCE_LSTM in its basic form: of real or 8-bit
    numbers.
    """
    layer = _read_layer(op)
    places = (
        f"{{in0}}, {{weights}}, {{recurrent}}, {{bias}}, (OUT *){{in{_OUTPUT_STATE}}}, (CELL "
        f"*){{in{_CELL_STATE}}}"
    )
    if set(op.types()) == {"float32"}:
        numbers = (
            layer.batches,
            layer.steps,
            layer.depth,
            layer.units,
            layer.next_step,
            layer.next_batch,
        )
        return CStep(
            f"nn_lstm_f32({places}, {{scratch}}, {{out0}}, {', '.join(map(str, numbers))}, "
            f"{format_float(layer.clip)});".replace("OUT", "float").replace("CELL", "float"),
            (CLAMP, *LOGISTIC, *TANH, CKernel("lstm_f.c")),
            layer.stacked,
            scratch=16 * layer.units,
        )
    return CStep(
        f"nn_lstm_s8({places}, {{scratch}}, {{out0}}, &s);".replace("OUT", "int8_t").replace(
            "CELL", "int16_t"
        ),
        (CLAMP_Q, RESCALE, CKernel("curves16.c"), CKernel("lstm_q.c")),
        layer.stacked,
        [_format_int8_layer(op, layer)],
        8 * layer.units,
    )


def _read_layer(op: OperatorView) -> _Layer:
    op.expect(len(op.inputs) > _CELL_STATE, "inputs are missing")
    extra = [n for n in (*_LEFT_OUT, *range(20, len(op.inputs))) if op.inputs[n] is not None]
    op.expect(not extra, "it has peepholes, a projection or a normalisation")
    op.expect(op.operator.read_option(0, "<b") == _TANH, "its activation is not tanh")
    data, clip, time_major = (
        op.input(0),
        op.operator.read_float_option(1),
        op.operator.read_option(3, "<b") != 0,
    )
    op.expect(math.isfinite(clip) and clip >= 0, f"its cells are clipped at {clip}")
    op.expect(len(data.shape) == 3 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    batches, steps = (data.shape[1], data.shape[0]) if time_major else data.shape[:2]
    depth, units = data.shape[2], op.input(_BIASES[0]).count
    op.expect_shape((*data.shape[:2], units))
    for place in (_OUTPUT_STATE, _CELL_STATE):
        op.expect(op.state(place).shape == (batches, units), "a state has another shape")
    stacked: dict[str, npt.NDArray[np.generic]] = {}
    for name, places, shape in (
        ("weights", _WEIGHTS, (units, depth)),
        ("recurrent", _RECURRENT, (units, units)),
        ("bias", _BIASES, (units,)),
    ):
        parts = [op.constant(place) for place in places]
        op.expect(all(part.shape == shape for part in parts), "its weights have different shapes")
        stacked[name] = np.concatenate(parts)
    next_step, next_batch = (batches, 1) if time_major else (1, steps)
    return _Layer(batches, steps, depth, units, next_step, next_batch, clip, stacked)


def _format_int8_layer(op: OperatorView, layer: _Layer) -> str:
    """Return the definition of the numbers of a layer of 8-bit numbers, whose cells have 16
    bits.
    """
    data, state, cell = op.input(0), op.state(_OUTPUT_STATE), op.state(_CELL_STATE)
    weights = {op.input(place).spec.dtype for place in (*_WEIGHTS, *_RECURRENT)}
    kinds = (
        data.spec.dtype,
        state.spec.dtype,
        op.output().spec.dtype,
        cell.spec.dtype,
        str(layer.stacked["bias"].dtype),
    )
    op.expect(
        kinds == ("int8", "int8", "int8", "int16", "int32") and weights == {"int8"},
        str(op.make_no_kernel_error()),
    )
    op.expect(max(layer.depth, layer.units) <= _MOST, "its sums could overflow")
    op.expect(
        int(np.abs(layer.stacked["bias"].astype(np.int64)).max()) < 1 << 30,
        "its sums could overflow",
    )
    fraction, exponent = math.frexp(get_scale(cell))
    bits = 15 + exponent - 1
    op.expect(
        fraction == 0.5 and 0 <= bits <= 6 and get_zero_point(cell) == 0,
        "its cells have a scale that no kernel takes",
    )
    hidden = op.intermediate(4)
    # LiteRT computes these factors in 32 bits; gates have 12 bits behind the point.
    factors = []
    for places, given in ((_WEIGHTS, data), (_RECURRENT, state)):
        for place in places:
            op.expect(get_zero_point(op.input(place)) == 0, "its weights have a zero point")
            factors.append(
                quantize_multiplier(
                    float(
                        np.float32(get_scale(op.input(place))) * np.float32(get_scale(given)) * 4096
                    )
                )
            )
    factor = quantize_multiplier(float(np.float32(2.0**-30 / get_scale(hidden))))
    op.expect(factor[1] <= 0, "an output has a very small scale")
    clip = int(min(max(np.float32(layer.clip) / np.float32(get_scale(cell)), -32768.0), 32767.0))
    rows = [
        format_initializer([*first, *second])
        for first, second in zip(factors[:4], factors[4:], strict=True)
    ]
    return format_struct(
        "nn_lstm",
        "s",
        [
            layer.batches,
            layer.steps,
            layer.depth,
            layer.units,
            layer.next_step,
            layer.next_batch,
            get_zero_point(data),
            get_zero_point(state),
            *factor,
            get_zero_point(hidden),
            bits,
            clip,
            format_initializer(rows),
        ],
    )


# SVDF: dense layers whose results of several runs are weighted by how long ago they were.
#
# Nakkiran, Alvarez, Prabhavalkar, Parada, "Compressing Deep Neural Networks using a Rank-
# Constrained Topology", Interspeech 2015.

_RELU = 1
_SHAPE = CKernel("svdf_shape.c")


def build_svdf(op: OperatorView) -> CStep:
    """Return the step of SVDF."""
    op.expect(len(op.inputs) == 5, "it has another number of inputs")
    data, features, times, state = op.input(0), op.input(1), op.input(2), op.state(4)
    rank = op.operator.read_option(0, "<i")
    matrices = all(len(t.shape) == 2 and min(t.shape) > 0 for t in (data, features, times))
    op.expect(matrices, "its input and weights have not two axes")
    (batches, depth), (filters, width), (rows, memory) = data.shape, features.shape, times.shape
    op.expect(rank > 0 and filters % rank == 0, f"its rank is {rank}")
    op.expect(depth == width and filters == rows, "its weights have other shapes")
    op.expect(state.shape == (batches, memory * filters), "its state has another shape")
    units = filters // rank
    op.expect_shape([batches, units])
    place = format_struct("nn_svdf", "s", [batches, depth, units, rank, memory])
    weights = {"features": op.constant(1), "times": op.constant(2)}
    view = op.select_inputs(0, 1, 3)  # the bias where layers have it
    bias = get_bias(view, units, "float32" if data.spec.dtype == "float32" else "int32")
    constants = weights if bias is None else {**weights, "bias": bias}
    kinds = (
        data.spec.dtype,
        features.spec.dtype,
        times.spec.dtype,
        state.spec.dtype,
        op.output().spec.dtype,
    )
    if kinds == ("float32",) * 5:
        low, high = map(format_float, get_activation_range(op.operator.read_option(1, "<b")))
        return CStep(
            f"nn_svdf_f32({{in0}}, {{features}}, {{times}}, {format_bias_argument(view)}, (float "
            f"*){{in4}}, {{out0}}, &s, {low}, {high});",
            (CLAMP, _SHAPE, CKernel("svdf_f.c")),
            constants,
            [place],
        )
    op.expect(kinds == ("int8", "int8", "int16", "int16", "int8"), str(op.make_no_kernel_error()))
    op.expect(
        op.operator.read_option(1, "<b") == _RELU,
        "its activation is not ReLU, which LiteRT demands",
    )
    op.expect(depth <= _MOST, "its sums could overflow")
    factors = [
        quantize_multiplier(get_scale(first) * get_scale(second) / get_scale(result))
        for first, second, result in ((data, features, state), (state, times, op.output()))
    ]
    op.expect(factors[1][1] <= 0, "its output has a very small scale")
    numbers = [get_zero_point(data), *factors[0], *factors[1], get_zero_point(op.output())]
    return CStep(
        f"nn_svdf_s8({{in0}}, {{features}}, {{times}}, {format_bias_argument(view)}, (int16_t "
        f"*){{in4}}, {{out0}}, &s, factors);",
        (CLAMP_Q, RESCALE, _SHAPE, CKernel("svdf_q.c")),
        constants,
        [place, f"static const int32_t factors[6] = {format_initializer(numbers)};"],
    )
