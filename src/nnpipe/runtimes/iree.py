"""The runtime of IREE modules."""

from __future__ import annotations

from typing import ClassVar

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.errors import ArtifactError
from nnpipe.core.session import InferenceSession
from nnpipe.formats.sealed import read_sealed
from nnpipe.frameworks.iree import FORMAT, IREESession, is_supported_type, list_instruction_sets
from nnpipe.frameworks.processors import check_processor
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.runtimes.sealed_runtime import SealedRuntime


class IREERuntime(SealedRuntime):
    """Runs modules that IREE compiled for the processor; loading a module executes machine code
    from its file.
    """

    requires: ClassVar[tuple[str, ...]] = ("iree.runtime",)
    install: ClassVar[str] = "nnpipe[iree]"
    target_packages: ClassVar[tuple[str, ...]] = ("iree-base-runtime",)
    accepts: ClassVar[tuple[str, ...]] = (FORMAT,)
    unsupported_io: ClassVar[tuple[str, ...]] = ("string", "bfloat16")
    native_code: ClassVar[tuple[str, ...]] = (FORMAT,)

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_sealed(artifact.path, FORMAT)
        io = verify_io(artifact, file.io)
        for spec in io:
            if not is_supported_type(spec.dtype):
                raise ArtifactError(
                    f"{artifact.path}: tensor {spec.name!r} is {spec.dtype}; IREE takes none here"
                )
        check_processor(file, artifact.path, list_instruction_sets)
        with suppress_output():
            return IREESession(file, io, artifact.path, self.num_threads)
