"""Functions of single elements: of 8-bit numbers, tables that are computed ahead of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import (
    LIMITS,
    apply_multiplier,
    get_scale,
    get_zero_point,
    quantize_activation_range,
    quantize_multiplier,
)
from nnpipe.compilers._c_code.fixed_point import compute_inverse_root as fixed_point_inverse_root
from nnpipe.compilers._c_code.fixed_point import round_half_away as round_half_away
from nnpipe.compilers._c_code.operators.quantised_layer import CLAMP, CLAMP_Q, RESCALE
from nnpipe.compilers._c_code.step import (
    C_TYPES,
    SUFFIXES,
    CKernel,
    CStep,
    OperatorView,
    format_float,
)
from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_graph import ProgramTensor

_EXP, _FLOOR, _SINE, _SQRT = (CKernel(f"{name}.c") for name in ("exp", "floor", "sine", "sqrt"))


def _make_kernels(name: str, value: str, *needed: CKernel) -> tuple[CKernel, ...]:
    """Return the kernels of a function; ``value`` computes it in C from ``x``."""
    return (*needed, CKernel("function_f.c", (("@", name), ("VALUE", value))))


LOGISTIC = _make_kernels("logistic", "1 / (1 + nn_exp(-x))", _EXP)
TANH = _make_kernels("tanh", "nn_tanh(x)", _EXP, CKernel("tanh.c"))


def _make_builder(kernels: tuple[CKernel, ...]) -> Callable[[OperatorView], CStep]:
    name = dict(kernels[-1].words)["@"]

    def build(op: OperatorView) -> CStep:
        op.expect_shape(op.input(0).shape)
        if op.types() != ("float32", "float32"):
            raise op.make_no_kernel_error()
        return CStep(f"nn_{name}_f32({{in0}}, {{out0}}, {op.output().count});", kernels)

    return build


float_absolute = _make_builder(_make_kernels("abs", "x < 0 ? -x : x"))
ceiling = _make_builder(_make_kernels("ceil", "-nn_floor(-x)", _FLOOR))
cosine = _make_builder(_make_kernels("cos", "nn_sine(x, 1)", _SINE))
float_elu = _make_builder(_make_kernels("elu", "x < 0 ? nn_exp(x) - 1 : x", _EXP))
exponential = _make_builder(_make_kernels("exp_of", "nn_exp(x)", _EXP))
floor = _make_builder(_make_kernels("floor_of", "nn_floor(x)", _FLOOR))
float_hard_swish = _make_builder(
    _make_kernels("hard_swish", "x * nn_clamp_f32(x + 3, 0, 6) / 6", CLAMP)
)
inverse_root = _make_builder(_make_kernels("rsqrt", "1 / nn_sqrt(x)", _SQRT))
float_logarithm = _make_builder(_make_kernels("log_of", "nn_log(x)", CKernel("log.c")))
float_logistic = _make_builder(LOGISTIC)
negative = _make_builder(_make_kernels("neg", "-x"))
rounded = _make_builder(_make_kernels("round_of", "nn_round(x)", _FLOOR, CKernel("round.c")))
sine = _make_builder(_make_kernels("sin", "nn_sine(x, 0)", _SINE))
square = _make_builder(_make_kernels("square", "x * x"))
square_root = _make_builder(_make_kernels("sqrt", "nn_sqrt(x)", _SQRT))
float_tanh = _make_builder(TANH)

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1


def make_hard_swish(data: ProgramTensor, out: ProgramTensor) -> Callable[[int], int]:
    """Return the function from an input to an output.

    Raises
    ------
    CompileError
        If the output's scale is too small.
    """
    fine = np.float32(1 / 128) * np.float32(get_scale(data))
    multiplier, exponent = _shorten_factor(
        quantize_multiplier(float(fine / np.float32(get_scale(out))))
    )
    relu_multiplier, relu_exponent = _shorten_factor(
        quantize_multiplier(float(fine / np.float32(3 / 32768)))
    )
    if exponent > 0:
        raise CompileError("its output has a very small scale")
    zero, out_zero = get_zero_point(data), get_zero_point(out)
    low, high = LIMITS[out.spec.dtype]

    def compute(x: int) -> int:
        shifted = (x - zero) * 128
        scaled = _compute_high_product(shifted, multiplier)
        relu = shifted
        if relu_exponent > 0:
            relu = _clamp_to_int16(relu << relu_exponent - 1)
        relu = _compute_high_product(relu, relu_multiplier)
        if relu_exponent > 0:
            relu = _clamp_to_int16(relu << 1)
        elif relu_exponent < 0:
            relu = _divide_by_power_of_two(relu, -relu_exponent)
        relu = (relu + (1 << 15)) >> 1
        found = _divide_by_power_of_two(
            (relu * scaled) >> 15 if relu * scaled >= 0 else -(-relu * scaled >> 15), -exponent
        )
        return min(high, max(low, found + out_zero))

    return compute


def _shorten_factor(factor: tuple[int, int]) -> tuple[int, int]:
    """Return a factor with a multiplier of 16 bits."""
    multiplier, shift = factor
    return (
        _MOST if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16
    ), shift


def _clamp_to_int16(x: int) -> int:
    return min(_MOST, max(_LEAST, x))


def _compute_high_product(a: int, b: int) -> int:
    """Return twice the upper half of a product of 16-bit numbers, rounded."""
    product = a * b
    nudged = product + ((1 << 14) if product >= 0 else 1 - (1 << 14))
    return _clamp_to_int16(nudged // (1 << 15) if nudged >= 0 else -(-nudged // (1 << 15)))


def _divide_by_power_of_two(x: int, by: int) -> int:
    """Return a number divided by a power of two, halves rounded away from zero."""
    mask = (1 << by) - 1
    return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0))


BYTES = ("int8", "uint8")


def build_absolute(op: OperatorView) -> CStep:
    """Return the step of ABS."""
    if _is_real(op):
        return float_absolute(op)
    _check_int8(op)
    data, out = op.input(0), op.output()
    zero, out_zero, same = (
        get_zero_point(data),
        get_zero_point(out),
        get_scale(data) == get_scale(out),
    )
    # LiteRT computes this factor in 32 bits.
    factor = quantize_multiplier(float(np.float32(get_scale(data)) / np.float32(get_scale(out))))
    return build_integer_lookup(
        op,
        lambda x: out_zero + (abs(x - zero) if same else apply_multiplier(abs(x - zero), *factor)),
    )


def build_elu(op: OperatorView) -> CStep:
    """Return the step of ELU."""
    if _is_real(op):
        return float_elu(op)
    _check_int8(op)
    return build_float_lookup(
        op, lambda x: float(np.float32(math.exp(x)) - np.float32(1)) if x < 0 else x
    )


def build_hard_swish(op: OperatorView) -> CStep:
    """Return the step of HARD_SWISH."""
    if _is_real(op):
        return float_hard_swish(op)
    op.expect_shape(op.input(0).shape)
    if op.types() not in (("int8",) * 2, ("uint8",) * 2):
        raise op.make_no_kernel_error()
    return build_integer_lookup(op, make_hard_swish(op.input(0), op.output()))


def build_inverse_square_root(op: OperatorView) -> CStep:
    """Return the step of RSQRT; what is not above zero becomes the greatest number."""
    if _is_real(op):
        return inverse_root(op)
    _check_int8(op)
    data, out = op.input(0), op.output()
    root = float(np.sqrt(np.float32(get_scale(data))))
    multiplier, shift = quantize_multiplier(
        float(1 / (np.float32(root) * np.float32(get_scale(out))))
    )
    op.expect(shift <= 20, "its output has a very small scale")
    zero, out_zero = get_zero_point(data), get_zero_point(out)

    def compute(x: int) -> int:
        if x <= zero:
            return 127
        inverse, by = fixed_point_inverse_root(x - zero)
        return out_zero + apply_multiplier(
            apply_multiplier(1, inverse, by + 20), multiplier, shift - 20
        )

    return build_integer_lookup(op, compute)


def build_logarithm(op: OperatorView) -> CStep:
    """Return the step of LOG; of numbers that have none, it is the least one of the output."""
    if _is_real(op):
        return float_logarithm(op)
    _check_int8(op)
    out = op.output()
    least = float(np.float32(-128 - get_zero_point(out)) * np.float32(get_scale(out)))
    return build_float_lookup(op, lambda x: math.log(x) if x > 0 else least)


def build_logistic(op: OperatorView) -> CStep:
    """Return the step of LOGISTIC."""
    if _is_real(op):
        return float_logistic(op)
    _check_scale(op, 256, {"int8": -128, "uint8": 0})
    one = np.float32(1)
    with np.errstate(over="ignore"):  # each step rounded to 32 bits, as in LiteRT
        return build_float_lookup(
            op, lambda x: float(one / (one + np.float32(math.exp(-max(x, -700.0)))))
        )


def build_tanh(op: OperatorView) -> CStep:
    """Return the step of TANH."""
    if _is_real(op):
        return float_tanh(op)
    _check_scale(op, 128, {"int8": 0, "uint8": 128})
    return build_float_lookup(op, math.tanh)


def _is_real(op: OperatorView) -> bool:
    return op.input(0).spec.dtype == "float32"


def _check_int8(op: OperatorView) -> None:
    if op.types() != ("int8", "int8"):
        raise op.make_no_kernel_error()
    op.expect_shape(op.input(0).shape)


def _check_scale(op: OperatorView, steps: int, zeros: Mapping[str, int]) -> None:
    """Check that a result has the scale 1 / steps, as LiteRT demands it."""
    check_bytes(op)
    op.expect_shape(op.input(0).shape)
    data, out = op.input(0), op.output()
    op.expect(data.spec.dtype == out.spec.dtype, str(op.make_no_kernel_error()))
    holds = get_scale(out) == 1 / steps and get_zero_point(out) == zeros[out.spec.dtype]
    op.expect(holds, f"its output has another scale than 1 / {steps}, or another zero point")


def build_float_lookup(op: OperatorView, function: Callable[[float], float]) -> CStep:
    """Return a step that looks up a function of real numbers, with all of its numbers in 32 bits
    as LiteRT has them.
    """
    data, out = op.input(0), op.output()
    scale, zero, out_zero = np.float32(get_scale(data)), get_zero_point(data), get_zero_point(out)
    with np.errstate(over="ignore"):
        steps = np.float32(1) / np.float32(get_scale(out))
        op.expect(
            bool(np.isfinite(scale * np.float32(256)) and np.isfinite(steps)),
            "its scales are no use",
        )

    def compute(x: int) -> int:
        found = np.float32(function(float(scale * np.float32(x - zero))))
        return round_half_away(float(np.clip(found * steps, -1e9, 1e9))) + out_zero

    return build_integer_lookup(op, compute)


def check_bytes(op: OperatorView) -> None:
    """Check that the input and the output are 8-bit numbers."""
    kinds = op.types()
    if len(kinds) != 2 or not set(kinds) <= set(BYTES):
        raise op.make_no_kernel_error()


def build_integer_lookup(op: OperatorView, value: Callable[[int], int]) -> CStep:
    """Return a step that looks each element up; the table is ordered by the element's bits."""
    kinds = op.types()
    low, high = LIMITS[kinds[1]]
    inputs = np.arange(256, dtype=np.uint8).view(kinds[0])
    found: npt.NDArray[np.generic] = np.array(
        [min(high, max(low, value(int(x)))) for x in inputs], kinds[1]
    )
    return CStep(
        f"nn_table({{in0}}, {{out0}}, {op.output().count}, {{table}});",
        (CKernel("table.c"),),
        {"table": found.view(np.uint8)},
    )


