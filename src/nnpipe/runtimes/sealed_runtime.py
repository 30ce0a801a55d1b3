"""The base of runtimes of sealed models."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.arguments import argument
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import read_sealed


class SealedRuntime(Runtime):
    """Base of runtimes of sealed files, which compilers write with
    :func:`~nnpipe.formats.sealed.write_sealed`.

    The seal at the end of a file states the model's inputs and outputs, and shows
    whether the file is damaged.  Seal files of formats that offer neither, such as
    shared libraries.  Authors set ``accepts``, whose first format is the one in
    the seal, and write ``_load``: :func:`~nnpipe.formats.sealed.read_sealed`
    returns content, inputs, outputs and notes, and
    :func:`~nnpipe.core.artifact.verify_io` compares inputs and outputs with the
    description beside the file.

    Examples
    --------
    >>> import tempfile
    >>> from nnpipe.core.tensors import TensorSpec
    >>> from nnpipe.formats.sealed import SealedFile, write_sealed
    >>> class TextRuntime(SealedRuntime):
    ...     accepts = ("text",)
    ...     def _load(self, artifact):
    ...         raise NotImplementedError
    >>> io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 1), "float32"),))
    >>> path = Path(tempfile.mkdtemp(), "model.txt")
    >>> write_sealed(path, SealedFile(b"weights", "text", io))
    >>> TextRuntime().io_of(path) == io
    True
    """

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of a file without description; needs no framework and runs
        nothing.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or was not made by nnpipe; the message names it.
        """
        return read_sealed(Path(path), self.accepts[0]).io
