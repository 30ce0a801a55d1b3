"""Measure the differences of two models that should compute the same, on the same samples.

:mod:`nnpipe.analysis.agreement` defines the errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.classification import binomial_cdf, wilson_interval
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Claim, get_lowest_precision, select_weight_changes
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.evaluation import find_nonfinite_samples
from nnpipe.core.tensors import Batch, show_shape

__all__ = [
    "CLOSE",
    "QUANTILES",
    "Agreement",
    "AgreementAccumulator",
    "TensorAgreement",
    "TensorErrors",
    "Tolerances",
    "Verdict",
    "compare",
]


# Errors of one output tensor against the tensor that it should equal, over all samples.
#
# Errors of element ``i`` between the source's output ``a`` and the other's ``b``:
#
# - absolute: ``|a_i - b_i|``;
# - relative: ``|a_i - b_i| / max(|a_i|, r)``, where ``r`` is the root mean square
#   of the source's whole tensor in that sample, so that rounding of elements near
#   zero does not give large errors.
#
# If only one of the two is NaN, the error is infinite.  Equal infinities agree, and so do two NaN;
# :class:`~nnpipe.analysis.agreement.Agreement` counts the samples with such outputs.

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
        """Return the errors in their JSON form, with infinite errors as the string
        ``"infinite"``.
        """

        def encode_number(value: float) -> float | str:
            return value if np.isfinite(value) else "infinite"

        return {
            "name": self.name,
            "elements": self.elements,
            **{
                key: encode_number(getattr(self, key))
                for key in ("max_absolute", "mean_absolute", "max_relative", "mean_relative")
            },
            "absolute_quantiles": {
                str(q): encode_number(v) for q, v in self.absolute_quantiles.items()
            },
            "relative_quantiles": {
                str(q): encode_number(v) for q, v in self.relative_quantiles.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorAgreement:
        """Make the errors from the output of :meth:`to_json`."""

        def decode_number(value: Any) -> float:
            return np.inf if value == "infinite" else float(value)

        def decode_quantiles(key: str) -> dict[float, float]:
            return {float(q): decode_number(v) for q, v in data[key].items()}

        return cls(
            name=str(data["name"]),
            elements=int(data["elements"]),
            max_absolute=decode_number(data["max_absolute"]),
            mean_absolute=decode_number(data["mean_absolute"]),
            max_relative=decode_number(data["max_relative"]),
            mean_relative=decode_number(data["mean_relative"]),
            absolute_quantiles=decode_quantiles("absolute_quantiles"),
            relative_quantiles=decode_quantiles("relative_quantiles"),
        )


class TensorErrors:
    """Accumulates errors batch by batch, and stores only the largest of each sample."""

    def __init__(self) -> None:
        self.elements = 0
        self.sum_absolute = self.sum_relative = 0.0
        self.largest_absolute: list[npt.NDArray[np.float64]] = []
        self.largest_relative: list[npt.NDArray[np.float64]] = []

    def add(self, ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> None:
        """Compare two tensors of equal shape, whose first axis counts samples; strings are equal
        or not.
        """
        rows = len(ours) if ours.ndim else 1
        if not ours.size:
            return
        ours, theirs = ours.reshape(rows, -1), theirs.reshape(rows, -1)
        if ours.dtype.kind in "OUST":
            absolute = relative = (ours != theirs).astype(np.float64)
        else:
            absolute, relative = _compute_errors(ours, theirs)
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
            absolute_quantiles=_compute_quantiles(absolute),
            relative_quantiles=_compute_quantiles(relative),
        )


def _compute_errors(
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
        level = largest * np.sqrt(
            np.mean(np.square(finite / np.where(largest > 0, largest, 1)), axis=1, keepdims=True)
        )
        floor = np.maximum(np.maximum(finite, level), np.finfo(np.float64).tiny)
        relative = np.where(absolute == 0.0, 0.0, absolute / floor)
    return absolute, relative


def _compute_quantiles(values: npt.NDArray[np.float64]) -> dict[float, float]:
    # "higher" gives an error that really occurred, and works with infinite ones.
    return {q: float(np.quantile(values, q, method="higher")) for q in QUANTILES}


Verdict = Literal["same", "close", "changed on purpose", "different"]

CLOSE: dict[Claim, float] = {
    "float": 0.001,
    "float16": 0.03,
    "bfloat16": 0.1,
    "int8-weights": 0.1,
    "int8": 0.1,
    "int4-weights": 0.2,
}
"""The largest mean relative error of a close output, by the claim of the conversion."""

# probability of a verdict "different" for a model that changes just as many classes as it may
_RARE = 0.005


class Tolerances(Component):
    """The tolerances for the verdicts "same" and "close".

    Examples
    --------
    >>> Tolerances(close_class_agreement=0.99).close_class_agreement
    0.99
    """

    same_tolerance: float = argument(
        1e-4,
        help="outputs are the same if no relative error is above this: rounding, and nothing else",
        minimum=0.0,
    )
    close_tolerance: float | None = argument(
        None,
        help="outputs are close if the mean relative error of each is not above this (default: "
        "what the conversion "
        f"claims: {', '.join(f'{bound:g} {claim}' for claim, bound in CLOSE.items())})",
        minimum=0.0,
    )
    close_class_agreement: float = argument(
        0.95,
        help="and, where outputs are scores of classes, nothing speaks against this part of all "
        "samples getting the same class",
        minimum=0.0,
        maximum=1.0,
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if a tolerance is not finite, or the one for "same" is
        above that for "close".
        """
        bound = max(CLOSE.values()) if self.close_tolerance is None else self.close_tolerance
        if not self.same_tolerance <= bound < np.inf:
            raise ConfigError(
                f"--same-tolerance ({self.same_tolerance:g}) cannot be above --close-tolerance "
                f"({bound:g}), and both must be finite"
            )

    def close_for(self, claims: Iterable[Claim]) -> float:
        """Return the largest mean relative error with which outputs of a conversion count as
        close.
        """
        if self.close_tolerance is not None:
            return self.close_tolerance
        return max(self.same_tolerance, CLOSE[get_lowest_precision(claims)])


