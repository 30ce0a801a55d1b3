"""A model that takes a plugin's data and returns outputs in the same form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.errors import NNPipeError, SpecMismatch
from nnpipe.core.model import ModelWrapper
from nnpipe.core.output_decoder import with_inputs
from nnpipe.core.quantization import adapt_inputs, adapt_outputs, quantize_linear
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, get_batch_size
from nnpipe.measuring.sample_route import get_fixed_size
from nnpipe.plugins.steps import as_array
from nnpipe.workflows.verification.compare_outputs import dequantize_values


@dataclass(frozen=True)
class Predictor:
    """A loaded model with its preprocessing and postprocessing.

    Parameters
    ----------
    session
        The loaded model.
    wrapper
        The wrapper, which describes the model's inputs and outputs.
    processed
        Whether to apply the wrapper's preprocessing to data and its postprocessing to outputs.
    size
        Number of samples in one call of a model that takes any number.
    """

    session: InferenceSession
    wrapper: ModelWrapper
    processed: bool = True
    size: int = 32

    def predict(self, data: Any) -> Any:
        """Return the model's outputs for an array ``(n, ...)``, or for arrays by name if it has
        several inputs.

        Returns
        -------
        array or dict of arrays
            Floating-point outputs ``(n, ...)``; by name if there are several.

        Raises
        ------
        NNPipeError
            If the data do not fit the model, or the model fails.
        """
        joined = self.predictions(self._match_inputs(data, self.wrapper.io))
        return next(iter(joined.values())) if len(joined) == 1 else joined

    def predictions(self, whole: Batch) -> Batch:
        """Return the model's outputs by name for samples by name; otherwise as :meth:`predict`."""
        io = self.wrapper.io
        count = get_batch_size(whole)
        if not count or any(len(array) != count for array in whole.values()):
            lengths = ", ".join(f"{name}: {len(array)}" for name, array in whole.items()) or "none"
            raise SpecMismatch(f"expected samples, as many for each input; found {lengths}")
        fixed = get_fixed_size(self.session.io) or get_fixed_size(io)
        size = fixed or self.size
        parts = list(_iter_parts(whole, count, size))
        outputs = [self._run(part, io, fixed) for part in parts]
        counts = [get_batch_size(part) for part in parts]
        return {
            name: _join_outputs(name, [found[name] for found in outputs], counts)
            for name in outputs[0]
        }

    def _match_inputs(self, data: Any, io: IOSpec) -> dict[str, np.ndarray[Any, Any]]:
        names = [spec.name for spec in io.inputs]
        if isinstance(data, Mapping):
            return {str(name): _to_array(value, str(name)) for name, value in data.items()}
        if len(names) > 1:
            raise SpecMismatch(
                f"the model takes {', '.join(names)}: give a dict with an array for each"
            )
        return {names[0]: _to_array(data, names[0])}

    def _run(self, part: Batch, io: IOSpec, fixed: int | None) -> Batch:
        count = get_batch_size(part)
        specs = {spec.name: spec for spec in io.inputs}
        given = {
            n: _convert_dtype(a, specs[n]) if n in specs else a
            for n, a in self._preprocess(part).items()
        }
        if fixed is not None and count < fixed:
            given = {
                name: np.concatenate([a, np.repeat(a[-1:], fixed - count, axis=0)])
                for name, a in given.items()
            }
        io.check_inputs(given)
        outputs: Batch = self.session.infer(adapt_inputs(given, io, self.session.io))
        if fixed is not None:
            outputs = {
                name: a[:count] if a.ndim and len(a) == fixed else a for name, a in outputs.items()
            }
        outputs = adapt_outputs(outputs, io, self.session.io)
        if self.processed:
            given = {name: array[:count] for name, array in given.items()}
            return self.wrapper.postprocess(
                with_inputs(self.wrapper.output_decoder, outputs, given, io, io)
            )
        return {spec.name: dequantize_values(outputs[spec.name], spec) for spec in io.outputs}

    def _preprocess(self, part: Batch) -> Batch:
        if not self.processed:
            return part
        try:
            return self.wrapper.preprocess(part)
        except NNPipeError:
            raise
        except Exception as error:  # wrappers do not check their data, and a plugin made these
            told = ", ".join(
                f"{name} of {array.dtype} {array.shape}" for name, array in part.items()
            )
            raise SpecMismatch(
                f"{type(self.wrapper).__name__} cannot preprocess {told}: {type(error).__name__}: "
                f"{error}"
            ) from error


def _to_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    try:
        array = as_array(value)
    except Exception as error:
        raise SpecMismatch(f"{name}: {type(value).__name__} is no array: {error}") from None
    if array.dtype == object:
        raise SpecMismatch(
            f"{name}: {type(value).__name__} holds objects, not numbers; give an array"
        )
    if not array.ndim:
        raise SpecMismatch(f"{name}: a single {array.dtype}; the first axis must count samples")
    return array


def _iter_parts(whole: Batch, count: int, size: int) -> Iterator[Batch]:
    for first in range(0, count, size):
        yield {name: array[first : first + size] for name, array in whole.items()}


def _convert_dtype(array: np.ndarray[Any, Any], spec: TensorSpec) -> np.ndarray[Any, Any]:
    """Return an array in the model's element type; raise if a number changes by more than
    rounding.
    """
    if spec.scale is not None and array.dtype.kind == "f":
        return quantize_linear(array, spec.scale, spec.zero_point, spec.dtype, spec.axis)
    if (
        spec.dtype in ("string", "bfloat16")
        or array.dtype.kind not in "biuf"
        or array.dtype == spec.dtype
    ):
        return array
    kind = np.dtype(spec.dtype)
    if kind.kind == "f":
        return array.astype(kind)
    stored = array.astype(kind) if array.dtype.kind in "biu" else array
    return stored if np.array_equal(stored, array) else array


def _join_outputs(
    name: str, parts: Sequence[np.ndarray[Any, Any]], counts: Sequence[int]
) -> np.ndarray[Any, Any]:
    if len(parts) == 1:
        return parts[0]
    if any(not part.ndim or len(part) != count for part, count in zip(parts, counts, strict=True)):
        raise SpecMismatch(
            f"output {name!r} of shape {parts[0].shape} does not tell samples apart: "
            "give as many samples in each step as the model takes in one call"
        )
    return np.concatenate(parts)
