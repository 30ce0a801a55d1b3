"""Exported PyTorch programs for compilers that need positional tensors and a bound on free axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, random_batch
from nnpipe.frameworks.torch_program import load_program
from nnpipe.frameworks.torch_session import tensor_of

_EXAMPLE_BATCH = 2  # torch.export treats lengths 0 and 1 specially; any other is suitable for an example
# PyTorch chooses a convolution algorithm by whether the batch size is 16 or more. If it is, only lengths from 16 on
# remain valid, so that with a maximum of 16 the length would be fixed.
_SPLIT = 16


def positional_module(path: Path) -> tuple[Any, IOSpec]:
    """Return an exported program as a module with positional tensors, and its ``IOSpec`` with their order.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or holds more than a program on tensors.
    """
    import torch

    program = load_program(path)
    names = [spec.name for spec in program.io.inputs]

    class Positional(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module()

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return program.call(self.inner, dict(zip(names, tensors, strict=True)))

    return Positional(), program.io


def exported_anew(module: Any, io: IOSpec, most: int | None) -> Any:
    """Export a module with positional tensors, with a bound on the batch size.

    Parameters
    ----------
    module
        Takes tensors in the order of ``io.inputs`` and returns a tuple.
    io
        Its inputs and outputs; only first axes may be free, with one common length.
    most
        The batch size that must be possible at least; 1 fixes it, ``None`` sets no
        bound.

    Raises
    ------
    CompileError
        If another axis is free.
    """
    import torch
    from torch.export import Dim

    for spec in io.inputs:
        free = [axis for axis, length in enumerate(spec.shape) if length is None and axis]
        if free:
            raise CompileError(f"axis {free[0]} of {spec.name!r} is free, and only the first axis of a tensor may be")
    if most == _SPLIT:
        most += 1
    # Conditions on lengths are evaluated for the example, and lengths with another result become invalid. Only if the
    # example has the greatest length, the bound stays valid.
    example = tensors_in_order(io, random_batch(io, most or _EXAMPLE_BATCH))
    axes = None
    if most != 1:
        samples = Dim("samples", min=1, max=most)
        axes = tuple({0: samples} if spec.shape and spec.shape[0] is None else {} for spec in io.inputs)
        if not any(axes):
            axes = None
    with torch.no_grad():
        return torch.export.export(_taking_tensors(module), tuple(example), dynamic_shapes=axes and (axes,))


def tensors_in_order(io: IOSpec, batch: Batch) -> list[Any]:
    """Return the tensors of a batch in the order of ``io.inputs``."""
    return [tensor_of(batch[spec.name], "cpu") for spec in io.inputs]


def io_of_program(exported: Any, io: IOSpec) -> IOSpec:
    """Return the inputs and outputs of an exported program with the names of ``io``, in order."""
    values = {node.name: node.meta["val"] for node in exported.graph.nodes if "val" in node.meta}
    sides = zip(
        (exported.graph_signature.user_inputs, exported.graph_signature.user_outputs),
        (io.inputs, io.outputs),
        strict=True,
    )
    return IOSpec(*(_specs([values[name] for name in names], specs) for names, specs in sides))


def _specs(tensors: Sequence[Any], named: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            spec.name,
            tuple(length if isinstance(length, int) else None for length in tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
        )
        for tensor, spec in zip(tensors, named, strict=True)
    )


def _taking_tensors(module: Any) -> Any:
    """Return a module with the only parameter ``*tensors``, so that free axes have a single form."""
    import torch

    class Wrapped(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return tuple(self.inner(*tensors))

    return Wrapped()
