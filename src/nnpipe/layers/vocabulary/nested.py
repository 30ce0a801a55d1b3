"""Layers as arguments of other layers."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.value_kinds import ValueKind


class Nested(ValueKind):
    """A layer as an argument, without inputs of its own; it is read and written with the outer layer."""

    def __init__(self, base: type[Layer], optional: bool = False) -> None:
        self.base, self.optional = base, optional

    def fault(self, value: Any, rank: int) -> str:
        """Return what is wrong with the layer; empty if nothing is."""
        if value is None and self.optional:
            return ""
        if not isinstance(value, self.base):
            return f"must be a layer ({self.base.__name__.strip('_')}), not {value!r}"
        return "; ".join(f"{name} {fault}" for name, fault in value.faults())
