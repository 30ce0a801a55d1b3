"""Compile models for a fixed batch size: with a free one, most frameworks need more time for
every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.tensors import IOSpec, TensorSpec

if TYPE_CHECKING:
    from typing_extensions import Self

C = TypeVar("C", bound=Component)


class FixesBatch(Component):
    """A compiler or runtime that makes faster code for a fixed batch size.

    Whoever measures with so many samples in a call asks for it with :func:`set_batch_size`.
    """

    fixed_batch: int | None = argument(
        None,
        help="number of samples in a call that the model is made for, 0 for any number; by "
        "default the number that is measured, and any number where nothing is measured",
        minimum=0,
    )

    @property
    def batch(self) -> int | None:
        """The fixed batch size; ``None`` leaves it free."""
        return self.fixed_batch or None

    def performance_caveats(self) -> tuple[str, ...]:
        """Add a handicap if the arguments leave the batch size free."""
        return (
            *super().performance_caveats(),
            *(("made for any number of samples in a call",) if self.fixed_batch == 0 else ()),
        )

    def with_batch_size(self, size: int) -> Self:
        """Return the component with this batch size, unless its arguments already give one."""
        return self if self.fixed_batch is not None else replace(self, fixed_batch=size)


def set_batch_size(component: C, size: int) -> C:
    """Return a component for batches of ``size`` samples.

    A component that fixes no batch size, or whose arguments already give one, is returned
    unchanged.

    Examples
    --------
    >>> from nnpipe.compilers.iree import IREECompiler
    >>> set_batch_size(IREECompiler(), 8).fixed_batch
    8
    >>> set_batch_size(IREECompiler(fixed_batch=0), 8).fixed_batch
    0
    """
    return component.with_batch_size(size) if isinstance(component, FixesBatch) else component


def set_batch_sizes(components: Sequence[C], size: int) -> tuple[C, ...]:
    """Return each component for batches of ``size`` samples, as :func:`set_batch_size` does."""
    return tuple(set_batch_size(component, size) for component in components)


def with_batch(io: IOSpec, batch: int | None) -> IOSpec:
    """Return inputs and outputs whose free first axes have the length ``batch``; ``None`` leaves
    them free.
    """

    def set_first_axis(spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=(batch, *spec.shape[1:])) if spec.shape[:1] == (None,) else spec

    return (
        io
        if batch is None
        else IOSpec(tuple(map(set_first_axis, io.inputs)), tuple(map(set_first_axis, io.outputs)))
    )


def resolve_batch_axes(described: IOSpec, found: IOSpec) -> IOSpec:
    """Return the described inputs and outputs, with free first axes set to the lengths that a
    runtime has fixed.
    """
    lengths = {spec.name: spec.shape[:1] for spec in found}

    def resolve_spec(spec: TensorSpec) -> TensorSpec:
        first = lengths.get(spec.name)
        return (
            replace(spec, shape=(*first, *spec.shape[1:]))
            if first and spec.shape[:1] == (None,)
            else spec
        )

    return IOSpec(
        tuple(map(resolve_spec, described.inputs)), tuple(map(resolve_spec, described.outputs))
    )
