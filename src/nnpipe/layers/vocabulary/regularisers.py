"""Constraints on weights, and penalties on weights or outputs that are added to the loss."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.field_table import Described, Raw, read_object, row, write_object
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, IntegersKind, NamedKind, NumberKind


class Regulariser(Described):
    """Base of all regularisers."""

    def penalty(self, x: Any) -> Any:
        """Return the penalty of a ``torch.Tensor``, a scalar tensor."""
        raise NotImplementedError


class L1(Regulariser):
    """``l1`` times the sum of absolute values."""

    l1: float = row(NumberKind(0), default=0.01)

    def penalty(self, x: Any) -> Any:
        """Return the penalty."""
        return self.l1 * x.abs().sum()


class L2(Regulariser):
    """``l2`` times the sum of squares."""

    l2: float = row(NumberKind(0), default=0.01)

    def penalty(self, x: Any) -> Any:
        """Return the penalty."""
        return self.l2 * x.square().sum()


class L1L2(Regulariser):
    """``l1`` times the sum of absolute values plus ``l2`` times the sum of squares."""

    l1: float = row(NumberKind(0), default=0.0)
    l2: float = row(NumberKind(0), default=0.0)

    def penalty(self, x: Any) -> Any:
        """Return the penalty."""
        return self.l1 * x.abs().sum() + self.l2 * x.square().sum()


class OrthogonalRegularizer(Regulariser):
    """``factor`` times the mean absolute cosine of the angles between rows (or columns).

    Parameters
    ----------
    factor
        Factor of the penalty.
    mode
        ``"rows"`` or ``"columns"``.
    """

    factor: float = row(NumberKind(), default=0.01)
    mode: str = row(ChoiceKind(("rows", "columns")), default="rows")

    def penalty(self, x: Any) -> Any:
        """Return the penalty of a weight with two axes."""
        rows = x if self.mode == "rows" else x.T
        rows = rows / rows.square().sum(1, keepdim=True).clamp_min(1e-12).sqrt()
        size = rows.shape[0]
        products = (rows @ rows.T).abs()
        return (
            self.factor
            * 0.5
            * (products.sum() - products.diagonal().sum())
            / max(size * (size - 1) / 2, 1)
        )


REGULARISER = NamedKind(
    lambda raw, path, found: read_object(Regulariser, raw, path, found),
    lambda value: write_object("keras.regularizers", value),
    lambda: (Regulariser, Raw),
    "a regulariser",
    optional=True,
)
"""The kind of arguments that are regularisers."""

_EPSILON = 1e-7  # Keras's own


class Constraint(Described):
    """Base of all constraints.

    Axes are those of the weight in Keras's layout, with outputs last.
    """

    def project(self, x: Any) -> Any:
        """Return the nearest ``torch.Tensor`` to a weight that meets the constraint."""
        raise NotImplementedError


class MaxNorm(Constraint):
    """Limits the Euclidean norm along an axis.

    Parameters
    ----------
    max_value
        Greatest norm.
    axis
        Axis or axes along which the norm is taken.
    """

    max_value: float = row(NumberKind(0), default=2.0, older=("m",))
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=0)

    def project(self, x: Any) -> Any:
        """Return the weight with vectors that are too long scaled down."""
        norms = _compute_norms(x, self.axis)
        return x * (norms.clamp(0, self.max_value) / (_EPSILON + norms))


class MinMaxNorm(Constraint):
    """Moves the Euclidean norm along an axis towards a range.

    Parameters
    ----------
    min_value, max_value
        Bounds of the range.
    rate
        Part of the distance to the range that each step covers; 1 enforces the range.
    axis
        Axis or axes along which the norm is taken.
    """

    min_value: float = row(NumberKind(0), default=0.0)
    max_value: float = row(NumberKind(0), default=1.0)
    rate: float = row(NumberKind(0, 1), default=1.0)
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=0)

    def project(self, x: Any) -> Any:
        """Return the weight with its vectors scaled towards the range."""
        norms = _compute_norms(x, self.axis)
        wanted = self.rate * norms.clamp(self.min_value, self.max_value) + (1 - self.rate) * norms
        return x * (wanted / (_EPSILON + norms))


class UnitNorm(Constraint):
    """Scales vectors along an axis to the Euclidean norm 1.

    Parameters
    ----------
    axis
        Axis or axes along which the norm is taken.
    """

    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=0)

    def project(self, x: Any) -> Any:
        """Return the weight divided by its norm."""
        return x / (_EPSILON + _compute_norms(x, self.axis))


class NonNeg(Constraint):
    """Sets negative weights to zero."""

    def project(self, x: Any) -> Any:
        """Return the weight with negative values set to zero."""
        return x.clamp_min(0)


CONSTRAINT = NamedKind(
    lambda raw, path, found: read_object(Constraint, raw, path, found),
    lambda value: write_object("keras.constraints", value),
    lambda: (Constraint, Raw),
    "a constraint",
    optional=True,
)
"""The kind of arguments that are constraints."""


def _compute_norms(x: Any, axis: int | tuple[int, ...]) -> Any:
    return x.square().sum(axis, keepdim=True).sqrt()
