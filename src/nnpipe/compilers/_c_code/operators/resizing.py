"""Images in another size; which places of the input an output is made of is computed ahead of time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, struct

_BITS = 10  # of the factors of integers


def resize_nearest_neighbor(op: OperatorView) -> CStep:
    """Return the step of RESIZE_NEAREST_NEIGHBOR."""
    size = _size(op)
    corners, centers = (op.operator.option(n, "<b") != 0 for n in (0, 1))
    found = {
        name: np.array([_nearest(at, *lengths, corners, centers) for at in range(lengths[1])], np.int32)
        for name, lengths in (("rows", (size[1], size[3])), ("columns", (size[2], size[4])))
    }
    width = np.dtype(op.output().spec.dtype).itemsize
    words = (("@", str(width)), ("OUT", f"uint{8 * width}_t"))
    return CStep(
        f"nn_resize_nearest_{width}({{in0}}, {{out0}}, size, {{rows}}, {{columns}});",
        (CKernel("resize_nearest.c", words),), found, [_definition(size)],
    )  # fmt: skip


def resize_bilinear(op: OperatorView) -> CStep:
    """Return the step of RESIZE_BILINEAR."""
    size = _size(op)
    corners, centers = (op.operator.option(n, "<b") != 0 for n in (2, 3))
    kind = op.output().spec.dtype
    op.expect(kind in ("int8", "uint8", "int16", "float32"), str(op.unsupported()))
    real = kind in ("uint8", "float32")  # as the reference kernels have it
    between = _between if real else _between_integers
    found: dict[str, npt.NDArray[np.generic]] = {}
    for names, lengths in ((("rows", "down"), (size[1], size[3])), (("columns", "right"), (size[2], size[4]))):
        places = [between(at, *lengths, corners, centers) for at in range(lengths[1])]
        found[names[0]] = np.array([place[:2] for place in places], np.int32)
        found[names[1]] = np.array([place[2] for place in places], np.float32 if real else np.int32)
    words = (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind])) + (
        (
            ("FACTOR", "float"), ("SUM", "float"), ("ONE", "1.0f"),
            ("ROUNDED", "sum" if kind == "float32" else "sum + 0.5f"),
        )
        if real
        else (
            ("FACTOR", "int32_t"), ("SUM", "int64_t"), ("ONE", str(1 << _BITS)),
            ("ROUNDED", "(sum + (sum > 0 ? 1 << 19 : -(1 << 19))) / (1 << 20)"),
        )
    )  # fmt: skip
    return CStep(
        f"nn_resize_bilinear_{SUFFIXES[kind]}({{in0}}, {{out0}}, size, {{rows}}, {{down}}, {{columns}}, {{right}});",
        (CKernel("resize_bilinear.c", words),), found, [_definition(size)],
    )  # fmt: skip


def _size(op: OperatorView) -> list[int]:
    """Return batches, rows and columns of input and output, and channels, after checking that nothing else changes."""
    data, out = op.input(0), op.output()
    op.expect(len(data.shape) == 4 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    size = op.integers(1)
    op.expect(len(size) == 2 and min(size) > 0, "its size is none")
    op.expect_shape((data.shape[0], *size, data.shape[3]))
    same = (data.spec.dtype, data.spec.scale, data.spec.zero_point)
    op.expect(same == (out.spec.dtype, out.spec.scale, out.spec.zero_point), "input and output have other scales")
    op.expect(out.spec.dtype in C_TYPES, str(op.unsupported()))
    return [*data.shape[:3], *size, data.shape[3]]


def _definition(size: list[int]) -> str:
    return struct("int32_t", "size[6]", size)


def _scale(length: int, made: int, corners: bool) -> np.float32:
    between = (length - 1, made - 1) if corners and made > 1 else (length, made)
    scale: np.float32 = np.float32(between[0]) / np.float32(between[1])
    return scale


def _nearest(at: int, length: int, made: int, corners: bool, centers: bool) -> int:
    place = float((np.float32(at) + np.float32(0.5 if centers else 0)) * _scale(length, made, corners))
    return max(0, min(math.floor(place + 0.5) if corners else math.floor(place), length - 1))


def _between(at: int, length: int, made: int, corners: bool, centers: bool) -> tuple[int, int, float]:
    scale, half = _scale(length, made, corners), np.float32(0.5)
    place = (np.float32(at) + half) * scale - half if centers else np.float32(at) * scale
    lower, upper = max(math.floor(place), 0), min(math.ceil(place), length - 1)
    return lower, upper, float(place - np.float32(lower))


def _between_integers(at: int, length: int, made: int, corners: bool, centers: bool) -> tuple[int, int, int]:
    one = 1 << _BITS
    steps = (length - 1, made - 1) if corners and made > 1 else (length, made)
    scale = (one * steps[0] + steps[1] // 2) // steps[1]
    place = at * scale + (scale // 2 - one // 2 if centers else 0)
    lower, upper = max(place // one, 0), min(max(place + one - 1, 0) // one, length - 1)
    return lower, upper, place - one * lower
