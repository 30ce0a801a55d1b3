"""The runtime of language models that onnxruntime-genai runs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.generation import TOKENS
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.model_folder import (
    GENAI,
    read_genai_folder,
    read_genai_io,
    unpack_genai_archive,
)
from nnpipe.frameworks.genai import GenAISession, open_genai


class ONNXRuntimeGenAI(Runtime):
    """Generates text with onnxruntime-genai, on the CPU.

    The most likely token is taken each time.  A model is unpacked into a temporary folder while it
    is open.
    """

    requires: ClassVar[tuple[str, ...]] = ("onnxruntime_genai",)
    install: ClassVar[str] = "nnpipe[genai]"
    accepts: ClassVar[tuple[str, ...]] = (GENAI,)

    num_threads: int = argument(
        1, help="threads that generating may use; 0 leaves it to the runtime", minimum=0
    )
    ignore_end: bool = argument(
        False,
        help="go on after the token that ends an answer, so that all answers are equally long",
    )

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of a file without description.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or no model of onnxruntime-genai; the message names it.
        """
        return read_genai_io(Path(path))

    def _load(self, artifact: Artifact) -> InferenceSession:
        with contextlib.ExitStack() as stack:
            place = stack.enter_context(create_temporary_folder())
            io = verify_io(artifact, unpack_genai_archive(artifact.path, place))
            folder = read_genai_folder(place)
            model = open_genai(folder, self.num_threads, artifact.path)
            longest = next(spec.shape[1] for spec in io.outputs if spec.name == TOKENS)
            ends = frozenset() if self.ignore_end else frozenset(folder.end_tokens)
            return GenAISession(model, longest or 1, ends, stack.pop_all().close)
