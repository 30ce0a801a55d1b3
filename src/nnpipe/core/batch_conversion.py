"""Convert a batch from one specification to another: quantisation and element types.

A compiled model often has integer inputs and outputs where its source had real
numbers.  The conversion uses the scale and zero point of the tensor's
specification.  It runs on the host, outside the measured time.
"""

from __future__ import annotations

import numpy as np

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.quantization import dequantize_linear, quantize_linear
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec


def adapt(batch: Batch, source: tuple[TensorSpec, ...], target: tuple[TensorSpec, ...]) -> dict[str, np.ndarray]:
    """Convert arrays from the specifications ``source`` to the specifications ``target``.

    Parameters
    ----------
    batch
        One array for each tensor of ``source``.
    source, target
        Specifications with the same tensor names, in any order.

    Returns
    -------
    dict
        One array for each tensor of ``target``; arrays that need no conversion
        are not copied.

    Raises
    ------
    SpecMismatch
        If the names differ or no conversion is defined.
    """
    known = {spec.name: spec for spec in source}
    if known.keys() != {spec.name for spec in target}:
        raise SpecMismatch(
            f"the model has the tensors {', '.join(known)}; its compiled form has {', '.join(t.name for t in target)}"
        )
    return {spec.name: _convert(batch[spec.name], known[spec.name], spec) for spec in target}


def adapt_inputs(batch: Batch, model: IOSpec, compiled: IOSpec) -> dict[str, np.ndarray]:
    """Convert inputs of the model to inputs of its compiled form."""
    return adapt(batch, model.inputs, compiled.inputs)


def adapt_outputs(batch: Batch, model: IOSpec, compiled: IOSpec) -> dict[str, np.ndarray]:
    """Convert outputs of the compiled form to outputs of the model."""
    return adapt(batch, compiled.outputs, model.outputs)


def _convert(array: np.ndarray, source: TensorSpec, target: TensorSpec) -> np.ndarray:
    same_numbers = (source.scale, source.zero_point, source.axis) == (target.scale, target.zero_point, target.axis)
    if source.dtype == target.dtype and same_numbers:
        return array
    if "string" in (source.dtype, target.dtype):
        raise SpecMismatch(f"tensor {source.name!r}: {source.dtype} cannot become {target.dtype}")
    if source.scale is not None and not same_numbers:
        array = dequantize_linear(array, source.scale, source.zero_point, source.axis)
    if target.scale is not None and not same_numbers:
        return quantize_linear(array, target.scale, target.zero_point, target.dtype, target.axis)
    return array.astype(np.dtype(target.dtype), copy=False)
