"""Functions of the elements of two tensors: arithmetic, comparisons, and functions of truth
values.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nnpipe.compilers._c_code.fixed_point import (
    LIMITS,
    float_range,
    multiplier_of,
    quantised_range,
    scale_of,
    zero_of,
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
    braced,
    struct,
    text_of,
)
from nnpipe.core.errors import CompileError

PAIRS = (CKernel("axes.c"), CKernel("pairs.c"))
SCALES = CKernel("scaled_pairs.c")
_HALF = (1 << 30, 0)  # multiplier and shift


def add(op: OperatorView) -> CStep:
    """Return the step of ADD."""
    return _plain(op, "add", "+") or _sum(op, 1)


def sub(op: OperatorView) -> CStep:
    """Return the step of SUB."""
    return _plain(op, "sub", "-") or _sum(op, -1)


def mul(op: OperatorView) -> CStep:
    """Return the step of MUL."""
    plain = _plain(op, "mul", "*")
    if plain is not None:
        return plain
    kind = _integer_kind(op)
    first, second, out = op.input(0), op.input(1), op.output()
    # In 32 bits, as the kernel's preparation does it.
    factor = np.float32(scale_of(first)) * np.float32(scale_of(second)) / np.float32(scale_of(out))
    multiplier, shift = multiplier_of(float(factor))
    op.expect(shift <= 14, "its output has a very small scale")  # products have 17 bits
    low, high = quantised_range(op.operator.option(0, "<b"), out)
    values = [zero_of(first), zero_of(second), zero_of(out), multiplier, shift, low, high]
    kernel = CKernel("mul_q.c", (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind])))
    return CStep(
        f"nn_mul_{SUFFIXES[kind]}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
        (CLAMP_Q, RESCALE, *PAIRS, kernel),
        before=[positions(op), struct(f"nn_product_{SUFFIXES[kind]}", "s", values)],
    )


def _integer_kind(op: OperatorView) -> str:
    kinds = set(op.types())
    if len(kinds) != 1 or not kinds <= {"int8", "uint8"}:
        raise op.unsupported()
    return kinds.pop()


def _sum(op: OperatorView, sign: int) -> CStep:
    kind = "int16" if op.types() == ("int16",) * 3 else _integer_kind(op)
    first, second, out = op.input(0), op.input(1), op.output()
    left = 15 if kind == "int16" else 20
    if kind == "int16":
        op.expect(
            not (zero_of(first) or zero_of(second) or zero_of(out)),
            "a zero point of 16-bit numbers is not 0",
        )
        # Such scales have a kernel of their own, which only shifts.
        powers = all(math.frexp(scale_of(each))[0] == 0.5 for each in (first, second, out))
        op.expect(not powers, "all its scales are powers of two")
    twice = 2 * max(scale_of(first), scale_of(second))
    parts = [multiplier_of(scale_of(each) / twice) for each in (first, second)]
    whole = multiplier_of(twice / float(np.float32(1 << left) * np.float32(scale_of(out))))
    # TensorFlow Lite would end the process.
    op.expect(whole[1] <= 0, "its output has a very small scale")
    low, high = quantised_range(op.operator.option(0, "<b"), out)
    if (
        kind == "int8"
        and first.shape == second.shape == out.shape
        and (parts[0] == _HALF or parts[1] == _HALF)
    ):
        found = _sum_of_int8(op, sign, parts, whole, (low, high))
        if found is not None:
            return found
    values = [
        zero_of(first),
        zero_of(second),
        zero_of(out),
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
        before=[positions(op), struct(f"nn_sum_{SUFFIXES[kind]}", "s", values)],
    )


def _sum_of_int8(
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
    zeros = [zero_of(op.input(place)) for place in places]
    multiplier, shift = parts[places[1]]
    if multiplier == 0:
        shift = -1
    # A half is one times a half that is rounded: the numbers are even.
    left, shift = (21, -1) if (multiplier, shift) == _HALF else (20, shift)
    out_zero = zero_of(op.output())
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
        before=[struct(f"nn_sum_s8_{words[0][1]}", "s", values)],
    )


def div(op: OperatorView) -> CStep:
    """Return the step of DIV, of real numbers."""
    found = _plain(op, "div", "/") if op.types()[0] == "float32" else None
    if found is None:
        raise op.unsupported()
    return found


def floor_div(op: OperatorView) -> CStep:
    """Return the step of FLOOR_DIV, of whole numbers."""
    if op.types() != ("int32",) * 3:
        raise op.unsupported()
    return pairwise(op, "floor_div", "int32", "nn_floor_quotient(a, b)", CKernel("floor_div.c"))


def floor_mod(op: OperatorView) -> CStep:
    """Return the step of FLOOR_MOD, of whole numbers."""
    if op.types() != ("int32",) * 3:
        raise op.unsupported()
    value = "(int32_t)((uint32_t)a - (uint32_t)nn_floor_quotient(a, b) * (uint32_t)b)"
    return pairwise(op, "floor_mod", "int32", value, CKernel("floor_div.c"))


def prelu(op: OperatorView) -> CStep:
    """Return the step of PRELU."""
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return pairwise(op, "prelu", "float32", "a >= 0 ? a : a * b")
    if kinds not in (("int8",) * 3, ("uint8",) * 3):
        raise op.unsupported()
    data, slope, out = op.input(0), op.input(1), op.output()
    # LiteRT computes these factors in 32 bits.
    scale, slope_scale, out_scale = (np.float32(scale_of(each)) for each in (data, slope, out))
    plain = multiplier_of(float(scale / out_scale))
    sloped = multiplier_of(float(scale * slope_scale / out_scale))
    op.expect(plain[1] <= 22 and sloped[1] <= 14, "its output has a very small scale")
    low, high = LIMITS[kinds[0]]
    suffix = SUFFIXES[kinds[0]]
    words = (("@", suffix), ("OUT", C_TYPES[kinds[0]]), ("LEAST", str(low)), ("MOST", str(high)))
    values = [zero_of(data), zero_of(slope), zero_of(out), *plain, *sloped]
    return CStep(
        f"nn_prelu_{suffix}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
        (CLAMP_Q, RESCALE, *PAIRS, CKernel("prelu_q.c", words)),
        before=[positions(op), struct(f"nn_slope_{suffix}", "s", values)],
    )


def squared_difference(op: OperatorView) -> CStep:
    """Return the step of SQUARED_DIFFERENCE."""
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return pairwise(op, "squared_difference", "float32", "(a - b) * (a - b)")
    if kinds == ("int32",) * 3:
        return pairwise(
            op, "squared_difference", "int32", "(int32_t)(((uint32_t)a - b) * ((uint32_t)a - b))"
        )
    if kinds != ("int8",) * 3:
        raise op.unsupported()
    first, second, out = op.input(0), op.input(1), op.output()
    twice = 2 * max(scale_of(first), scale_of(second))
    whole = multiplier_of(twice * twice / float(np.float32(1 << 14) * np.float32(scale_of(out))))
    # TensorFlow Lite would end the process.
    op.expect(whole[1] <= 0, "its output has a very small scale")
    both = scales(op, *(multiplier_of(scale_of(each) / twice) for each in (first, second)))
    return CStep(
        f"nn_squared_difference_s8({{in0}}, {{in1}}, {{out0}}, &p, &s, {whole[0]}, {whole[1]}, "
        f"{zero_of(out)});",
        (CLAMP_Q, RESCALE, *PAIRS, SCALES, CKernel("squared_difference.c")),
        before=[positions(op), both],
    )


def scales(op: OperatorView, first: tuple[int, int], second: tuple[int, int]) -> str:
    """Return the zero points of two inputs, and the factors that bring them to one scale."""
    return struct("nn_scales", "s", [zero_of(op.input(0)), zero_of(op.input(1)), *first, *second])


def add_n(op: OperatorView) -> CStep:
    """Return the step of ADD_N, of real or whole numbers without scales."""
    kinds = set(op.types())
    op.expect(len(op.inputs) >= 2 and kinds in ({"float32"}, {"int32"}), str(op.unsupported()))
    for place in range(len(op.inputs)):
        op.expect_shape(op.input(place).shape)
    step = add(op.reordered(0, 1))
    # The output so far is an input of each further sum; an element is read before it is written.
    more = [
        step.statement.replace("{in0}", "{out0}").replace("{in1}", f"{{in{n}}}")
        for n in range(2, len(op.inputs))
    ]
    return replace(step, statement=" ".join([step.statement, *more]))


def pairwise(
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
        before=[positions(op)],
    )


def _plain(op: OperatorView, name: str, operator: str) -> CStep | None:
    """Return the step of real or whole numbers without scales, or None if the first input is of
    another type.
    """
    kinds, activation = op.types(), op.operator.option(0, "<b")
    if op.input(0).spec.dtype not in ("float32", "int32"):
        return None
    if len(set(kinds)) != 1 or len(kinds) != 3:
        raise op.unsupported()
    if kinds[0] == "int32":
        op.expect(activation == 0, "it has a fused activation")
        return pairwise(op, name, "int32", f"(int32_t)((uint32_t)a {operator} (uint32_t)b)")
    low, high = map(text_of, float_range(activation))
    return CStep(
        f"nn_{name}_f32({{in0}}, {{in1}}, {{out0}}, &p, {low}, {high});",
        (CLAMP, *PAIRS, CKernel("pairs_f.c", (("@", name), ("OPERATOR", operator)))),
        before=[positions(op)],
    )


def positions(op: OperatorView) -> str:
    """Return the lengths of four axes, and how far each input moves along them; all axes in one
    where shapes agree.
    """
    lengths, (first, second) = broadcast(op, op.input(0).shape, op.input(1).shape)
    return struct("nn_pairs", "p", [braced(lengths), braced(first), braced(second)])


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
    return [1] * (4 - len(made)) + list(made), [_steps(shape) for shape in shapes]


def _steps(shape: tuple[int, ...]) -> list[int]:
    steps, step = [0, 0, 0, 0], 1
    for place, length in zip(range(3, -1, -1), reversed(shape), strict=False):
        steps[place] = 0 if length == 1 else step
        step *= length
    return steps


def comparison(name: str, compare: str) -> Builder:
    """Return what makes the step of a comparison, such as ``"LESS"`` and ``"<"``."""

    def build(op: OperatorView) -> CStep:
        kinds = op.types()
        op.expect(
            len(kinds) == 3 and kinds[0] == kinds[1] and kinds[2] == "bool", str(op.unsupported())
        )
        scaled = kinds[0] in ("int8", "uint8") and op.input(0).spec.scale is not None
        if not scaled:
            known = kinds[0] in SUFFIXES or (kinds[0] == "bool" and compare in ("==", "!="))
            op.expect(known, str(op.unsupported()))
            return pairwise(op, name.lower(), kinds[0], f"a {compare} b", out="bool")
        factors = [multiplier_of(scale_of(op.input(n))) for n in (0, 1)]
        op.expect(max(shift for _, shift in factors) <= 0, "a scale is 1 or more")
        suffix = f"{name.lower()}_{SUFFIXES[kinds[0]]}"
        words = (("@", suffix), ("IN", C_TYPES[kinds[0]]), ("COMPARE", compare))
        return CStep(
            f"nn_{suffix}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
            (RESCALE, *PAIRS, SCALES, CKernel("compare_q.c", words)),
            before=[positions(op), scales(op, *factors)],
        )

    return build


def logical(name: str, operator: str) -> Builder:
    """Return what makes the step of a function of two truth values, such as ``"LOGICAL_AND"``
    and ``"&&"``.
    """

    def build(op: OperatorView) -> CStep:
        op.expect(op.types() == ("bool",) * 3, str(op.unsupported()))
        return pairwise(op, name.lower(), "bool", f"a {operator} b")

    return build


def logical_not(op: OperatorView) -> CStep:
    """Return the step of LOGICAL_NOT."""
    op.expect_shape(op.input(0).shape)
    op.expect(op.types() == ("bool", "bool"), str(op.unsupported()))
    return CStep(
        f"nn_logical_not({{in0}}, {{out0}}, {op.output().count});", (CKernel("logical_not.c"),)
    )
