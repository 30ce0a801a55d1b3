"""Exported PyTorch programs on PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.pt2 import ExportedProgram, read_program
from nnpipe.frameworks.torch_program import load_checked
from nnpipe.frameworks.torch_session import TorchSession, check_device, one_line
from nnpipe.runtimes._agreement import agreed_io


class PyTorchRuntime(Runtime):
    """Programs of ``torch.export`` on PyTorch, on the CPU or an NVIDIA GPU.

    Files are checked before PyTorch sees them, so that a file from a stranger
    can compute on tensors and do nothing else; see :mod:`nnpipe.formats.pt2`.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)
    device: Literal["cpu", "cuda"] = argument("cpu", help="where to compute")

    def io_of(self, path: str | Path) -> IOSpec:
        """Read the inputs and outputs of a bare exported program; needs no PyTorch.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or no exported program; the message names it.
        """
        return read_program(Path(path)).io

    def _load(self, artifact: Artifact) -> InferenceSession:
        check_device(self.device)
        program = read_program(artifact.path)
        io = agreed_io(artifact, program.io)
        try:
            call = _callable(program, io, self.device, artifact.path)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{artifact.path}: PyTorch cannot load it: {one_line(error)}") from None
        return TorchSession(io, call, self.device, self.num_threads)


def _callable(program: ExportedProgram, bound: IOSpec, device: str, path: Path) -> Callable[..., tuple[Any, ...]]:
    """Load a program; give a function of the inputs of ``bound`` that gives its outputs, both in order."""
    from torch.export.graph_signature import InputKind, OutputKind

    loaded = load_checked(program)
    if device != "cpu":
        from torch.export.passes import move_to_device_pass

        loaded = move_to_device_pass(loaded, device)
    held = {**loaded.state_dict, **loaded.constants}
    specs = loaded.graph_signature.input_specs
    template = [None if spec.kind is InputKind.USER_INPUT else held[spec.target] for spec in specs]
    free = [position for position, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT]
    given = [
        position
        for position, spec in enumerate(loaded.graph_signature.output_specs)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    places = dict(zip((spec.name for spec in program.io.inputs), free, strict=True))
    slots = [places[spec.name] for spec in bound.inputs]
    found = dict(zip((spec.name for spec in program.io.outputs), given, strict=True))
    picks = [found[spec.name] for spec in bound.outputs]
    # The graph itself, without the packing of arguments and the guards around it: names, shapes and
    # types have been checked by then, and around a small model those take longer than the model.
    forward = loaded.graph_module.forward

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
