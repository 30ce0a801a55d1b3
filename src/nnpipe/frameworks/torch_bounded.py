"""Exported PyTorch programs for compilers that want tensors in order and a bound on free axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, random_batch
from nnpipe.frameworks.torch_program import load_program
from nnpipe.frameworks.torch_session import tensor_of

_EXAMPLE_BATCH = 2  # lengths 0 and 1 are special to torch.export; it takes any other for an example
# PyTorch asks whether there are 16 samples or more when it chooses a way to convolve. An answer of yes leaves the
# lengths from 16 on, so that 16 as the greatest would be the only one.
_SPLIT = 16


def positional_module(path: Path) -> tuple[Any, IOSpec]:
    """Load an exported program as a module that takes and gives tensors in the order of its ``IOSpec``.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or holds more than a program of tensors.
    """
    import torch

    program = load_program(path)
    names = [spec.name for spec in program.io.inputs]

    class Positional(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be there to be checked
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module()

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return program.call(self.inner, dict(zip(names, tensors, strict=True)))

    return Positional(), program.io


def exported_anew(module: Any, io: IOSpec, most: int | None) -> Any:
    """Export a module of tensors in order, with the number of samples bounded.

    Parameters
    ----------
    module
        Takes tensors in the order of ``io.inputs`` and gives a tuple.
    io
        Its tensors; only first axes may be free, and they share one length.
    most
        The greatest number of samples in a call, at least; 1 fixes it, ``None``
        sets no bound.

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
    # Questions about lengths that come up on the way are answered for the example, and lengths for which the answer
    # would be another are lost. Only with the greatest for example the bound stays where it is.
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
    """Describe what an exported program takes and gives, under the names of ``io`` in order."""
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
    """Wrap a module so that its only parameter is ``*tensors`` and free axes can be given in one way."""
    import torch

    class Wrapped(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be there to be checked
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return tuple(self.inner(*tensors))

    return Wrapped()