def build_relu(op: OperatorView) -> CStep:
    """Return the step of RELU."""
    return _build_clamp(op, 1)


def build_relu_n1_to_1(op: OperatorView) -> CStep:
    """Return the step of RELU_N1_TO_1."""
    return _build_clamp(op, 2)


def build_relu6(op: OperatorView) -> CStep:
    """Return the step of RELU6."""
    return _build_clamp(op, 3)


def _build_clamp(op: OperatorView, activation: int) -> CStep:
    op.expect_shape(op.input(0).shape)
    if op.types() == ("float32", "float32"):
        low, high = ((0.0, math.inf), (-1.0, 1.0), (0.0, 6.0))[activation - 1]
        return CStep(
            f"nn_clamp_all_f32({{in0}}, {{out0}}, {op.output().count}, {format_float(low)}, "
            f"{format_float(high)});",
            (CLAMP, CKernel("clamp_all_f.c")),
        )
    check_bytes(op)
    factor = quantize_multiplier(get_scale(op.input(0)) / get_scale(op.output()))
    low, high = quantize_activation_range(activation, op.output())
    zero, out_zero = get_zero_point(op.input(0)), get_zero_point(op.output())
    return build_integer_lookup(
        op, lambda x: min(high, max(low, out_zero + apply_multiplier(x - zero, *factor)))
    )


