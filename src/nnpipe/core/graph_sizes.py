"""Graphs for inputs of given shapes, in which the length of every axis is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Graph, Selector
from nnpipe.core.tensors import Batch, IOSpec, random_batch, show_shape

Shapes = Mapping[str, tuple[int, ...]]
"""The length of each axis, by input."""


def stated_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of ``INPUT=1,224,224,3``; names may contain ``=``.

    Raises
    ------
    ConfigError
        If the text has another form.
    """
    name, _, lengths = text.rpartition("=")
    found = tuple(int(length) for length in lengths.split(",") if length.strip().isdecimal())
    if not name or len(found) != len(lengths.split(",")) or not all(0 < length < 1 << 31 for length in found):
        raise ConfigError(f"{text}: expected INPUT=N,N,... such as image=1,224,224,3")
    return name, found


def settled_shapes(io: IOSpec, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Return a shape for each input: the one given, or else the model's with a length of 1 for each free axis.

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
        fits = len(own) == len(shape) and all(a is None or a == b for a, b in zip(own, shape, strict=True))
        if not fits or any(length < 1 for length in shape):
            raise ConfigError(f"the input {name!r} has the shape {show_shape(own)}, which {tuple(shape)} does not fit")
    free = {name: tuple(1 if length is None else length for length in spec.shape) for name, spec in known.items()}
    return free | {name: tuple(shape) for name, shape in shapes.items()}


def with_shapes(io: IOSpec, shapes: Shapes) -> IOSpec:
    """Return specifications whose inputs have these shapes."""
    return IOSpec(tuple(replace(spec, shape=shapes[spec.name]) for spec in io.inputs), io.outputs)


def random_inputs(io: IOSpec, shapes: Shapes) -> Batch:
    """Return random inputs of these shapes; names that the model does not have are left out.

    Raises
    ------
    ConfigError
        If a shape does not fit its input.
    """
    names = {spec.name for spec in io.inputs}
    sized = settled_shapes(io, {name: shape for name, shape in shapes.items() if name in names})
    return random_batch(with_shapes(io, sized), 1)


def sized_by_running(graph: Graph, io: IOSpec, shapes: Shapes, run: Callable[[Selector, Batch], Batch]) -> Graph:
    """Return a graph with the lengths that one run on random inputs of these shapes shows.

    ``run`` returns the selected values for a batch, as :meth:`~nnpipe.LiveModel.get_intermediates` does.
    """
    tensors = {
        name: replace(spec, shape=shapes[name]) if name in shapes else spec for name, spec in graph.tensors.items()
    }
    if any(None in spec.shape for spec in tensors.values()):
        values = run(Selector(tensor="*"), random_batch(with_shapes(io, shapes), 1))
        tensors |= {name: replace(tensors[name], shape=array.shape) for name, array in values.items()}
    return replace(graph, tensors=tensors)
