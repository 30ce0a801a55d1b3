"""Constraints, which are applied to weights after each step of training."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.objects import Described, Raw, read_object, write_object
from nnpipe.layers.vocabulary.value_kinds import IntegersKind, NamedKind, NumberKind

_EPSILON = 1e-7  # Keras's own


class Constraint(Described):
    """Base of all constraints.  Axes are those of the weight in Keras's layout, with outputs last."""

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
        norms = _norms(x, self.axis)
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
        norms = _norms(x, self.axis)
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
        return x / (_EPSILON + _norms(x, self.axis))


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


def _norms(x: Any, axis: int | tuple[int, ...]) -> Any:
    return x.square().sum(axis, keepdim=True).sqrt()
