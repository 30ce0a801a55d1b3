"""Blocks of an image moved into channels or batches and back, and tensors repeated along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnpipe.compilers._c_code.operators.moves import contiguous, expect_same_values, fill_step, move_kernels, moves
from nnpipe.compilers._c_code.step import CStep, OperatorView


def space_to_depth(op: OperatorView) -> CStep:
    """Return the step of SPACE_TO_DEPTH."""
    data, size = op.input(0), op.operator.option(0, "<i")
    op.expect(len(data.shape) == 4 and 0 < size < 1 << 15, "its block is none")
    batches, height, width, depth = data.shape
    op.expect(height % size == 0 and width % size == 0, "its blocks do not fill its input")
    shape = (batches, height // size, width // size, depth * size * size)
    op.expect_shape(shape)
    inside = _blocks(data.shape, size)
    lengths = (batches, shape[1], size, shape[2], size, depth)
    outside = _order(shape, (size, size, depth))
    return _moved(op, lengths, inside, [outside[n] for n in (0, 1, 3, 2, 4, 5)])


def depth_to_space(op: OperatorView) -> CStep:
    """Return the step of DEPTH_TO_SPACE."""
    data, size = op.input(0), op.operator.option(0, "<i")
    op.expect(len(data.shape) == 4 and 0 < size < 1 << 15, "its block is none")
    batches, height, width, depth = data.shape
    op.expect(depth % (size * size) == 0, "its channels are no multiple of its blocks")
    channels = depth // (size * size)
    op.expect_shape((batches, height * size, width * size, channels))
    inside = _order(data.shape, (size, size, channels))
    outside = _blocks(op.output().shape, size)
    lengths = (batches, height, size, width, size, channels)
    return _moved(op, lengths, [inside[n] for n in (0, 1, 3, 2, 4, 5)], outside)


def space_to_batch_nd(op: OperatorView) -> CStep:
    """Return the step of SPACE_TO_BATCH_ND with two axes of space."""
    data, out = op.input(0), op.output()
    (rows, columns), pads = _block(op), op.integers(2)
    op.expect(len(pads) == 4 and min(pads) >= 0, "its padding is none")
    batches, height, width, depth = data.shape
    padded = (height + pads[0] + pads[1], width + pads[2] + pads[3])
    op.expect(padded[0] % rows == 0 and padded[1] % columns == 0, "its blocks do not fill its input")
    op.expect_shape((batches * rows * columns, padded[0] // rows, padded[1] // columns, depth))
    statements, before = [], []
    size = np.dtype(data.spec.dtype).itemsize
    for number, (row, column) in enumerate((r, c) for r in range(rows) for c in range(columns)):
        inside, outside, lengths = [], [], []
        for offset, block, pad, length in ((row, rows, pads[0], height), (column, columns, pads[2], width)):
            first = max(0, -(-(pad - offset) // block))  # the first place of the output that the input reaches
            inside.append(first * block + offset - pad)
            outside.append(first)
            lengths.append(max(0, -(-(length - inside[-1]) // block)))
        steps, out_steps = contiguous(data.shape), contiguous(out.shape)
        before.append(moves(
            f"m{number}", (batches, *lengths, depth), (steps[0], rows * steps[1], columns * steps[2], 1), out_steps,
            inside[0] * steps[1] + inside[1] * steps[2],
            number * batches * out_steps[0] + outside[0] * out_steps[1] + outside[1] * out_steps[2],
        ))  # fmt: skip
        statements.append(f"nn_move_{size}({{in0}}, {{out0}}, &m{number});")
    return fill_step(op, data, statements, before)


def batch_to_space_nd(op: OperatorView) -> CStep:
    """Return the step of BATCH_TO_SPACE_ND with two axes of space, without anything cut off."""
    data, out = op.input(0), op.output()
    rows, columns = _block(op)
    op.expect(op.integers(2) == [0] * 4, "it cuts off a border")
    blocks, height, width, depth = data.shape
    op.expect(blocks % (rows * columns) == 0, "its batches are no multiple of its blocks")
    batches = blocks // (rows * columns)
    op.expect_shape((batches, height * rows, width * columns, depth))
    steps, out_steps = contiguous(data.shape), contiguous(out.shape)
    lengths = (rows, columns, batches, height, width, depth)
    inside = (columns * batches * steps[0], batches * steps[0], *steps)
    outside = (out_steps[1], out_steps[2], out_steps[0], rows * out_steps[1], columns * out_steps[2], 1)
    return _moved(op, lengths, inside, outside)


def broadcast_to(op: OperatorView) -> CStep:
    """Return the step of BROADCAST_TO."""
    data, shape = op.input(0), op.output().shape
    op.expect(op.integers(1) == list(shape) and len(data.shape) <= len(shape), "its shape is none")
    given = (1,) * (len(shape) - len(data.shape)) + data.shape
    op.expect(all(a in (1, b) for a, b in zip(given, shape, strict=True)), "its input cannot be repeated like this")
    steps = [0 if n == 1 else step for n, step in zip(given, contiguous(given), strict=True)]
    return _moved(op, shape, steps, contiguous(shape))


def tile(op: OperatorView) -> CStep:
    """Return the step of TILE."""
    shape, times = op.input(0).shape, op.integers(1)
    op.expect(len(times) == len(shape) and min(times, default=1) > 0, "its numbers of repetitions are none")
    op.expect_shape([length * n for length, n in zip(shape, times, strict=True)])
    rows = zip(shape, times, contiguous(shape), contiguous(op.output().shape), strict=True)
    # Two axes for each of the output: repetitions, and what is repeated.
    axes = [each for length, n, step, out in rows for each in ((n, 0, out * length), (length, step, out))]
    kept = [each for each in axes if each[0] > 1] or [(1, 0, 0)]
    return _moved(op, *([each[n] for each in kept] for n in range(3)))


def _block(op: OperatorView) -> list[int]:
    block = op.integers(1)
    op.expect(len(op.input(0).shape) == 4 and min(op.input(0).shape) > 0, "its input has not four axes")
    op.expect(len(block) == 2 and min(block) > 0 and math.prod(block) <= 64, "its block is none, or too large")
    return block


def _blocks(shape: Sequence[int], size: int) -> list[int]:
    """Return how places move along batches, blocks of rows, rows, blocks of columns, columns, and channels."""
    steps = contiguous(shape)
    return [steps[0], steps[1] * size, steps[1], steps[2] * size, steps[2], steps[3]]


def _order(shape: Sequence[int], last: Sequence[int]) -> list[int]:
    return contiguous((*shape[:3], *last))


def _moved(op: OperatorView, lengths: Sequence[int], inside: Sequence[int], outside: Sequence[int]) -> CStep:
    size = np.dtype(op.output().spec.dtype).itemsize
    expect_same_values(op, op.input(0), op.output())
    op.expect(op.output().count > 0, "its output is empty")
    movement = moves("m", lengths, inside, outside, 0, 0)
    return CStep(f"nn_move_{size}({{in0}}, {{out0}}, &m);", move_kernels(size), before=[movement])
