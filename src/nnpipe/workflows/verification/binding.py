"""Which tensors of two models correspond, by names and orders of axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, show_shape


@dataclass(frozen=True)
class Binding:
    """The correspondence of two models' tensors.

    Parameters
    ----------
    names
        The other model's names of the source's tensors, where they differ.
    axes
        For inputs with this number of axes: the order of the source's axes in the other model.
    """

    names: Mapping[str, str]
    axes: tuple[int, ...] = ()

    def to_other_specs(self, inputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        """Return the source's inputs with the other model's names and order of axes."""
        return tuple(map(self._transpose_spec, inputs))

    def to_other(self, batch: Batch) -> Batch:
        """Return the source's inputs as inputs of the other model."""
        return {
            self.names.get(name, name): array.transpose(self.axes)
            if array.ndim == len(self.axes)
            else array
            for name, array in batch.items()
        }

    def from_other(self, batch: Batch) -> Batch:
        """Return the other model's outputs with the source's names."""
        ours = {theirs: own for own, theirs in self.names.items()}
        return {ours.get(name, name): array for name, array in batch.items()}

    def _transpose_spec(self, spec: TensorSpec) -> TensorSpec:
        turns = len(spec.shape) == len(self.axes)
        shape = tuple(spec.shape[axis] for axis in self.axes) if turns else spec.shape
        axis = self.axes.index(spec.axis) if turns and spec.axis is not None else spec.axis
        return TensorSpec(
            self.names.get(spec.name, spec.name),
            shape,
            spec.dtype,
            spec.scale,
            spec.zero_point,
            axis,
        )


AS_THEY_ARE = Binding({})


def match_tensors(
    source: IOSpec, other: IOSpec, pairs: Mapping[str, str], axes: tuple[int, ...] = ()
) -> Binding:
    """Return which tensors of two models correspond: those of equal names, or the only ones.

    Parameters
    ----------
    pairs
        The other model's names by the source's, given by the user.

    Raises
    ------
    ConfigError
        If the correspondence is not clear, or a name does not exist.
    """
    names = dict(pairs)
    for side, ours, theirs in (
        ("input", source.inputs, other.inputs),
        ("output", source.outputs, other.outputs),
    ):
        mine, free = [spec.name for spec in ours], [spec.name for spec in theirs]
        here = {own: names[own] for own in mine if own in pairs}
        for own, given in here.items():
            if given not in free:
                raise ConfigError(
                    f"the other model has no {side} {given!r} to go with {own!r}; it has "
                    f"{_list(free)}"
                )
        open_mine = [name for name in mine if name not in here]
        free = [name for name in free if name not in here.values()]
        if set(open_mine) == set(free):
            continue
        if len(open_mine) == len(free) == 1:
            names[open_mine[0]] = free[0]
            continue
        raise ConfigError(
            f"the source has the {side}s {_list(mine)}, the other "
            f"{_list([s.name for s in theirs])}: "
            "say which go together with --match SOURCE=OTHER"
        )
    known = {spec.name for spec in source}
    for own in pairs:
        if own not in known:
            raise ConfigError(f"the source has no tensor {own!r}; it has {_list(sorted(known))}")
    if axes and sorted(axes) != list(range(len(axes))):
        raise ConfigError(
            f"{' '.join(map(str, axes))} is no order of axes: give each from 0 on once"
        )
    binding = Binding(names, axes)
    wanted = {spec.name: spec for spec in other.inputs}
    for taken, spec in zip(source.inputs, binding.to_other_specs(source.inputs), strict=True):
        _check_shape(taken, spec, wanted[spec.name])
    return binding


def _check_shape(source: TensorSpec, given: TensorSpec, taken: TensorSpec) -> None:
    if _is_compatible(given.shape, taken.shape):
        return
    told = (
        f"the source takes {source.name!r} as {show_shape(source.shape)}, the other as "
        f"{show_shape(taken.shape)}"
    )
    for axes in ((0, 2, 3, 1), (0, 3, 1, 2)):
        if len(source.shape) == 4 and _is_compatible(
            tuple(source.shape[axis] for axis in axes), taken.shape
        ):
            turn = " ".join(map(str, axes))
            raise ConfigError(
                f"{told}; if these are the same axes in another order, give --artifact-axes {turn}"
            )
    raise ConfigError(f"{told}; these two do not take the same samples")


def _is_compatible(given: tuple[int | None, ...], taken: tuple[int | None, ...]) -> bool:
    # The first axis counts samples; an open size of one side matches any size of the other.
    pairs = zip(given[1:], taken[1:], strict=False)
    return len(given) == len(taken) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def find_varying_tensors(graph: Graph) -> set[str]:
    """Return the tensors that depend on the inputs, not only on weights."""
    found = set(graph.inputs)
    for operation in sort_operations(graph):
        if not found.isdisjoint(operation.inputs):
            found.update(operation.outputs)
    return found


def sort_operations(graph: Graph) -> list[Operation]:
    """Return operations sorted so that each follows those whose results it takes; not every file
    is sorted.
    """
    makers = {tensor: operation for operation in graph.operations for tensor in operation.outputs}
    found: dict[str, Operation] = {}
    waiting = list(reversed(graph.operations))
    while waiting:
        operation = waiting[-1]
        before = [
            makers[name]
            for name in operation.inputs
            if name in makers and makers[name].name not in found
        ]
        if operation.name in found or not before:
            found.setdefault(operation.name, waiting.pop())
        # a cycle, which no file should have
        elif len(waiting) > 2 * len(graph.operations) + len(makers):
            return list(graph.operations)
        else:
            waiting += before
    return list(found.values())
