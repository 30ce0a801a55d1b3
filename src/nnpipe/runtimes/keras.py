"""The runtime of Keras models."""

from __future__ import annotations

from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.batching import FixesBatch
from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.core.messages import format_one_line
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.frameworks.keras import import_keras, resolve_keras_io
from nnpipe.frameworks.keras_session import KerasSession
from nnpipe.layers.keras.named_layers import TakesOwnLayers
from nnpipe.layers.keras.open_file import open_keras


class KerasRuntime(Runtime, FixesBatch, TakesOwnLayers):
    """Runs Keras models (.keras archives) on TensorFlow, as graphs.

    The structure is rebuilt from the archive's configuration.  Layers that hold
    code (Lambda, TFSMLayer) are rejected, as loading them would run the code of
    the file's author.

    The number of threads applies to a whole process and cannot change after
    TensorFlow has computed there.  Commands measure each candidate in a new
    process.
    """

    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras", "h5py")
    install: ClassVar[str] = "nnpipe[tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("keras",)

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )
    freeze: bool = argument(
        True,
        help=(
            "turn weights into constants, so that TensorFlow can fuse operations and fold constants"
        ),
    )

    def performance_caveats(self) -> tuple[str, ...]:
        """Return a handicap if weights are variables."""
        return (*super().performance_caveats(), *(() if self.freeze else ("weights not frozen",)))

    def _load(self, artifact: Artifact) -> InferenceSession:
        import_keras(self.num_threads)
        model = open_keras(artifact.path, self.own_layers)
        io = verify_io(artifact, resolve_keras_io(model, artifact.io))
        try:
            return KerasSession(model, io, self.freeze, self.batch)
        except NNPipeError:
            raise
        except Exception as error:  # Keras' and TensorFlow's errors share no base but Exception
            if self.batch is None:
                raise
            raise ArtifactError(
                f"{artifact.path}: Keras cannot make it for {self.batch} samples in a call: "
                f"{format_one_line(error)}; "
                "--fixed-batch 0 leaves the number free"
            ) from None
