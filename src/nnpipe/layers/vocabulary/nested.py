"""Layers as arguments of other layers."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.value_kinds import ValueKind


class Nested(ValueKind):
    """A layer inside a layer, applied to nothing by itself; whoever reads or writes the outer one does so with it."""

    def __init__(self, base: type[Layer], optional: bool = False) -> None:
        self.base, self.optional = base, optional

    def fault(self, value: Any, rank: int) -> str:
        """Report what is wrong with the layer."""
        if value is None and self.optional:
            return ""
        if not isinstance(value, self.base):
            return f"must be a layer ({self.base.__name__.strip('_')}), not {value!r}"
        return "; ".join(f"{name} {fault}" for name, fault in value.faults())
