"""What a layer of quantised weights computes: checked, and with its factors as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import multiplier_of, quantised_range, scale_of, scales_of, zero_of
from nnpipe.compilers._c_code.step import OperatorView, struct
from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_program import ProgramTensor

_LARGEST_SUM = (1 << 31) - 1


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer of quantised weights.

    Attributes
    ----------
    dtype
        The type of its input and output.
    weights
        Its weights as the file has them.
    bias
        Of shape (channels,), or None.
    factors
        A multiplier and a shift for each channel.
    in_zero, weight_zero, out_zero
        Zero points.
    low, high
        The least and greatest output.
    """

    dtype: str
    weights: npt.NDArray[np.generic]
    bias: npt.NDArray[np.generic] | None
    factors: Sequence[tuple[int, int]]
    in_zero: int
    weight_zero: int
    out_zero: int
    low: int
    high: int

    @property
    def zeros(self) -> str:
        """The definition of its zero points and bounds."""
        return struct("nn_zeros", "z", [self.in_zero, self.weight_zero, self.out_zero, self.low, self.high])

    def factor_constants(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the factors as constants."""
        return factor_constants(self.factors)

    def constants(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all of it as constants."""
        found = {"weights": self.weights, **factor_constants(self.factors)}
        return found if self.bias is None else {**found, "bias": self.bias}


def factor_constants(factors: Sequence[tuple[int, int]]) -> dict[str, npt.NDArray[np.generic]]:
    """Return multipliers and shifts as constants."""
    return {
        "multiplier": np.array([multiplier for multiplier, _ in factors], np.int32),
        "shift": np.array([shift for _, shift in factors], np.int8),
    }


def quantised_layer(op: OperatorView, channels: int, axis: int, activation: int) -> QuantisedLayer:
    """Return a quantised layer.

    Parameters
    ----------
    op
        The operator.
    channels
        The length of its output's last axis.
    axis
        The axis of the weights that has this length.
    activation
        The fused activation.

    Raises
    ------
    CompileError
        If no kernel computes it, or its sums could overflow.
    """
    data, weights, out = op.input(0), op.input(1), op.output()
    kinds = (data.spec.dtype, weights.spec.dtype, out.spec.dtype)
    if kinds not in (("int8",) * 3, ("uint8",) * 3, ("int16", "int8", "int16")):
        raise op.unsupported()
    wide = kinds[0] == "int16"
    if wide and (zero_of(data) or zero_of(out)):
        raise CompileError("a zero point of 16-bit numbers is not 0")
    bias = bias_of(op, channels, *(("int64", "int32") if wide else ("int32",)))
    weight_zero = zero_of(weights) if isinstance(weights.spec.scale, float) else 0
    content = op.constant(1)
    _check_sums(content, weight_zero, data, bias, channels, axis)
    factors = [multiplier_of(each) for each in _factors(op, scales_of(weights, channels, axis))]
    if wide and max(s for _, s in factors) > 14:
        raise CompileError("its scales are too far apart for 16-bit numbers")
    low, high = quantised_range(activation, out)
    return QuantisedLayer(kinds[0], content, bias, factors, zero_of(data), weight_zero, zero_of(out), low, high)


def bias_of(op: OperatorView, channels: int, *kinds: str) -> npt.NDArray[np.generic] | None:
    """Return the bias, whose type must be one of a few, or None if there is none."""
    if len(op.inputs) < 3 or op.inputs[2] is None:
        return None
    bias = op.constant(2)
    op.expect(bias.size == channels and str(bias.dtype) in kinds, "its bias has another size or type")
    return bias.reshape(-1)


def _factors(op: OperatorView, scales: list[float]) -> list[float]:
    first, last = scale_of(op.input(0)), scale_of(op.output())
    if isinstance(op.input(1).spec.scale, float) and op.input(0).spec.dtype == "uint8":
        # These kernels multiply in 32 bits.
        return [float(np.float32(first) * np.float32(scale)) / last for scale in scales]
    return [first * scale / last for scale in scales]


def _check_sums(
    content: npt.NDArray[np.generic], zero: int, data: ProgramTensor, bias: npt.NDArray[np.generic] | None,
    channels: int, axis: int,
) -> None:  # fmt: skip
    """Check that no input can overflow a sum: what overflows in C is undefined."""
    # A part of a sum may be a little larger than the whole where the zero point is in the bias.
    most = 32768 if data.spec.dtype == "int16" else 256
    sums = np.abs(np.moveaxis(content.astype(np.int64) - zero, axis, 0).reshape(channels, -1)).sum(1) * most
    if bias is not None:
        sums = sums.astype(object) + np.abs(bias.astype(object))
    limit = _LARGEST_SUM if data.spec.dtype != "int16" else 1 << 47
    if max(sums.tolist(), default=0) > limit - math.ceil(limit / 1e6):
        raise CompileError("its sums could overflow")
