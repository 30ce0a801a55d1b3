"""Graphs, profiles and selectors, in the same form for every framework."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.primitives import Primitive
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch, show_shape


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

    ``wall_ns`` is the wall time of all steps in nanoseconds; the difference from the sum of the
    operations is the time that they do not cover.  ``rewritten`` says that the operations are those
    of the framework's optimised graph (fused, folded, with other layouts), not those of the model's
    graph.

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
        for pattern, value in (
            (self.tensor, tensor),
            (self.layer, operation.layer),
            (self.operation, operation.kind),
        ):
            if pattern is not None:
                return value == pattern or fnmatch.fnmatchcase(value, pattern)
        return False


Shapes = Mapping[str, tuple[int, ...]]
"""The length of each axis, by input."""


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of ``INPUT=1,224,224,3``; names may contain ``=``.

    Raises
    ------
    ConfigError
        If the text has another form.
    """
    name, _, lengths = text.rpartition("=")
    found = tuple(int(length) for length in lengths.split(",") if length.strip().isdecimal())
    if (
        not name
        or len(found) != len(lengths.split(","))
        or not all(0 < length < 1 << 31 for length in found)
    ):
        raise ConfigError(f"{text}: expected INPUT=N,N,... such as image=1,224,224,3")
    return name, found


def resolve_shapes(io: IOSpec, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Return a shape for each input: the one given, or else the model's with a length of 1 for each
    free axis.

    Raises
    ------
    ConfigError
        If an input does not exist, or a shape does not fit it.
    """
    known = {spec.name: spec for spec in io.inputs}
    for name, shape in shapes.items():
        if name not in known:
            raise ConfigError(f"the model has no input {name!r}; it has {', '.join(known)}")
        own = known[name].shape
        fits = len(own) == len(shape) and all(
            a is None or a == b for a, b in zip(own, shape, strict=True)
        )
        if not fits or any(length < 1 for length in shape):
            raise ConfigError(
                f"the input {name!r} has the shape {show_shape(own)}, which {tuple(shape)} does "
                f"not fit"
            )
    free = {
        name: tuple(1 if length is None else length for length in spec.shape)
        for name, spec in known.items()
    }
    return free | {name: tuple(shape) for name, shape in shapes.items()}


def with_shapes(io: IOSpec, shapes: Shapes) -> IOSpec:
    """Return specifications whose inputs have these shapes."""
    return IOSpec(tuple(replace(spec, shape=shapes[spec.name]) for spec in io.inputs), io.outputs)


def generate_random_inputs(io: IOSpec, shapes: Shapes) -> Batch:
    """Return random inputs of these shapes; names that the model does not have are left out.

    Raises
    ------
    ConfigError
        If a shape does not fit its input.
    """
    names = {spec.name for spec in io.inputs}
    sized = resolve_shapes(io, {name: shape for name, shape in shapes.items() if name in names})
    return generate_random_batch(with_shapes(io, sized), 1)


def infer_shapes_by_running(
    graph: Graph, io: IOSpec, shapes: Shapes, run: Callable[[Selector, Batch], Batch]
) -> Graph:
    """Return a graph with the lengths that one run on random inputs of these shapes shows.

    ``run`` returns the selected values for a batch, as :meth:`~nnpipe.LiveModel.get_intermediates`
    does.
    """
    tensors = {
        name: replace(spec, shape=shapes[name]) if name in shapes else spec
        for name, spec in graph.tensors.items()
    }
    if any(None in spec.shape for spec in tensors.values()):
        values = run(Selector(tensor="*"), generate_random_batch(with_shapes(io, shapes), 1))
        tensors |= {
            name: replace(tensors[name], shape=array.shape) for name, array in values.items()
        }
    return replace(graph, tensors=tensors)
