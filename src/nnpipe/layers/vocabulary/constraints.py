"""Constraints: what weights are put back to after each step of the training."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.objects import Described, Raw, read_object, write_object
from nnpipe.layers.vocabulary.value_kinds import IntegersKind, NamedKind, NumberKind

_EPSILON = 1e-7  # Keras's own


class Constraint(Described):
    """Base of all constraints.  Axes are those of the weight as Keras has it, where outputs come last."""

    def project(self, x: Any) -> Any:
        """Return the allowed ``torch.Tensor`` for a weight."""
        raise NotImplementedError


class MaxNorm(Constraint):
    """The norm along ``axis`` is at most ``max_value``."""

    max_value: float = row(NumberKind(0), default=2.0, older=("m",))
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=0)

    def project(self, x: Any) -> Any:
        """Shorten what is too long."""
        norms = _norms(x, self.axis)
        return x * (norms.clamp(0, self.max_value) / (_EPSILON + norms))


class MinMaxNorm(Constraint):
    """The norm along ``axis`` comes nearer to the range, by ``rate`` of the way each time."""

    min_value: float = row(NumberKind(0), default=0.0)
    max_value: float = row(NumberKind(0), default=1.0)
    rate: float = row(NumberKind(0, 1), default=1.0)
    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=0)

    def project(self, x: Any) -> Any:
        """Stretch or shorten."""
        norms = _norms(x, self.axis)
        wanted = self.rate * norms.clamp(self.min_value, self.max_value) + (1 - self.rate) * norms
        return x * (wanted / (_EPSILON + norms))


class UnitNorm(Constraint):
    """The norm along ``axis`` is one."""

    axis: int | tuple[int, ...] = row(IntegersKind(single=True), default=0)

    def project(self, x: Any) -> Any:
        """Divide by the norm."""
        return x / (_EPSILON + _norms(x, self.axis))


class NonNeg(Constraint):
    """No negative weights."""

    def project(self, x: Any) -> Any:
        """Put negative values to zero."""
        return x.clamp_min(0)


CONSTRAINT = NamedKind(
    lambda raw, path, found: read_object(Constraint, raw, path, found),
    lambda value: write_object("keras.constraints", value),
    lambda: (Constraint, Raw),
    "a constraint",
    optional=True,
)
"""The kind of a layer's argument that is a constraint."""


def _norms(x: Any, axis: int | tuple[int, ...]) -> Any:
    return x.square().sum(axis, keepdim=True).sqrt()
