"""Layers of a model, in the order in which they were declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def leaves(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the innermost layers with their names; a model without layers yields itself."""
    for name, layer in model.named_modules():
        if next(layer.children(), None) is None:
            yield name or type(layer).__name__, layer
