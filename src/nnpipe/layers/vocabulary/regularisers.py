"""Regularisers: penalties on weights or outputs that are added to the loss."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.objects import Described, Raw, read_object, write_object
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, NamedKind, NumberKind


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
        return self.factor * 0.5 * (products.sum() - products.diagonal().sum()) / max(size * (size - 1) / 2, 1)


REGULARISER = NamedKind(
    lambda raw, path, found: read_object(Regulariser, raw, path, found),
    lambda value: write_object("keras.regularizers", value),
    lambda: (Regulariser, Raw),
    "a regulariser",
    optional=True,
)
"""The kind of arguments that are regularisers."""
