"""Regularisers: what large weights or outputs add to the loss."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.objects import Described, Raw, read_object, write_object
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, NamedKind, NumberKind


class Regulariser(Described):
    """Base of all regularisers."""

    def penalty(self, x: Any) -> Any:
        """Return what a ``torch.Tensor`` adds to the loss, a tensor without axes."""
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
    """The sum of both."""

    l1: float = row(NumberKind(0), default=0.0)
    l2: float = row(NumberKind(0), default=0.0)

    def penalty(self, x: Any) -> Any:
        """Return the penalty."""
        return self.l1 * x.abs().sum() + self.l2 * x.square().sum()


class OrthogonalRegularizer(Regulariser):
    """``factor`` times the mean of the absolute products of different rows (or columns) of unit length."""

    factor: float = row(NumberKind(), default=0.01)
    mode: str = row(ChoiceKind(("rows", "columns")), default="rows")

    def penalty(self, x: Any) -> Any:
        """Return the penalty; for weights with two axes."""
        rows = x if self.mode == "rows" else x.T
        rows = rows / rows.square().sum(1, keepdim=True).clamp_min(1e-12).sqrt()
        size = rows.shape[0]
        products = (rows @ rows.T).abs()
        return self.factor * 0.5 * (products.sum() - products.diagonal().sum()) / max(size * (size - 1) / 2, 1)


REGULARISER = NamedKind(
    lambda raw, path, found: read_object(Regulariser, raw, path, found),
    lambda value: write_object("keras.regularizers", value),
    lambda: (Regulariser, Raw),
    "a regulariser",
    optional=True,
)
"""The kind of a layer's argument that is a regulariser."""
