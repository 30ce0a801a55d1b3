"""Which output of a foreign model is judged, and how it becomes scores of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.core.quantization import dequantize_linear
from nnpipe.core.tensors import TensorSpec, show_shape
from nnpipe.modelwrappers.files._layout import Shape


def chosen(model: str, outputs: tuple[TensorSpec, ...], name: str | None, scores: int | None) -> TensorSpec:
    """Choose the output that is judged.

    Parameters
    ----------
    model
        What to call the model in messages.
    outputs
        All that it gives.
    name
        The output asked for; None leaves the choice to this function.
    scores
        How many scores the output should have; None where none are judged.

    Raises
    ------
    ConfigError
        If there is no output of this name, or several would do.
    """
    if name is not None:
        for spec in outputs:
            if spec.name == name:
                return spec
        names = [spec.name for spec in outputs]
        raise ConfigError(f"{model} has no output {name!r}{nearest(name, names)}; it has {', '.join(names)}")
    if scores is None or len(outputs) == 1:
        return outputs[0]
    fitting = [spec for spec in outputs if len(spec.shape) >= 2 and _scores_in(spec.shape) == scores]
    if len(fitting) > 1:
        raise ConfigError(
            f"{model} gives {scores} scores in each of {', '.join(spec.name for spec in fitting)}: "
            "say with --result-output which to judge"
        )
    rows = [spec for spec in outputs if len(spec.shape) == 2 and spec.dtype not in ("string", "bool")]
    return next(iter(fitting or rows or outputs))


def check_classes(model: str, result: TensorSpec, classes: int, offset: int) -> None:
    """Raise :class:`ConfigError` unless an output tells so many classes apart, after ``offset`` others."""
    scores = _scores_in(result.shape)
    if scores is None or (scores == 1 and classes == 2 and not offset) or _is_label(result):
        return
    if scores - offset != classes:
        before = f" after {offset} that --class-offset leaves out" if offset else ""
        mend = "; --class-offset 1 leaves out a background class" if scores == classes + 1 and not before else ""
        raise ConfigError(
            f"{model} tells {scores - offset} classes apart{before} "
            f"({result.name!r} is {show_shape(result.shape)}), the data set has {classes}{mend}"
        )


def scores_of(values: npt.NDArray[Any], result: TensorSpec, classes: int, offset: int) -> npt.NDArray[Any]:
    """Give ``(n, classes)`` scores from the judged output.

    A class's number gives 1 for that class and 0 for others; one probability of
    two classes is that of the second.
    """
    values = real(values, result)
    count = len(values)
    if _is_label(result):
        told: npt.NDArray[Any] = values.reshape(count, 1) - offset == np.arange(classes)
        return told.astype(np.float32)
    values = values.reshape(count, -1)
    if values.shape[1] == 1 and classes == 2:
        return np.concatenate([1 - values, values], axis=1)
    return values[:, offset : offset + classes]


def real(values: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """Give the real numbers that quantised ones stand for, and short floats as float32."""
    if spec.scale is not None and values.dtype.kind in "iu":
        return dequantize_linear(values, spec.scale, spec.zero_point, spec.axis)
    return values.astype(np.float32) if spec.dtype in ("float16", "bfloat16") else values


def _scores_in(shape: Shape) -> int | None:
    """Count the scores of one sample in an output; None where its shape does not say."""
    count = 1
    for length in shape[1:]:
        if length is None:
            return None
        count *= length
    return count


def _is_label(spec: TensorSpec) -> bool:
    """Whether an output is the number of a class, not scores."""
    return spec.dtype in ("int64", "int32") and spec.scale is None and _scores_in(spec.shape) == 1
