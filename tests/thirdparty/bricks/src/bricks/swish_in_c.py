"""The operator of :mod:`bricks.swish` for devices without an operating system."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from nnpipe.compilers.c import (
    EXP,
    CKernel,
    COperator,
    CStep,
    OperatorView,
    build_float_lookup,
    format_float,
)


class BricksSwishInC(COperator):
    """The custom operator BricksSwish in C; its options are its steepness as a 32-bit float."""

    operator: ClassVar[str] = "BricksSwish"
    uses: ClassVar[tuple[CKernel, ...]] = (EXP,)
    kernel: ClassVar[str] = """
static void bricks_swish(const float *in, float *out, int32_t count, float steepness) {
    for (int32_t i = 0; i < count; i++) out[i] = in[i] / (1.0f + nn_exp(-steepness * in[i]));
}
"""

    def step(self, op: OperatorView) -> CStep:
        """Return a call for floats, and a table of 256 numbers for int8."""
        op.expect_shape(op.input(0).shape)
        op.expect(len(op.operator.custom_options) == 4, "its options are no steepness")
        steepness = float(np.frombuffer(op.operator.custom_options, "<f4")[0])
        if op.types() == ("float32", "float32"):
            return CStep(
                f"bricks_swish({{in0}}, {{out0}}, {op.output().count}, {format_float(steepness)});"
            )
        op.expect(op.types() == ("int8", "int8"), f"no kernel for {', '.join(op.types())}")
        return build_float_lookup(op, lambda x: x / (1 + math.exp(min(-steepness * x, 700.0))))
