"""Recurrent layers, whose states are kept from one run to the next."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.operators.common_kernels import CLAMP
from nnpipe.compilers._c_code.operators.functions import LOGISTIC, TANH
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView, text_of

_TANH = 4
# Places of the inputs: of input, forget, cell and output gate.
_WEIGHTS, _RECURRENT, _BIASES, _LEFT_OUT = (1, 2, 3, 4), (5, 6, 7, 8), (12, 13, 14, 15), (9, 10, 11, 16, 17)
_OUTPUT_STATE, _CELL_STATE = 18, 19


def unidirectional_sequence_lstm(op: OperatorView) -> CStep:
    """Return the step of UNIDIRECTIONAL_SEQUENCE_LSTM, of real numbers and in its basic form."""
    op.expect(len(op.inputs) > _CELL_STATE, "inputs are missing")
    op.expect(set(op.types()) == {"float32"}, str(op.unsupported()))
    extra = [n for n in (*_LEFT_OUT, *range(20, len(op.inputs))) if op.inputs[n] is not None]
    op.expect(not extra, "it has peepholes, a projection or a normalisation")
    op.expect(op.operator.option(0, "<b") == _TANH, "its activation is not tanh")
    data, clip, time_major = op.input(0), op.operator.real_option(1), op.operator.option(3, "<b") != 0
    op.expect(math.isfinite(clip) and clip >= 0, f"its cells are clipped at {clip}")
    op.expect(len(data.shape) == 3 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    batches, steps = (data.shape[1], data.shape[0]) if time_major else data.shape[:2]
    depth, units = data.shape[2], op.input(_BIASES[0]).count
    op.expect_shape((*data.shape[:2], units))
    for place in (_OUTPUT_STATE, _CELL_STATE):
        op.expect(op.state(place).shape == (batches, units), "a state has another shape")
    stacked: dict[str, npt.NDArray[np.generic]] = {}
    for name, places, shape in (
        ("weights", _WEIGHTS, (units, depth)), ("recurrent", _RECURRENT, (units, units)), ("bias", _BIASES, (units,)),
    ):  # fmt: skip
        parts = [op.constant(place) for place in places]
        op.expect(all(part.shape == shape for part in parts), "its weights have different shapes")
        stacked[name] = np.concatenate(parts)
    next_step, next_batch = (batches, 1) if time_major else (1, steps)
    return CStep(
        f"nn_lstm_f32({{in0}}, {{weights}}, {{recurrent}}, {{bias}}, (float *){{in{_OUTPUT_STATE}}}, "
        f"(float *){{in{_CELL_STATE}}}, {{scratch}}, {{out0}}, {batches}, {steps}, {depth}, {units}, "
        f"{next_step}, {next_batch}, {text_of(clip)});",
        (CLAMP, *LOGISTIC, *TANH, CKernel("lstm_f.c")), stacked, scratch=16 * units,
    )  # fmt: skip
