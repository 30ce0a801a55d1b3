"""Calls of exported PyTorch programs by names of tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import one_line
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_state import TorchState, state_of_program


def program_call(
    native: Any, io: IOSpec, bound: IOSpec, device: str, path: Path, channels_last: bool = False
) -> tuple[Callable[..., tuple[Any, ...]], TorchState | None]:
    """Return a function that runs a program, and the values that its calls may change.

    Parameters
    ----------
    native
        A ``torch.export.ExportedProgram``; each call uses its present weights.
    io
        Its tensors in the order of its graph.
    bound
        The same tensors in the order of the function's arguments and results.
    device
        ``"cpu"`` or ``"cuda"``.
    path
        The file, for messages.
    channels_last
        Whether to copy weights of convolutions with channels last, which makes convolutions on CPUs fast.  A program
        that depends on the memory layout, to view a tensor in another shape, is run as it was exported.
    """
    from torch.export.graph_signature import InputKind, OutputKind

    if device != "cpu":
        from torch.export.passes import move_to_device_pass

        native = move_to_device_pass(native, device)
    held = {**native.state_dict, **native.constants}
    specs = native.graph_signature.input_specs
    template = [None if spec.kind is InputKind.USER_INPUT else held[spec.target] for spec in specs]
    templates = [template]
    if channels_last and (kernels := _kernels(native)):
        templates.insert(
            0, [_laid_out(value, spec.arg.name in kernels) for value, spec in zip(template, specs, strict=True)]
        )
    free = [position for position, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT]
    given = [
        position
        for position, spec in enumerate(native.graph_signature.output_specs)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    places = dict(zip((spec.name for spec in io.inputs), free, strict=True))
    slots = [places[spec.name] for spec in bound.inputs]
    found = dict(zip((spec.name for spec in io.outputs), given, strict=True))
    picks = [found[spec.name] for spec in bound.outputs]
    # The graph itself, without packing of arguments and guards: names, shapes and types are already
    # checked, and for a small model those take longer than the model.
    forward = native.graph_module.forward

    def call(*tensors: Any) -> tuple[Any, ...]:
        arguments = list(templates[0])
        for slot, tensor in zip(slots, tensors, strict=True):
            arguments[slot] = tensor
        try:
            outputs = forward(*arguments)
        except Exception as error:  # its errors share no base but Exception
            if len(templates) > 1:
                del templates[0]
                return call(*tensors)
            raise ArtifactError(f"{path}: PyTorch cannot run it: {one_line(error)}") from None
        return tuple(outputs[pick] for pick in picks)

    return call, state_of_program(native, held)


def _kernels(native: Any) -> set[str]:
    """Return the names of the graph's inputs that are weights of 2D convolutions."""
    import torch

    convolutions = (
        torch.ops.aten.conv2d.default, torch.ops.aten.conv2d.padding, torch.ops.aten.convolution.default,
    )  # fmt: skip
    weights = (node.args[1] for node in native.graph.nodes if node.target in convolutions)
    return {weight.name for weight in weights if weight.op == "placeholder" and weight.meta["val"].dim() == 4}


def _laid_out(value: Any, kernel: bool) -> Any:
    import torch

    return value.contiguous(memory_format=torch.channels_last) if kernel else value