def build_quantize(op: OperatorView) -> CStep:
    """Return the step of QUANTIZE: of real numbers, or from one scale to another."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if kinds[0] == "float32" and kinds[1] in BYTES:
        low, high = LIMITS[kinds[1]]
        words = (
            ("@", SUFFIXES[kinds[1]]),
            ("OUT", C_TYPES[kinds[1]]),
            ("LEAST", str(low)),
            ("MOST", str(high)),
        )
        return CStep(
            f"nn_quantise_{SUFFIXES[kinds[1]]}({{in0}}, {{out0}}, {op.output().count}, "
            f"{format_float(get_scale(op.output()))}, {get_zero_point(op.output())});",
            (CLAMP_Q, CKernel("quantise.c", words)),
        )
    if "int16" in kinds or kinds[1] == "int32":
        return _build_rescale(op)
    check_bytes(op)
    low, high = LIMITS[kinds[1]]
    factor = quantize_multiplier(get_scale(op.input(0)) / get_scale(op.output()))
    zero, out_zero = get_zero_point(op.input(0)), get_zero_point(op.output())
    return build_integer_lookup(
        op, lambda x: min(high, max(low, out_zero + apply_multiplier(x - zero, *factor)))
    )


def _build_rescale(op: OperatorView) -> CStep:
    """Return a step that computes each number in another scale; there are too many for a table."""
    kinds = op.types()
    if kinds[0] not in ("int8", "int16") or kinds[1] not in ("int8", "int16", "int32"):
        raise op.make_no_kernel_error()
    multiplier, shift = quantize_multiplier(get_scale(op.input(0)) / get_scale(op.output()))
    zero, out_zero = get_zero_point(op.input(0)), get_zero_point(op.output())
    op.expect(shift <= 14, "its output has a very small scale")  # a number has up to 17 bits
    op.expect(kinds[1] != "int32" or out_zero == 0, "its output of 32 bits has a zero point")
    low, high = LIMITS[kinds[1]]
    suffix = f"{SUFFIXES[kinds[0]]}_{SUFFIXES[kinds[1]]}"
    words = (
        ("@", suffix),
        ("IN", C_TYPES[kinds[0]]),
        ("OUT", C_TYPES[kinds[1]]),
        ("LEAST", str(low) if kinds[1] != "int32" else "INT32_MIN"),
        ("MOST", str(high)),
    )
    return CStep(
        f"nn_rescale_all_{suffix}({{in0}}, {{out0}}, {op.output().count}, {zero}, {multiplier}, "
        f"{shift}, {out_zero});",
        (CLAMP_Q, RESCALE, CKernel("rescale_all.c", words)),
    )


def build_dequantize(op: OperatorView) -> CStep:
    """Return the step of DEQUANTIZE."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if kinds[0] not in (*BYTES, "int16") or kinds[1] != "float32":
        raise op.make_no_kernel_error()
    words = (("@", SUFFIXES[kinds[0]]), ("IN", C_TYPES[kinds[0]]))
    return CStep(
        f"nn_dequantise_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, {op.output().count}, "
        f"{float(get_scale(op.input(0))).hex()}, {get_zero_point(op.input(0))});",
        (CKernel("dequantise.c", words),),
    )


