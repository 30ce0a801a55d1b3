"""Layers that each break the contract in one way, under the suite that must tell; test_layer.py
runs this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import pytest

from nnpipe.core.discoverable import Option
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.initialisers import RandomUniform
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts
from nnpipe.layers.vocabulary.value_kinds import NumberKind
from nnpipe.testing.layer import LayerContract


class Scaled(Layer):
    """Multiply by a factor, as it should be done.

    Parameters
    ----------
    factor
        What to multiply by.
    """

    factor: float = row(NumberKind(), default=1.0)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x * self.factor)


class TestScaled(LayerContract):
    made: ClassVar[type[Layer]] = Scaled

    @pytest.fixture
    def layer(self) -> Layer:
        return type(self).made(())

    @pytest.fixture
    def shapes(self) -> Sequence[tuple[int, ...]]:
        return [(4,)]


class Thawed(Scaled):
    """Can be changed."""


Thawed.__setattr__ = object.__setattr__  # type: ignore[method-assign]


class TestThawed(TestScaled):
    made = Thawed


class Lonely(Scaled):
    """Is equal to itself alone."""

    def __eq__(self, other: object) -> bool:
        return self is other


class TestLonely(TestScaled):
    made = Lonely


class Complaining(Scaled):
    """Finds fault with itself."""

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        yield "factor", "is never right"


class TestComplaining(TestScaled):
    made = Complaining


class Rounding(Scaled):
    """Comes back from a description as another one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factor", self.factor + 1)


class TestRounding(TestScaled):
    made = Rounding


class AnyKind(NumberKind):
    """Takes everything for a number."""

    def find_fault(self, *_: Any, **__: Any) -> str:
        return ""

    def read(self, value: Any, *_: Any, **__: Any) -> Any:
        return 1.0


class Trusting(Scaled):
    """Takes any argument."""

    factor: float = row(AnyKind(), default=1.0)


class TestTrusting(TestScaled):
    made = Trusting


class Greedy(Scaled):
    """Takes one input, and says nothing where there are more."""

    def shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return shapes[:1]


class TestGreedy(TestScaled):
    made = Greedy


class Misshapen(Scaled):
    """Gives another shape than it says."""

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return ((*shapes[0][:-1], 7),)


class TestMisshapen(TestScaled):
    made = Misshapen


class Infinite(Scaled):
    """Divides by nothing."""

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x / 0)


class TestInfinite(TestScaled):
    made = Infinite


class Blank(Scaled):
    """Gives nothing but zeros."""

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x * 0)


class TestBlank(TestScaled):
    made = Blank


class Boastful(Scaled):
    """Says that it has a weight, and has none in PyTorch."""

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return (LayerVariable("kernel", (3,), RandomUniform()),)


class TestBoastful(TestScaled):
    made = Boastful


class Detached(Scaled):
    """Lets no gradient through."""

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x.detach() * self.factor)


class TestDetached(TestScaled):
    made = Detached


# -- as all classes that are found by name ------------------------------------------------------


class _Hidden(Scaled):
    """Has the name of a private class."""


class TestHidden(TestScaled):
    made = _Hidden


class Silent(Scaled):
    takes = (1, 1)


class TestSilent(TestScaled):
    made = Silent


class Stammering(Scaled):
    """Names its options twice."""

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        return super().options() * 2


class TestStammering(TestScaled):
    made = Stammering
