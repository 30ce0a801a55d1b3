"""Images in another size; which places of the input an output is made of is computed ahead of
time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.operators.data_movement import (
    build_fill_step,
    check_same_quantization,
    compute_strides,
    format_movement,
    move_kernels,
)
from nnpipe.compilers._c_code.step import (
    C_TYPES,
    SUFFIXES,
    CKernel,
    CStep,
    OperatorView,
    format_struct,
)

_BITS = 10  # of the factors of integers


def build_resize_nearest_neighbor(op: OperatorView) -> CStep:
    """Return the step of RESIZE_NEAREST_NEIGHBOR."""
    size = _size(op)
    corners, centers = (op.operator.read_option(n, "<b") != 0 for n in (0, 1))
    found = {
        name: np.array(
            [_find_nearest(at, *lengths, corners, centers) for at in range(lengths[1])], np.int32
        )
        for name, lengths in (("rows", (size[1], size[3])), ("columns", (size[2], size[4])))
    }
    width = np.dtype(op.output().spec.dtype).itemsize
    words = (("@", str(width)), ("OUT", f"uint{8 * width}_t"))
    return CStep(
        f"nn_resize_nearest_{width}({{in0}}, {{out0}}, size, {{rows}}, {{columns}});",
        (CKernel("resize_nearest.c", words),),
        found,
        [_format_size(size)],
    )


def build_resize_bilinear(op: OperatorView) -> CStep:
    """Return the step of RESIZE_BILINEAR."""
    size = _size(op)
    corners, centers = (op.operator.read_option(n, "<b") != 0 for n in (2, 3))
    kind = op.output().spec.dtype
    op.expect(kind in ("int8", "uint8", "int16", "float32"), str(op.make_no_kernel_error()))
    real = kind in ("uint8", "float32")  # as the reference kernels have it
    between = _find_neighbours if real else _find_integer_neighbours
    found: dict[str, npt.NDArray[np.generic]] = {}
    for names, lengths in (
        (("rows", "down"), (size[1], size[3])),
        (("columns", "right"), (size[2], size[4])),
    ):
        places = [between(at, *lengths, corners, centers) for at in range(lengths[1])]
        found[names[0]] = np.array([place[:2] for place in places], np.int32)
        found[names[1]] = np.array([place[2] for place in places], np.float32 if real else np.int32)
    words = (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind])) + (
        (
            ("FACTOR", "float"),
            ("SUM", "float"),
            ("ONE", "1.0f"),
            ("ROUNDED", "sum" if kind == "float32" else "sum + 0.5f"),
        )
        if real
        else (
            ("FACTOR", "int32_t"),
            ("SUM", "int64_t"),
            ("ONE", str(1 << _BITS)),
            ("ROUNDED", "(sum + (sum > 0 ? 1 << 19 : -(1 << 19))) / (1 << 20)"),
        )
    )
    return CStep(
        f"nn_resize_bilinear_{SUFFIXES[kind]}({{in0}}, {{out0}}, size, {{rows}}, {{down}}, "
        f"{{columns}}, {{right}});",
        (CKernel("resize_bilinear.c", words),),
        found,
        [_format_size(size)],
    )


def _size(op: OperatorView) -> list[int]:
    """Return batches, rows and columns of input and output, and channels, after checking that
    nothing else changes.
    """
    data, out = op.input(0), op.output()
    op.expect(len(data.shape) == 4 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    size = op.integers(1)
    op.expect(len(size) == 2 and min(size) > 0, "its size is none")
    op.expect_shape((data.shape[0], *size, data.shape[3]))
    same = (data.spec.dtype, data.spec.scale, data.spec.zero_point)
    op.expect(
        same == (out.spec.dtype, out.spec.scale, out.spec.zero_point),
        "input and output have other scales",
    )
    op.expect(out.spec.dtype in C_TYPES, str(op.make_no_kernel_error()))
    return [*data.shape[:3], *size, data.shape[3]]


def _format_size(size: list[int]) -> str:
    return format_struct("int32_t", "size[6]", size)


def _compute_scale(length: int, made: int, corners: bool) -> np.float32:
    between = (length - 1, made - 1) if corners and made > 1 else (length, made)
    scale: np.float32 = np.float32(between[0]) / np.float32(between[1])
    return scale


def _find_nearest(at: int, length: int, made: int, corners: bool, centers: bool) -> int:
    place = float(
        (np.float32(at) + np.float32(0.5 if centers else 0)) * _compute_scale(length, made, corners)
    )
    return max(0, min(math.floor(place + 0.5) if corners else math.floor(place), length - 1))


def _find_neighbours(
    at: int, length: int, made: int, corners: bool, centers: bool
) -> tuple[int, int, float]:
    scale, half = _compute_scale(length, made, corners), np.float32(0.5)
    place = (np.float32(at) + half) * scale - half if centers else np.float32(at) * scale
    lower, upper = max(math.floor(place), 0), min(math.ceil(place), length - 1)
    return lower, upper, float(place - np.float32(lower))


def _find_integer_neighbours(
    at: int, length: int, made: int, corners: bool, centers: bool
) -> tuple[int, int, int]:
    one = 1 << _BITS
    steps = (length - 1, made - 1) if corners and made > 1 else (length, made)
    scale = (one * steps[0] + steps[1] // 2) // steps[1]
    place = at * scale + (scale // 2 - one // 2 if centers else 0)
    lower, upper = max(place // one, 0), min(max(place + one - 1, 0) // one, length - 1)
    return lower, upper, place - one * lower


def build_space_to_depth(op: OperatorView) -> CStep:
    """Return the step of SPACE_TO_DEPTH."""
    data, size = op.input(0), op.operator.read_option(0, "<i")
    op.expect(len(data.shape) == 4 and 0 < size < 1 << 15, "its block is none")
    batches, height, width, depth = data.shape
    op.expect(height % size == 0 and width % size == 0, "its blocks do not fill its input")
    shape = (batches, height // size, width // size, depth * size * size)
    op.expect_shape(shape)
    inside = _compute_block_strides(data.shape, size)
    lengths = (batches, shape[1], size, shape[2], size, depth)
    outside = _compute_split_strides(shape, (size, size, depth))
    return _build_move_step(op, lengths, inside, [outside[n] for n in (0, 1, 3, 2, 4, 5)])


def build_depth_to_space(op: OperatorView) -> CStep:
    """Return the step of DEPTH_TO_SPACE."""
    data, size = op.input(0), op.operator.read_option(0, "<i")
    op.expect(len(data.shape) == 4 and 0 < size < 1 << 15, "its block is none")
    batches, height, width, depth = data.shape
    op.expect(depth % (size * size) == 0, "its channels are no multiple of its blocks")
    channels = depth // (size * size)
    op.expect_shape((batches, height * size, width * size, channels))
    inside = _compute_split_strides(data.shape, (size, size, channels))
    outside = _compute_block_strides(op.output().shape, size)
    lengths = (batches, height, size, width, size, channels)
    return _build_move_step(op, lengths, [inside[n] for n in (0, 1, 3, 2, 4, 5)], outside)


def build_space_to_batch_nd(op: OperatorView) -> CStep:
    """Return the step of SPACE_TO_BATCH_ND with two axes of space."""
    data, out = op.input(0), op.output()
    (rows, columns), pads = _read_block(op), op.integers(2)
    op.expect(len(pads) == 4 and min(pads) >= 0, "its padding is none")
    batches, height, width, depth = data.shape
    padded = (height + pads[0] + pads[1], width + pads[2] + pads[3])
    op.expect(
        padded[0] % rows == 0 and padded[1] % columns == 0, "its blocks do not fill its input"
    )
    op.expect_shape((batches * rows * columns, padded[0] // rows, padded[1] // columns, depth))
    statements, before = [], []
    size = np.dtype(data.spec.dtype).itemsize
    for number, (row, column) in enumerate((r, c) for r in range(rows) for c in range(columns)):
        inside, outside, lengths = [], [], []
        for offset, block, pad, length in (
            (row, rows, pads[0], height),
            (column, columns, pads[2], width),
        ):
            # the first place of the output that the input reaches
            first = max(0, -(-(pad - offset) // block))
            inside.append(first * block + offset - pad)
            outside.append(first)
            lengths.append(max(0, -(-(length - inside[-1]) // block)))
        steps, out_steps = compute_strides(data.shape), compute_strides(out.shape)
        before.append(
            format_movement(
                f"m{number}",
                (batches, *lengths, depth),
                (steps[0], rows * steps[1], columns * steps[2], 1),
                out_steps,
                inside[0] * steps[1] + inside[1] * steps[2],
                number * batches * out_steps[0]
                + outside[0] * out_steps[1]
                + outside[1] * out_steps[2],
            )
        )
        statements.append(f"nn_move_{size}({{in0}}, {{out0}}, &m{number});")
    return build_fill_step(op, data, statements, before)


def build_batch_to_space_nd(op: OperatorView) -> CStep:
    """Return the step of BATCH_TO_SPACE_ND with two axes of space, without anything cut off."""
    data, out = op.input(0), op.output()
    rows, columns = _read_block(op)
    op.expect(op.integers(2) == [0] * 4, "it cuts off a border")
    blocks, height, width, depth = data.shape
    op.expect(blocks % (rows * columns) == 0, "its batches are no multiple of its blocks")
    batches = blocks // (rows * columns)
    op.expect_shape((batches, height * rows, width * columns, depth))
    steps, out_steps = compute_strides(data.shape), compute_strides(out.shape)
    lengths = (rows, columns, batches, height, width, depth)
    inside = (columns * batches * steps[0], batches * steps[0], *steps)
    outside = (
        out_steps[1],
        out_steps[2],
        out_steps[0],
        rows * out_steps[1],
        columns * out_steps[2],
        1,
    )
    return _build_move_step(op, lengths, inside, outside)


def build_broadcast_to(op: OperatorView) -> CStep:
    """Return the step of BROADCAST_TO."""
    data, shape = op.input(0), op.output().shape
    op.expect(op.integers(1) == list(shape) and len(data.shape) <= len(shape), "its shape is none")
    given = (1,) * (len(shape) - len(data.shape)) + data.shape
    op.expect(
        all(a in (1, b) for a, b in zip(given, shape, strict=True)),
        "its input cannot be repeated like this",
    )
    steps = [0 if n == 1 else step for n, step in zip(given, compute_strides(given), strict=True)]
    return _build_move_step(op, shape, steps, compute_strides(shape))


def build_tile(op: OperatorView) -> CStep:
    """Return the step of TILE."""
    shape, times = op.input(0).shape, op.integers(1)
    op.expect(
        len(times) == len(shape) and min(times, default=1) > 0,
        "its numbers of repetitions are none",
    )
    op.expect_shape([length * n for length, n in zip(shape, times, strict=True)])
    rows = zip(
        shape, times, compute_strides(shape), compute_strides(op.output().shape), strict=True
    )
    # Two axes for each of the output: repetitions, and what is repeated.
    axes = [
        each
        for length, n, step, out in rows
        for each in ((n, 0, out * length), (length, step, out))
    ]
    kept = [each for each in axes if each[0] > 1] or [(1, 0, 0)]
    return _build_move_step(op, *([each[n] for each in kept] for n in range(3)))


def _read_block(op: OperatorView) -> list[int]:
    block = op.integers(1)
    op.expect(
        len(op.input(0).shape) == 4 and min(op.input(0).shape) > 0, "its input has not four axes"
    )
    op.expect(
        len(block) == 2 and min(block) > 0 and math.prod(block) <= 64,
        "its block is none, or too large",
    )
    return block


def _compute_block_strides(shape: Sequence[int], size: int) -> list[int]:
    """Return how places move along batches, blocks of rows, rows, blocks of columns, columns,
    and channels.
    """
    steps = compute_strides(shape)
    return [steps[0], steps[1] * size, steps[1], steps[2] * size, steps[2], steps[3]]


def _compute_split_strides(shape: Sequence[int], last: Sequence[int]) -> list[int]:
    return compute_strides((*shape[:3], *last))


def _build_move_step(
    op: OperatorView, lengths: Sequence[int], inside: Sequence[int], outside: Sequence[int]
) -> CStep:
    size = np.dtype(op.output().spec.dtype).itemsize
    check_same_quantization(op, op.input(0), op.output())
    op.expect(op.output().count > 0, "its output is empty")
    movement = format_movement("m", lengths, inside, outside, 0, 0)
    return CStep(f"nn_move_{size}({{in0}}, {{out0}}, &m);", move_kernels(size), before=[movement])
