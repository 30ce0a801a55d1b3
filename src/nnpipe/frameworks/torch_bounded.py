"""Exported PyTorch programs for compilers that need positional tensors and bounds on free axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.frameworks.torch_program import LoadedProgram
from nnpipe.frameworks.torch_session import to_tensor

Lengths = Mapping[str, Mapping[int, Any]]
"""For each input, the axes after the first that are free, with their ``torch.export.Dim``."""

# torch.export treats lengths 0 and 1 specially; any other is suitable for an example
_EXAMPLE_BATCH = 2
# PyTorch chooses a convolution algorithm by whether the batch size is 16 or more. If it is, only
# lengths from 16 on remain valid, so that with a maximum of 16 the length would be fixed.
_SPLIT = 16
_UNBOUNDED = 1 << 62


def make_positional_module(program: LoadedProgram) -> Any:
    """Return a program as a module that takes tensors in the order of its inputs."""
    import torch

    names = [spec.name for spec in program.io.inputs]

    class Positional(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module()

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return program.call(self.inner, dict(zip(names, tensors, strict=True)))

    return Positional()


def find_bounded_lengths(program: LoadedProgram, longest: int | None) -> Lengths:
    """Return the free axes after the first, such as the length of texts, each with a greatest
    length.

    Parameters
    ----------
    program
        The program.
    longest
        The greatest length to allow; ``None`` for the greatest that the program states.

    Raises
    ------
    CompileError
        If an axis has no greatest length, if the one asked for is too short, or if a length depends
        on another.
    """
    from torch.export import Dim

    free = program.find_free_axes()
    firsts = [axes[0] for axes in free.values() if 0 in axes]
    known: dict[str, Any] = {}
    found: dict[str, dict[int, Any]] = {name: {} for name in free}
    for name, axes in free.items():
        for axis, length in axes.items():
            if not axis:
                continue
            where = f"axis {axis} of {name!r} is free"
            if length is Dim.AUTO or length in firsts:
                raise CompileError(f"{where}, and its length depends on that of another axis")
            stated = int(length.max) if length.max < _UNBOUNDED else None
            most = min((each for each in (stated, longest) if each is not None), default=None)
            if most is None:
                raise CompileError(
                    f"{where} without a greatest length, for which memory has to be planned; "
                    f"--max-length sets one"
                )
            if most <= length.min:
                raise CompileError(
                    f"{where} from length {length.min} on, so that --max-length {most} is too short"
                )
            key = length.__name__
            found[name][axis] = known.setdefault(key, Dim(key, min=length.min, max=most))
    return found


def with_longest(io: IOSpec, lengths: Lengths) -> IOSpec:
    """Return inputs and outputs whose free axes after the first have their greatest length."""

    def fix_shape(spec: TensorSpec) -> TensorSpec:
        axes = lengths.get(spec.name, {})
        return replace(
            spec, shape=tuple(axes[i].max if i in axes else n for i, n in enumerate(spec.shape))
        )

    return IOSpec(tuple(map(fix_shape, io.inputs)), io.outputs)


def export_positional(
    module: Any, io: IOSpec, most: int | None, lengths: Lengths | None = None
) -> Any:
    """Export a module with positional tensors, with a bound on the batch size.

    Parameters
    ----------
    module
        Takes tensors in the order of ``io.inputs`` and returns a tuple.
    io
        Its inputs and outputs; free first axes have one common length.
    most
        The batch size that must be possible at least; 1 fixes it, ``None`` sets no
        bound.
    lengths
        Further free axes, as :func:`find_bounded_lengths` returns them.

    Raises
    ------
    CompileError
        If another axis is free.
    """
    import torch
    from torch.export import Dim

    lengths = lengths or {}
    longest = with_longest(io, lengths)
    for spec in longest.inputs:
        free = [axis for axis, length in enumerate(spec.shape) if length is None and axis]
        if free:
            raise CompileError(
                f"axis {free[0]} of {spec.name!r} is free, and only the first axis of a tensor may "
                f"be"
            )
    if most == _SPLIT:
        most += 1
    # Conditions on lengths are evaluated for the example, and lengths with another result become
    # invalid. Only if the example has the greatest length, the bound stays valid.
    example = list_tensors_in_order(io, generate_random_batch(longest, most or _EXAMPLE_BATCH))
    samples = {} if most == 1 else {0: Dim("samples", min=1, max=most)}
    axes = tuple(
        {**(samples if spec.shape[:1] == (None,) else {}), **lengths.get(spec.name, {})}
        for spec in io.inputs
    )
    with torch.no_grad():
        return torch.export.export(
            _wrap_module(module), tuple(example), dynamic_shapes=(axes,) if any(axes) else None
        )


def list_tensors_in_order(io: IOSpec, batch: Batch) -> list[Any]:
    """Return the tensors of a batch in the order of ``io.inputs``."""
    return [to_tensor(batch[spec.name], "cpu") for spec in io.inputs]


def read_program_io(exported: Any, io: IOSpec) -> IOSpec:
    """Return the inputs and outputs of an exported program with the names of ``io``, in order."""
    values = {node.name: node.meta["val"] for node in exported.graph.nodes if "val" in node.meta}
    sides = zip(
        (exported.graph_signature.user_inputs, exported.graph_signature.user_outputs),
        (io.inputs, io.outputs),
        strict=True,
    )
    return IOSpec(*(_make_specs([values[name] for name in names], specs) for names, specs in sides))


def _make_specs(tensors: Sequence[Any], named: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            spec.name,
            tuple(length if isinstance(length, int) else None for length in tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
        )
        for tensor, spec in zip(tensors, named, strict=True)
    )


def _wrap_module(module: Any) -> Any:
    """Return a module with the only parameter ``*tensors``, so that free axes have a single
    form.
    """
    import torch

    class Wrapped(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return tuple(self.inner(*tensors))

    return Wrapped()