@dataclass(frozen=True)
class Agreement:
    """The result of comparing two models on some samples.

    Parameters
    ----------
    samples
        The number of compared samples.
    tensors
        The errors of each output tensor.
    same_class
        The number of samples for which both models give the largest score of the
        first output to the same class; None if that output has no scores.
    not_finite
        The number of samples for which one of the models, or both, give NaN or infinity; they get
        no class.
    """

    samples: int
    tensors: tuple[TensorAgreement, ...]
    same_class: int | None = None
    not_finite: int = 0

    @property
    def class_agreement(self) -> float | None:
        """The fraction of samples for which both models predict the same class."""
        return None if self.same_class is None else self.same_class / self.samples

    @property
    def max_relative(self) -> float:
        """The largest relative error of any output."""
        return max((tensor.max_relative for tensor in self.tensors), default=0.0)

    @property
    def mean_relative(self) -> float:
        """The largest mean relative error of any output."""
        return max((tensor.mean_relative for tensor in self.tensors), default=0.0)

    def verdict(
        self, tolerances: Tolerances, claims: Iterable[Claim] = ("float",)
    ) -> tuple[Verdict, str]:
        """Return whether the two are the same, close, different, or changed on purpose, and the
        reason.
        """
        verdict, reason = self._evaluate_tensors(tolerances, tuple(claims))
        if self.not_finite:
            reason += (
                f"; outputs for {self.not_finite:,} of {self.samples:,} samples are NaN or infinite"
            )
        return verdict, reason

    def _evaluate_tensors(
        self, tolerances: Tolerances, claims: tuple[Claim, ...]
    ) -> tuple[Verdict, str]:
        for tensor in self.tensors:
            if not np.isfinite(tensor.max_absolute):
                return (
                    "different",
                    f"{tensor.name!r} is not finite where the other side is, or the other way "
                    f"round",
                )
        if self.max_relative <= tolerances.same_tolerance:
            return "same", f"no relative error is above {tolerances.same_tolerance:g}"
        worst = max(self.tensors, key=lambda tensor: tensor.mean_relative)
        if changes := select_weight_changes(claims):
            return "changed on purpose", (
                f"it claims to be {' and '.join(changes)}; the mean relative error is "
                f"{worst.mean_relative:.3g}"
            )
        bound = tolerances.close_for(claims)
        if worst.mean_relative > bound:
            return "different", (
                f"the mean relative error of {worst.name!r} is {worst.mean_relative:.3g}, above "
                f"{bound:g} for {get_lowest_precision(claims)}"
            )
        told = (
            f"the mean relative error is {worst.mean_relative:.3g}, the largest "
            f"{self.max_relative:.3g}"
        )
        wanted, judged = tolerances.close_class_agreement, self.samples - self.not_finite
        if self.same_class is None or self.same_class >= wanted * judged:
            return "close", told
        same = f"{self.same_class} of {judged} samples get the same class"
        # With few samples, the share alone is unreliable: so few by chance must be rare if the
        # limit were kept.
        if binomial_cdf(self.same_class, judged, wanted) < _RARE:
            return "different", f"{same}, and surely fewer than {wanted:.4g} of all would"
        return "close", f"{told}; {same}, too few samples to tell whether {wanted:.4g} of all would"

    def to_json(
        self, tolerances: Tolerances | None = None, claims: Iterable[Claim] = ("float",)
    ) -> dict[str, Any]:
        """Return the comparison in its JSON form, with the verdict if ``tolerances`` are given."""
        claims = tuple(claims)
        found: dict[str, Any] = {
            "samples": self.samples,
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }
        if self.same_class is not None:
            found["same_class"] = self.same_class
            found["class_agreement"] = self.class_agreement
            found["class_agreement_interval"] = list(wilson_interval(self.same_class, self.samples))
        if self.not_finite:
            found["not_finite_samples"] = self.not_finite
        if tolerances is not None:
            verdict, reason = self.verdict(tolerances, claims)
            said = {**tolerances.to_json(), "close_tolerance": tolerances.close_for(claims)}
            found = {
                "verdict": verdict,
                "reason": reason,
                "claims": list(claims),
                **found,
                "tolerances": said,
            }
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Agreement:
        """Make a comparison from the output of :meth:`to_json`."""
        tensors = tuple(map(TensorAgreement.from_json, data["tensors"]))
        same = data.get("same_class")
        lost = int(data.get("not_finite_samples", 0))
        return cls(int(data["samples"]), tensors, None if same is None else int(same), lost)


