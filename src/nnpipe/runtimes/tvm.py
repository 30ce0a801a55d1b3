"""The runtime of models compiled by Apache TVM."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.errors import ArtifactError
from nnpipe.core.session import InferenceSession
from nnpipe.formats.sealed import read_sealed
from nnpipe.frameworks.processors import check_processor
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.tvm import (
    FORMAT,
    SCHEDULES,
    TUNING,
    UNTAKEN,
    TVMSession,
    get_processor_features,
    load_library,
)
from nnpipe.runtimes.sealed_runtime import SealedRuntime


class TVMRuntime(SealedRuntime):
    """Runs libraries compiled by Apache TVM; loading a library executes machine code from it."""

    requires: ClassVar[tuple[str, ...]] = ("tvm",)
    install: ClassVar[str] = "nnpipe[tvm]"
    target_packages: ClassVar[tuple[str, ...]] = ("apache-tvm", "apache-tvm-ffi", "ml-dtypes")
    accepts: ClassVar[tuple[str, ...]] = (FORMAT,)
    unsupported_io: ClassVar[tuple[str, ...]] = UNTAKEN
    native_code: ClassVar[tuple[str, ...]] = (FORMAT,)

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_sealed(artifact.path, FORMAT)
        io = verify_io(artifact, file.io)
        for spec in io:
            if spec.dtype in UNTAKEN:
                raise ArtifactError(
                    f"{artifact.path}: tensor {spec.name!r} is {spec.dtype}; TVM takes none here"
                )
        with suppress_output():
            check_processor(file, artifact.path, lambda: get_processor_features()[2])

        def load() -> Any:
            return load_library(file.content, artifact.path)

        schedules = {name: file.notes[name] for name in (SCHEDULES, TUNING) if file.notes.get(name)}
        return TVMSession(load(), io, file.io, artifact.path, self.num_threads, load, schedules)
