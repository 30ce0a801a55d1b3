"""How much arithmetic a primitive is: multiply-accumulates and other operations on single numbers.

A multiply-accumulate (MAC) counts where products are summed: in convolutions, matrix products, recurrent layers and
attention.  Everything else is counted in operations, of which a MAC is two.  A bias is the first summand of a sum and
costs nothing; a function such as ``exp`` is one operation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnpipe.core.primitive_shapes import product
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    Length,
    MatrixProduct,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# Operations besides the products, for each unit and step: activations, products with gates, and sums.
_CELL_OPERATIONS = {"lstm": 9, "gru": 8, "rnn": 1}
_SOFTMAX = 4  # maximum, difference and exponential, sum, quotient
_NORMALISATION = {"batch": 2, "rms": 4, "l2": 3, "local response": 6}
_USUAL_NORMALISATION = 7  # mean, difference, square, its mean, quotient, scale, shift
# Operations for each value of the output, by the number of neighbours that each axis takes.
_NEIGHBOURS = {"linear": 2, "cubic": 4}


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of one computation.

    Parameters
    ----------
    macs
        Multiply-accumulates.
    others
        Further operations on single numbers: additions, comparisons, exponentials.

    Examples
    --------
    >>> Arithmetic(1000, 10).operations
    2010
    """

    macs: int = 0
    others: int = 0

    @property
    def operations(self) -> int:
        """Return all operations, two for each multiply-accumulate (known as FLOPs)."""
        return 2 * self.macs + self.others

    def __add__(self, other: Arithmetic) -> Arithmetic:
        return Arithmetic(self.macs + other.macs, self.others + other.others)


def arithmetic_of(primitive: Primitive, inputs: tuple[Length, ...], outputs: tuple[Length, ...]) -> Arithmetic | None:
    """Return the arithmetic of a primitive; ``None`` if it has no rule, or a length is not known.

    Parameters
    ----------
    primitive
        What is computed.
    inputs, outputs
        The number of values in each tensor that the operation reads and writes.
    """
    macs: Length = 0
    others: Length = 0
    if isinstance(primitive, ConvolutionPrimitive):
        shared = primitive.in_channels // primitive.groups * primitive.out_channels
        macs = product((primitive.positions, shared, *primitive.kernel))
    elif isinstance(primitive, MatrixProduct):
        macs = product((primitive.batch, primitive.rows, primitive.depth, primitive.columns))
    elif isinstance(primitive, AttentionPrimitive):
        scores = product((primitive.batch, primitive.queries, primitive.keys))
        widths = None if primitive.depth is None or primitive.value_depth is None else (
            primitive.depth + primitive.value_depth
        )  # fmt: skip
        macs, others = product((scores, widths)), product((scores, _SOFTMAX + 1))
    elif isinstance(primitive, RecurrentPrimitive):
        cells = product((primitive.batch, primitive.steps, primitive.directions, primitive.units))
        width = None if primitive.inputs is None or primitive.units is None else primitive.inputs + primitive.units
        macs = product((cells, _GATES[primitive.cell], width))
        others = product((cells, _CELL_OPERATIONS[primitive.cell]))
    elif isinstance(primitive, PoolingPrimitive):
        others = product((outputs[0] if outputs else None, *primitive.kernel))
        if not primitive.kernel:
            others = inputs[0] if inputs else None
    elif isinstance(primitive, PlainPrimitive):
        others = _plain(primitive, inputs, outputs)
    else:
        return None
    return None if macs is None or others is None else Arithmetic(macs, others)


def _plain(primitive: PlainPrimitive, inputs: tuple[Length, ...], outputs: tuple[Length, ...]) -> Length:
    written = outputs[0] if outputs else 0
    read = inputs[0] if inputs else 0
    if primitive.plain == "elementwise":
        return product((written, max(1, len(inputs) - 1)))
    if primitive.plain == "reduction":
        return read
    if primitive.plain == "softmax":
        return product((read, _SOFTMAX))
    if primitive.plain == "normalisation":
        return product((read, _NORMALISATION.get(primitive.function, _USUAL_NORMALISATION)))
    if primitive.plain == "quantisation":
        return product((written, 2))
    if primitive.plain == "resize":
        neighbours = _NEIGHBOURS.get(primitive.function)
        # Without a known number of axes, pictures are resized along two.
        return 0 if neighbours is None else product((written, 2 * math.prod([neighbours] * (len(primitive.axes) or 2))))
    return 0  # gather, movement and view compute nothing
