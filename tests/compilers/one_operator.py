"""Graphs of one operator, for tests of compilers that are held against LiteRT's reference
kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.testing.integer_graphs import IntegerGraph


@dataclass(frozen=True)
class Case:
    """A graph, what it shows, how far its floats may be from those expected, how often it is run,
    whether LiteRT has a reference kernel, and whether many results differ.
    """

    name: str
    graph: OneOperator
    tolerance: float = 0
    runs: int = 1
    reference: bool = True
    varied: bool = True


class OneOperator(IntegerGraph):
    """A graph of one operator; the first tensor is its input."""

    def __init__(self, *given: Any) -> None:
        super().__init__(np.random.default_rng(0), "int8")
        self._tensors.clear()
        self._values = [self._tensor(*given)]

    def add(
        self, name: str, output: tuple[Any, ...], *constants: int, options: str = "", **fields: Any
    ) -> None:
        """Add the operator; its output is the tensor that is described."""
        self._add_operator(
            name, [*self._values, *constants], self._tensor(*output), options, **fields
        )

    def _state(self, *given: Any) -> int:
        """Return a tensor that is kept from one run to the next."""
        number = self._tensor(*given)
        self._tensors[number].isVariable = True
        return number

    def axes(self, *numbers: int) -> int:
        """Return a constant of whole numbers."""
        return self._constant(np.array(numbers, np.int32))


def quantised(dtype: str, scale: float = 0.02, zero: int = 3) -> tuple[Any, ...]:
    """Return a scale and a zero point if a type has one."""
    return (scale, zero if dtype != "int16" else 0) if dtype in ("int8", "uint8", "int16") else ()
