"""Errors of one output tensor against the tensor that it should equal, over all samples.

Errors of element ``i`` between the source's output ``a`` and the other's ``b``:

- absolute: ``|a_i - b_i|``;
- relative: ``|a_i - b_i| / max(|a_i|, r)``, where ``r`` is the root mean square
  of the source's whole tensor in that sample, so that rounding of elements near
  zero does not give large errors.

If only one of the two is NaN, the error is infinite.  Equal infinities agree, and
so do two NaN; :class:`~nnpipe.analysis.agreement.Agreement` counts the samples with such outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class TensorAgreement:
    """The errors of one output tensor over all samples.

    Parameters
    ----------
    name
        The name of the tensor.
    elements
        The number of compared elements.
    max_absolute, mean_absolute, max_relative, mean_relative
        The maximum and the mean over all elements of all samples.
    absolute_quantiles, relative_quantiles
        Quantiles of the largest error of each sample.
    """

    name: str
    elements: int
    max_absolute: float
    mean_absolute: float
    max_relative: float
    mean_relative: float
    absolute_quantiles: Mapping[float, float]
    relative_quantiles: Mapping[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return the errors in their JSON form, with infinite errors as the string ``"infinite"``."""

        def number(value: float) -> float | str:
            return value if np.isfinite(value) else "infinite"

        return {
            "name": self.name,
            "elements": self.elements,
            **{
                key: number(getattr(self, key))
                for key in ("max_absolute", "mean_absolute", "max_relative", "mean_relative")
            },
            "absolute_quantiles": {str(q): number(v) for q, v in self.absolute_quantiles.items()},
            "relative_quantiles": {str(q): number(v) for q, v in self.relative_quantiles.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorAgreement:
        """Make the errors from the output of :meth:`to_json`."""

        def number(value: Any) -> float:
            return np.inf if value == "infinite" else float(value)

        def quantiles(key: str) -> dict[float, float]:
            return {float(q): number(v) for q, v in data[key].items()}

        return cls(
            name=str(data["name"]),
            elements=int(data["elements"]),
            max_absolute=number(data["max_absolute"]),
            mean_absolute=number(data["mean_absolute"]),
            max_relative=number(data["max_relative"]),
            mean_relative=number(data["mean_relative"]),
            absolute_quantiles=quantiles("absolute_quantiles"),
            relative_quantiles=quantiles("relative_quantiles"),
        )


class TensorErrors:
    """Accumulates errors batch by batch, and stores only the largest of each sample."""

    def __init__(self) -> None:
        self.elements = 0
        self.sum_absolute = self.sum_relative = 0.0
        self.largest_absolute: list[npt.NDArray[np.float64]] = []
        self.largest_relative: list[npt.NDArray[np.float64]] = []

    def add(self, ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> None:
        """Compare two tensors of equal shape, whose first axis counts samples; strings are equal or not."""
        rows = len(ours) if ours.ndim else 1
        if not ours.size:
            return
        ours, theirs = ours.reshape(rows, -1), theirs.reshape(rows, -1)
        if ours.dtype.kind in "OUST":
            absolute = relative = (ours != theirs).astype(np.float64)
        else:
            absolute, relative = _errors_of(ours, theirs)
        self.elements += absolute.size
        with np.errstate(over="ignore"):  # an infinite mean is acceptable for huge errors
            self.sum_absolute += float(absolute.sum())
            self.sum_relative += float(relative.sum())
        self.largest_absolute.append(absolute.max(1))
        self.largest_relative.append(relative.max(1))

    def result(self, name: str) -> TensorAgreement:
        """Return the errors of all added batches; ``name`` is the tensor's name."""
        absolute = np.concatenate(self.largest_absolute or [np.zeros(1)])
        relative = np.concatenate(self.largest_relative or [np.zeros(1)])
        return TensorAgreement(
            name=name,
            elements=self.elements,
            max_absolute=float(absolute.max()),
            mean_absolute=self.sum_absolute / max(self.elements, 1),
            max_relative=float(relative.max()),
            mean_relative=self.sum_relative / max(self.elements, 1),
            absolute_quantiles=_quantiles(absolute),
            relative_quantiles=_quantiles(relative),
        )


def _errors_of(
    ours: npt.NDArray[Any], theirs: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return absolute and relative errors of ``(rows, elements)``."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        absolute = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        absolute[same] = 0.0
        absolute[np.isnan(absolute)] = np.inf
        if ours.dtype.kind in "iu" and theirs.dtype.kind in "iu":
            # Neighbouring integers beyond 2^53 are the same float.
            absolute = np.where((ours != theirs) & (absolute == 0), 1.0, absolute)
        finite = np.where(np.isfinite(a), np.abs(a), 0.0)
        largest = finite.max(1, keepdims=True)
        # Divided first, so that squares neither overflow nor underflow.
        level = largest * np.sqrt(np.mean(np.square(finite / np.where(largest > 0, largest, 1)), axis=1, keepdims=True))
        floor = np.maximum(np.maximum(finite, level), np.finfo(np.float64).tiny)
        relative = np.where(absolute == 0.0, 0.0, absolute / floor)
    return absolute, relative


def _quantiles(values: npt.NDArray[np.float64]) -> dict[float, float]:
    # "higher" gives an error that really occurred, and works with infinite ones.
    return {q: float(np.quantile(values, q, method="higher")) for q in QUANTILES}
