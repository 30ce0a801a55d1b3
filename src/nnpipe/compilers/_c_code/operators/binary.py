"""Functions of the elements of two tensors: arithmetic, comparisons, and functions of truth
values.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nnpipe.compilers._c_code.fixed_point import (
    LIMITS,
    get_activation_range,
    get_scale,
    get_zero_point,
    quantize_activation_range,
    quantize_multiplier,
)
from nnpipe.compilers._c_code.operators.quantised_layer import (
    CLAMP,
    CLAMP_Q,
    DSP,
    REQUANTISE,
    RESCALE,
)
from nnpipe.compilers._c_code.step import (
    C_TYPES,
    SUFFIXES,
    Builder,
    CKernel,
    CStep,
    OperatorView,
    format_float,
    format_initializer,
    format_struct,
)
from nnpipe.core.errors import CompileError

PAIRS = (CKernel("axes.c"), CKernel("pairs.c"))
SCALES = CKernel("scaled_pairs.c")
_HALF = (1 << 30, 0)  # multiplier and shift


def build_add(op: OperatorView) -> CStep:
    """Return the step of ADD."""
    return _build_unscaled_step(op, "add", "+") or _build_sum(op, 1)


def build_sub(op: OperatorView) -> CStep:
    """Return the step of SUB."""
    return _build_unscaled_step(op, "sub", "-") or _build_sum(op, -1)


def build_mul(op: OperatorView) -> CStep:
    """Return the step of MUL."""
    plain = _build_unscaled_step(op, "mul", "*")
    if plain is not None:
        return plain
    kind = _require_integer_type(op)
    first, second, out = op.input(0), op.input(1), op.output()
    # In 32 bits, as the kernel's preparation does it.
    factor = (
        np.float32(get_scale(first)) * np.float32(get_scale(second)) / np.float32(get_scale(out))
    )
    multiplier, shift = quantize_multiplier(float(factor))
    op.expect(shift <= 14, "its output has a very small scale")  # products have 17 bits
    low, high = quantize_activation_range(op.operator.read_option(0, "<b"), out)
    values = [
        get_zero_point(first),
        get_zero_point(second),
        get_zero_point(out),
        multiplier,
        shift,
        low,
        high,
    ]
    kernel = CKernel("mul_q.c", (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind])))
    return CStep(
        f"nn_mul_{SUFFIXES[kind]}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
        (CLAMP_Q, RESCALE, *PAIRS, kernel),
        before=[
            format_broadcast_strides(op),
            format_struct(f"nn_product_{SUFFIXES[kind]}", "s", values),
        ],
    )


def _require_integer_type(op: OperatorView) -> str:
    kinds = set(op.types())
    if len(kinds) != 1 or not kinds <= {"int8", "uint8"}:
        raise op.make_no_kernel_error()
    return kinds.pop()


def _build_sum(op: OperatorView, sign: int) -> CStep:
    kind = "int16" if op.types() == ("int16",) * 3 else _require_integer_type(op)
    first, second, out = op.input(0), op.input(1), op.output()
    left = 15 if kind == "int16" else 20
    if kind == "int16":
        op.expect(
            not (get_zero_point(first) or get_zero_point(second) or get_zero_point(out)),
            "a zero point of 16-bit numbers is not 0",
        )
        # Such scales have a kernel of their own, which only shifts.
        powers = all(math.frexp(get_scale(each))[0] == 0.5 for each in (first, second, out))
        op.expect(not powers, "all its scales are powers of two")
    twice = 2 * max(get_scale(first), get_scale(second))
    parts = [quantize_multiplier(get_scale(each) / twice) for each in (first, second)]
    whole = quantize_multiplier(twice / float(np.float32(1 << left) * np.float32(get_scale(out))))
    # TensorFlow Lite would end the process.
    op.expect(whole[1] <= 0, "its output has a very small scale")
    low, high = quantize_activation_range(op.operator.read_option(0, "<b"), out)
    if (
        kind == "int8"
        and first.shape == second.shape == out.shape
        and (parts[0] == _HALF or parts[1] == _HALF)
    ):
        found = _build_int8_sum(op, sign, parts, whole, (low, high))
        if found is not None:
            return found
    values = [
        get_zero_point(first),
        get_zero_point(second),
        get_zero_point(out),
        left,
        *parts[0],
        *parts[1],
        *whole,
        sign,
        low,
        high,
    ]
    kernel = CKernel("add_q.c", (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind])))
    return CStep(
        f"nn_add_{SUFFIXES[kind]}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
        (CLAMP_Q, RESCALE, *PAIRS, kernel),
        before=[
            format_broadcast_strides(op),
            format_struct(f"nn_sum_{SUFFIXES[kind]}", "s", values),
        ],
    )


def _build_int8_sum(
    op: OperatorView,
    sign: int,
    parts: list[tuple[int, int]],
    whole: tuple[int, int],
    bounds: tuple[int, int],
) -> CStep | None:
    """Return the step of a sum of tensors of the same shape, or None if ``nn_requantise`` cannot
    compute it.
    """
    signs, places = [1, sign], [0, 1] if parts[0] == _HALF else [1, 0]
    zeros = [get_zero_point(op.input(place)) for place in places]
    multiplier, shift = parts[places[1]]
    if multiplier == 0:
        shift = -1
    # A half is one times a half that is rounded: the numbers are even.
    left, shift = (21, -1) if (multiplier, shift) == _HALF else (20, shift)
    out_zero = get_zero_point(op.output())
    if (
        max(shift, whole[1]) >= 0
        or shift < -29
        or abs(2 * out_zero + 1) << -whole[1] - 1 >= 1 << 30
    ):
        return None
    first = signs[places[0]] << 19
    values = [
        first,
        -first * zeros[0],
        1 << left,
        -zeros[1] << left,
        multiplier,
        shift,
        signs[places[1]],
        out_zero,
        *whole,
        *bounds,
    ]
    clamps = bounds != LIMITS["int8"]
    words = (
        (("@", "clamped"), ("CLAMP", "nn_clamp"))
        if clamps
        else (("@", "whole"), ("CLAMP", "nn_saturate"))
    )
    return CStep(
        f"nn_add_s8_{words[0][1]}({{in{places[0]}}}, {{in{places[1]}}}, {{out0}}, "
        f"{op.output().count}, &s);",
        (*((CLAMP_Q,) if clamps else ()), DSP, REQUANTISE, CKernel("add_s8.c", words)),
        before=[format_struct(f"nn_sum_s8_{words[0][1]}", "s", values)],
    )


def build_div(op: OperatorView) -> CStep:
    """Return the step of DIV, of real numbers."""
    found = _build_unscaled_step(op, "div", "/") if op.types()[0] == "float32" else None
    if found is None:
        raise op.make_no_kernel_error()
    return found


def build_floor_div(op: OperatorView) -> CStep:
    """Return the step of FLOOR_DIV, of whole numbers."""
    if op.types() != ("int32",) * 3:
        raise op.make_no_kernel_error()
    return build_pairwise_step(
        op, "floor_div", "int32", "nn_floor_quotient(a, b)", CKernel("floor_div.c")
    )


def build_floor_mod(op: OperatorView) -> CStep:
    """Return the step of FLOOR_MOD, of whole numbers."""
    if op.types() != ("int32",) * 3:
        raise op.make_no_kernel_error()
    value = "(int32_t)((uint32_t)a - (uint32_t)nn_floor_quotient(a, b) * (uint32_t)b)"
    return build_pairwise_step(op, "floor_mod", "int32", value, CKernel("floor_div.c"))


def build_prelu(op: OperatorView) -> CStep:
    """Return the step of PRELU."""
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return build_pairwise_step(op, "prelu", "float32", "a >= 0 ? a : a * b")
    if kinds not in (("int8",) * 3, ("uint8",) * 3):
        raise op.make_no_kernel_error()
    data, slope, out = op.input(0), op.input(1), op.output()
    # LiteRT computes these factors in 32 bits.
    scale, slope_scale, out_scale = (np.float32(get_scale(each)) for each in (data, slope, out))
    plain = quantize_multiplier(float(scale / out_scale))
    sloped = quantize_multiplier(float(scale * slope_scale / out_scale))
    op.expect(plain[1] <= 22 and sloped[1] <= 14, "its output has a very small scale")
    low, high = LIMITS[kinds[0]]
    suffix = SUFFIXES[kinds[0]]
    words = (("@", suffix), ("OUT", C_TYPES[kinds[0]]), ("LEAST", str(low)), ("MOST", str(high)))
    values = [get_zero_point(data), get_zero_point(slope), get_zero_point(out), *plain, *sloped]
    return CStep(
        f"nn_prelu_{suffix}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
        (CLAMP_Q, RESCALE, *PAIRS, CKernel("prelu_q.c", words)),
        before=[format_broadcast_strides(op), format_struct(f"nn_slope_{suffix}", "s", values)],
    )


def build_squared_difference(op: OperatorView) -> CStep:
    """Return the step of SQUARED_DIFFERENCE."""
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return build_pairwise_step(op, "squared_difference", "float32", "(a - b) * (a - b)")
    if kinds == ("int32",) * 3:
        return build_pairwise_step(
            op, "squared_difference", "int32", "(int32_t)(((uint32_t)a - b) * ((uint32_t)a - b))"
        )
    if kinds != ("int8",) * 3:
        raise op.make_no_kernel_error()
    first, second, out = op.input(0), op.input(1), op.output()
    twice = 2 * max(get_scale(first), get_scale(second))
    whole = quantize_multiplier(
        twice * twice / float(np.float32(1 << 14) * np.float32(get_scale(out)))
    )
    # TensorFlow Lite would end the process.
    op.expect(whole[1] <= 0, "its output has a very small scale")
    both = format_input_scales(
        op, *(quantize_multiplier(get_scale(each) / twice) for each in (first, second))
    )
    return CStep(
        f"nn_squared_difference_s8({{in0}}, {{in1}}, {{out0}}, &p, &s, {whole[0]}, {whole[1]}, "
        f"{get_zero_point(out)});",
        (CLAMP_Q, RESCALE, *PAIRS, SCALES, CKernel("squared_difference.c")),
        before=[format_broadcast_strides(op), both],
    )


def format_input_scales(op: OperatorView, first: tuple[int, int], second: tuple[int, int]) -> str:
    """Return the zero points of two inputs, and the factors that bring them to one scale."""
    return format_struct(
        "nn_scales",
        "s",
        [get_zero_point(op.input(0)), get_zero_point(op.input(1)), *first, *second],
    )


def build_add_n(op: OperatorView) -> CStep:
    """Return the step of ADD_N, of real or whole numbers without scales."""
    kinds = set(op.types())
    op.expect(
        len(op.inputs) >= 2 and kinds in ({"float32"}, {"int32"}), str(op.make_no_kernel_error())
    )
    for place in range(len(op.inputs)):
        op.expect_shape(op.input(place).shape)
    step = build_add(op.select_inputs(0, 1))
    # The output so far is an input of each further sum; an element is read before it is written.
    more = [
        step.statement.replace("{in0}", "{out0}").replace("{in1}", f"{{in{n}}}")
        for n in range(2, len(op.inputs))
    ]
    return replace(step, statement=" ".join([step.statement, *more]))


def build_pairwise_step(
    op: OperatorView, name: str, kind: str, value: str, *kernels: CKernel, out: str = ""
) -> CStep:
    """Return the step of a function of two elements.

    Parameters
    ----------
    op, name
        The operator, and a name for its kernel.
    kind, out
        The type of its inputs and, if it is another one, of its output.
    value
        Computes the function in C from ``a`` and ``b``.
    *kernels
        Those that ``value`` needs.
    """
    name = f"{name}_{SUFFIXES.get(kind, kind)}"
    words = (("@", name), ("IN", C_TYPES[kind]), ("OUT", C_TYPES[out or kind]), ("COMPUTE", value))
    return CStep(
        f"nn_{name}({{in0}}, {{in1}}, {{out0}}, &p);",
        (*PAIRS, *kernels, CKernel("pairwise.c", words)),
        before=[format_broadcast_strides(op)],
    )


def _build_unscaled_step(op: OperatorView, name: str, operator: str) -> CStep | None:
    """Return the step of real or whole numbers without scales, or None if the first input is of
    another type.
    """
    kinds, activation = op.types(), op.operator.read_option(0, "<b")
    if op.input(0).spec.dtype not in ("float32", "int32"):
        return None
    if len(set(kinds)) != 1 or len(kinds) != 3:
        raise op.make_no_kernel_error()
    if kinds[0] == "int32":
        op.expect(activation == 0, "it has a fused activation")
        return build_pairwise_step(
            op, name, "int32", f"(int32_t)((uint32_t)a {operator} (uint32_t)b)"
        )
    low, high = map(format_float, get_activation_range(activation))
    return CStep(
        f"nn_{name}_f32({{in0}}, {{in1}}, {{out0}}, &p, {low}, {high});",
        (CLAMP, *PAIRS, CKernel("pairs_f.c", (("@", name), ("OPERATOR", operator)))),
        before=[format_broadcast_strides(op)],
    )


def format_broadcast_strides(op: OperatorView) -> str:
    """Return the lengths of four axes, and how far each input moves along them; all axes in one
    where shapes agree.
    """
    lengths, (first, second) = broadcast(op, op.input(0).shape, op.input(1).shape)
    return format_struct(
        "nn_pairs",
        "p",
        [format_initializer(lengths), format_initializer(first), format_initializer(second)],
    )


def broadcast(op: OperatorView, *shapes: tuple[int, ...]) -> tuple[list[int], list[list[int]]]:
    """Return the lengths of four axes of an output, and how far the place in each input moves
    along them.
    """
    try:
        made = np.broadcast_shapes(*shapes)
    except ValueError:
        raise CompileError(f"its inputs have the shapes {' and '.join(map(str, shapes))}") from None
    op.expect_shape(made)
    if len(set(shapes)) == 1:
        return [1, 1, 1, math.prod(made)], [[0, 0, 0, 1]] * len(shapes)
    op.expect(len(made) <= 4, "its inputs have different shapes and more than four axes")
    return [1] * (4 - len(made)) + list(made), [
        _compute_broadcast_strides(shape) for shape in shapes
    ]


def _compute_broadcast_strides(shape: tuple[int, ...]) -> list[int]:
    steps, step = [0, 0, 0, 0], 1
    for place, length in zip(range(3, -1, -1), reversed(shape), strict=False):
        steps[place] = 0 if length == 1 else step
        step *= length
    return steps


def make_comparison_builder(name: str, compare: str) -> Builder:
    """Return what makes the step of a comparison, such as ``"LESS"`` and ``"<"``."""

    def build(op: OperatorView) -> CStep:
        kinds = op.types()
        op.expect(
            len(kinds) == 3 and kinds[0] == kinds[1] and kinds[2] == "bool",
            str(op.make_no_kernel_error()),
        )
        scaled = kinds[0] in ("int8", "uint8") and op.input(0).spec.scale is not None
        if not scaled:
            known = kinds[0] in SUFFIXES or (kinds[0] == "bool" and compare in ("==", "!="))
            op.expect(known, str(op.make_no_kernel_error()))
            return build_pairwise_step(op, name.lower(), kinds[0], f"a {compare} b", out="bool")
        factors = [quantize_multiplier(get_scale(op.input(n))) for n in (0, 1)]
        op.expect(max(shift for _, shift in factors) <= 0, "a scale is 1 or more")
        suffix = f"{name.lower()}_{SUFFIXES[kinds[0]]}"
        words = (("@", suffix), ("IN", C_TYPES[kinds[0]]), ("COMPARE", compare))
        return CStep(
            f"nn_{suffix}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
            (RESCALE, *PAIRS, SCALES, CKernel("compare_q.c", words)),
            before=[format_broadcast_strides(op), format_input_scales(op, *factors)],
        )

    return build


def make_logical_builder(name: str, operator: str) -> Builder:
    """Return what makes the step of a function of two truth values, such as ``"LOGICAL_AND"``
    and ``"&&"``.
    """

    def build(op: OperatorView) -> CStep:
        op.expect(op.types() == ("bool",) * 3, str(op.make_no_kernel_error()))
        return build_pairwise_step(op, name.lower(), "bool", f"a {operator} b")

    return build


def build_logical_not(op: OperatorView) -> CStep:
    """Return the step of LOGICAL_NOT."""
    op.expect_shape(op.input(0).shape)
    op.expect(op.types() == ("bool", "bool"), str(op.make_no_kernel_error()))
    return CStep(
        f"nn_logical_not({{in0}}, {{out0}}, {op.output().count});", (CKernel("logical_not.c"),)
    )
