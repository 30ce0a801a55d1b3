"""Graphs, profiles and selectors, in the same form for every framework."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.primitives import Primitive
from nnpipe.core.tensors import TensorSpec


@dataclass(frozen=True)
class Operation:
    """One computation of a graph.

    Parameters
    ----------
    name
        Unique in its graph and the same at every call.
    kind
        The framework's name of the computation: ``"aten.conv2d.default"``, ``"Conv2D"``.
    inputs, outputs
        Names of tensors in the graph, in order.  The inputs include the weights.
    layer
        The layer (module path) that it belongs to.
    native
        The framework's node object.
    primitives
        What it computes, in words common to all frameworks; empty if this is not known here.
    unlisted
        The number of inputs and outputs that are left out because numpy lacks their types.

    Examples
    --------
    >>> Operation("conv1", "Conv", ("image", "kernel"), ("features",)).outputs
    ('features',)
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer: str = ""
    native: Any = field(default=None, compare=False, repr=False)
    primitives: tuple[Primitive, ...] = field(default=(), repr=False)
    unlisted: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Graph:
    """Operations in an order in which they can be computed, and their tensors.

    ``native`` is the framework's graph object.

    Examples
    --------
    >>> from nnpipe.core.tensors import TensorSpec
    >>> tensors = {name: TensorSpec(name, (None, 4), "float32") for name in ("x", "y")}
    >>> graph = Graph((Operation("double", "Mul", ("x", "x"), ("y",)),), tensors, ("x",), ("y",))
    >>> [operation.kind for operation in graph.operations]
    ['Mul']
    """

    operations: tuple[Operation, ...]
    tensors: Mapping[str, TensorSpec]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    native: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Timing:
    """The time of one operation, summed over all steps of a profile, in nanoseconds."""

    operation: str
    kind: str
    calls: int
    total_ns: int


@dataclass(frozen=True)
class Profile:
    """Times by operation.

    ``wall_ns`` is the wall time of all steps in nanoseconds; the difference from the sum of the operations is the
    time that they do not cover.  ``rewritten`` says that the operations are those of the framework's optimised graph
    (fused, folded, with other layouts), not those of the model's graph.

    Examples
    --------
    >>> profile = Profile((Timing("conv1", "Conv", calls=10, total_ns=800_000),), steps=10, wall_ns=1_000_000)
    >>> sum(timing.total_ns for timing in profile.timings) / profile.wall_ns
    0.8
    """

    timings: tuple[Timing, ...]
    steps: int
    wall_ns: int
    rewritten: bool = False


@dataclass(frozen=True)
class Selector:
    """Selects intermediate values by tensor, by layer, or by kind of operation.

    Exactly one of the three is given, as a name or a shell pattern (``"conv*"``).

    Examples
    --------
    >>> Selector(layer="stage1*").layer
    'stage1*'
    >>> Selector()
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.ConfigError: ...
    """

    tensor: str | None = None
    layer: str | None = None
    operation: str | None = None

    def __post_init__(self) -> None:
        check_call(Selector, vars(self))
        if sum(pattern is not None for pattern in (self.tensor, self.layer, self.operation)) != 1:
            raise ConfigError("a selector takes one of tensor=, layer= or operation=")

    def matches(self, operation: Operation, tensor: str) -> bool:
        """Return whether ``tensor``, an output of ``operation``, is selected."""
        for pattern, value in ((self.tensor, tensor), (self.layer, operation.layer), (self.operation, operation.kind)):
            if pattern is not None:
                return value == pattern or fnmatch.fnmatchcase(value, pattern)
        return False
