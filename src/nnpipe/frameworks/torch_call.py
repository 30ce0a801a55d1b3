"""Calling an exported PyTorch program by the names of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_session import one_line


def program_call(native: Any, io: IOSpec, bound: IOSpec, device: str, path: Path) -> Callable[..., tuple[Any, ...]]:
    """Give a function that runs a program.

    Parameters
    ----------
    native
        A ``torch.export.ExportedProgram``; its weights are used as they are at each call.
    io
        Its tensors in the order of its graph.
    bound
        The same tensors in the order in which the function takes and gives them.
    device
        ``"cpu"`` or ``"cuda"``.
    path
        The file, for errors.
    """
    from torch.export.graph_signature import InputKind, OutputKind

    if device != "cpu":
        from torch.export.passes import move_to_device_pass

        native = move_to_device_pass(native, device)
    held = {**native.state_dict, **native.constants}
    specs = native.graph_signature.input_specs
    template = [None if spec.kind is InputKind.USER_INPUT else held[spec.target] for spec in specs]
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
    # The graph itself, without the packing of arguments and the guards around it: names, shapes and
    # types have been checked by then, and around a small model those take longer than the model.
    forward = native.graph_module.forward

    def call(*tensors: Any) -> tuple[Any, ...]:
        arguments = list(template)
        for slot, tensor in zip(slots, tensors, strict=True):
            arguments[slot] = tensor
        try:
            outputs = forward(*arguments)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{path}: PyTorch cannot run it: {one_line(error)}") from None
        return tuple(outputs[pick] for pick in picks)

    return call