@dataclass
class AgreementAccumulator:
    """Accumulates errors batch by batch, without storing outputs.

    Parameters
    ----------
    classes
        Whether the source's first output may hold scores of classes.
    """

    classes: bool = True
    _tensors: dict[str, TensorErrors] = field(default_factory=dict)
    _samples: int = 0
    _same_class: int | None = 0
    _not_finite: int = 0

    def add(self, source: Batch, other: Batch, samples: int | None = None) -> None:
        """Compare the outputs of one call.

        Parameters
        ----------
        source, other
            Outputs by name; the first one of the source may contain scores of classes.
        samples
            The number of samples of the call; by default the length of the first output.

        Raises
        ------
        SpecMismatch
            If names or shapes differ.
        """
        if set(source) != set(other):
            raise SpecMismatch(
                f"outputs {', '.join(source)} cannot be compared with {', '.join(other)}"
            )
        for name, ours in source.items():
            theirs = other[name]
            if ours.shape != theirs.shape:
                raise SpecMismatch(
                    f"output {name!r} has shape {show_shape(ours.shape)} in the source, "
                    f"{show_shape(theirs.shape)} in the other"
                )
            if (ours.dtype.kind in "OUST") != (theirs.dtype.kind in "OUST"):
                raise SpecMismatch(
                    f"output {name!r} has {ours.dtype} in the source, {theirs.dtype} in the other"
                )
        for position, (name, ours) in enumerate(source.items()):
            self._tensors.setdefault(name, TensorErrors()).add(ours, other[name])
            if position == 0:
                count = samples if samples is not None else len(ours) if ours.ndim else 1
                lost = find_nonfinite_samples(source, count) | find_nonfinite_samples(other, count)
                self._samples += count
                self._not_finite += int(lost.sum())
                self._count_classes(ours, other[name], count, ~lost)

    def _count_classes(
        self,
        ours: npt.NDArray[Any],
        theirs: npt.NDArray[Any],
        samples: int,
        finite: npt.NDArray[np.bool_],
    ) -> None:
        # A row of scores for each sample; there may be further axes of length 1.
        long = [length for length in ours.shape[1:] if length != 1]
        scores = (
            len(long) == 1
            and long[0] > 1
            and len(ours) == samples
            and ours.dtype.kind not in "OUSTb"
        )
        if self._same_class is None or not self.classes or not scores:
            self._same_class = None
            return
        one, two = ours.reshape(samples, -1), theirs.reshape(samples, -1)
        self._same_class += int(np.count_nonzero((one.argmax(1) == two.argmax(1)) & finite))

    def result(self) -> Agreement:
        """Return the result for all added batches; raise :class:`ConfigError` if there are none."""
        if not self._samples:
            raise ConfigError("nothing was compared: no samples were given")
        return Agreement(
            self._samples,
            tuple(errors.result(name) for name, errors in self._tensors.items()),
            self._same_class,
            self._not_finite,
        )


def compare(source: Iterable[Batch], other: Iterable[Batch]) -> Agreement:
    """Compare two sequences of output batches, pair by pair."""
    comparison = AgreementAccumulator()
    for ours, theirs in zip(source, other, strict=True):
        comparison.add(ours, theirs)
    return comparison.result()
