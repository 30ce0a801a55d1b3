"""The runtime of exported PyTorch programs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.discoverable import CXX, Tool
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.messages import format_one_line
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.pt2 import read_program
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_inductor import compile_call
from nnpipe.frameworks.torch_program import LoadedProgram, import_loader, load_checked
from nnpipe.frameworks.torch_session import TorchSession, check_device
from nnpipe.frameworks.torch_state import make_program_call


class PyTorchRuntime(Runtime):
    """Runs programs of ``torch.export`` on PyTorch, on the CPU or an NVIDIA GPU.

    Files are checked before PyTorch loads them, so that an untrusted file can
    only compute on tensors; see :mod:`nnpipe.formats.pt2`.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )
    device: Literal["cpu", "cuda"] = argument("cpu", help="where to compute")
    compile: bool = argument(
        False,
        help="compile the program with torch.compile in its first run, which then takes long, and "
        "again for another batch size; needs a C++ compiler, on the CPU only",
    )
    channels_last: bool = argument(
        True,
        help="store weights of convolutions with channels last if the program allows it, on the "
        "CPU; no effect with --compile, which chooses the layout itself",
    )

    def validate(self) -> None:
        """Check that compiling is for the CPU."""
        if self.compile and self.device != "cpu":
            raise ConfigError(
                f"{type(self).__name__}: --compile needs --device cpu, not {self.device}"
            )

    def tools(self) -> tuple[Tool, ...]:
        """Return a C++ compiler if the program is to be compiled."""
        return (CXX,) if self.compile else ()

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of an exported program without description; needs no
        PyTorch.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or not an exported program; the message names it.
        """
        return read_program(Path(path)).io

    def import_framework(self) -> None:
        """Import the modules that load exported programs and, if asked for, those that compile
        them.
        """
        with suppress_output():
            import_loader()
            if self.compile:
                import torch._inductor.compile_fx  # noqa: F401

    def _load(self, artifact: Artifact) -> InferenceSession:
        check_device(self.device)
        program = read_program(artifact.path)
        io = verify_io(artifact, program.io)
        try:
            native = load_checked(program)
            if self.compile:
                call, state = compile_call(LoadedProgram(native, program.io), io, artifact.path)
            else:
                call, state = make_program_call(
                    native,
                    program.io,
                    io,
                    self.device,
                    artifact.path,
                    self.channels_last and self.device == "cpu",
                )
        except NNPipeError:
            raise
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(
                f"{artifact.path}: PyTorch cannot load it: {format_one_line(error)}"
            ) from None
        return TorchSession(io, call, self.device, self.num_threads, state)