def build_cast(op: OperatorView) -> CStep:
    """Return the step of CAST; real numbers that are too large for integers become the greatest
    one.
    """
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if len(kinds) != 2 or not set(kinds) <= {*SUFFIXES, "bool"}:
        raise op.make_no_kernel_error()
    low, high = LIMITS.get(kinds[1], (0, 0))
    # The greatest real number that is not too large: that of 32 bits lies below the integer.
    most = float(np.nextafter(np.float32(high), np.float32(0))) if high > 1 << 24 else float(high)
    how = ""
    if kinds[1] == "bool":
        how = "0 != "
    elif kinds[0] == "float32" and kinds[1] != "float32":
        how = f"nn_clamp_to_{kinds[1]}"
    names = [{**SUFFIXES, "bool": "bool"}[kind] for kind in kinds]
    words = (
        ("@", "_".join(names)),
        ("IN", C_TYPES[kinds[0]]),
        ("OUT", C_TYPES[kinds[1]]),
        ("CAST", how),
    )
    kernels: list[CKernel] = []
    if how.startswith("nn_clamp"):
        kernels.append(
            CKernel(
                "clamp_to.c", (("@", kinds[1]), ("LEAST", f"{float(low)}f"), ("MOST", f"{most}f"))
            )
        )
    return CStep(
        f"nn_cast_{'_'.join(names)}({{in0}}, {{out0}}, {op.output().count});",
        (*kernels, CKernel("cast.c", words)),
    )


def build_leaky_relu(op: OperatorView) -> CStep:
    """Return the step of LEAKY_RELU, of 8-bit and 16-bit numbers."""
    op.expect_shape(op.input(0).shape)
    data, out = op.input(0), op.output()
    alpha = op.operator.read_float_option(0)
    # LiteRT computes these factors in 32 bits.
    scale, out_scale = np.float32(get_scale(data)), np.float32(get_scale(out))
    plain = quantize_multiplier(float(scale / out_scale))
    sloped = quantize_multiplier(float(scale * np.float32(alpha) / out_scale))
    if op.types() == ("int16", "int16"):
        op.expect(
            not (get_zero_point(data) or get_zero_point(out)),
            "a zero point of 16-bit numbers is not 0",
        )
        op.expect(max(plain[1], sloped[1]) <= 15, "its output has a very small scale")
        return CStep(
            f"nn_leaky_relu_s16({{in0}}, {{out0}}, {out.count}, {plain[0]}, {plain[1]}, "
            f"{sloped[0]}, {sloped[1]});",
            (CLAMP_Q, RESCALE, CKernel("leaky_relu.c")),
        )
    check_bytes(op)
    low, high = LIMITS[out.spec.dtype]

    def compute(x: int) -> int:
        x -= get_zero_point(data)
        return min(
            high,
            max(low, get_zero_point(out) + apply_multiplier(x, *(plain if x >= 0 else sloped))),
        )

    return build_integer_lookup(op, compute)
