"""Models in Keras on TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.files import replacing
from nnpipe.core.live_model import LiveModel
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.keras_files import read_weights
from nnpipe.frameworks.keras_session import KerasSession
from nnpipe.modelwrappers.frameworks import tensorflow_training
from nnpipe.modelwrappers.frameworks.tensorflow_analysis import TensorFlowAnalysis
from nnpipe.modelwrappers.frameworks.tensorflow_export import write_keras, write_onnx

_HDF5 = (".h5", ".hdf5")
_ONLY_READ = "TensorFlow models are saved as .keras; HDF5 can only be read: give a name that ends in .keras"


class TensorFlowWrapper(TensorFlowAnalysis):
    """A Keras model on TensorFlow.

    A subclass gives :attr:`io` and writes :meth:`build`, which makes a
    functional or sequential ``keras.Model`` whose inputs bear the names in
    ``io``; so do its outputs, where there are several (name the last layers,
    or give the model a dictionary).  What it is trained for is said by
    :meth:`loss` and :meth:`score`: telling classes apart, unless replaced.

    Fresh weights are the same at every start; a training takes its initial
    weights from its own seed.
    """

    # -- files ----------------------------------------------------------------------------------

    def check_saving(self, path: str | Path, size: int = 0) -> None:
        """Raise :class:`ConfigError` unless the file can be written, and by its ending is a ``.keras`` archive's."""
        if Path(path).suffix.lower() in _HDF5:
            raise ConfigError(f"{path}: {_ONLY_READ}")
        super().check_saving(path, size)

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write structure and weights as a ``.keras`` archive."""
        return self._write_keras(live.native, Path(path))

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights from a ``.keras``, ``.weights.h5`` or ``.h5`` file that holds exactly those of this model.

        Of a file that holds a structure too, that is not used: nothing from the file is run.
        """
        self.check_installed()
        import_keras(self.num_threads)
        read_weights(path, live.native, type(self).__name__)

    def session(self, live: LiveModel) -> InferenceSession:
        """Run the model as a TensorFlow graph.

        ``num_threads`` holds where TensorFlow has not computed anything yet in
        this process, as a model that was loaded there has not.
        """
        self.check_installed()
        import_keras(self.num_threads)
        return KerasSession(live.native, self.io)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model as ``"keras"`` or ``"onnx"``.

        Raises
        ------
        ConversionError
            If the model holds something that the format cannot.
        """
        path = Path(path)
        if format == "keras":
            return self._write_keras(live.native, path)
        if format == "onnx":
            with replacing(path) as temporary:
                write_onnx(live.native, self.io, temporary, type(self).__name__)
            return self._described(path, "onnx", ("tensorflow", "keras", "tf2onnx", "onnx"))
        raise NotSupported(
            f"{type(self).__name__} cannot be exported as {format}; it can as {' or '.join(self.exports)}"
        )

    def _write_keras(self, model: Any, path: Path) -> Artifact:
        if path.suffix.lower() in _HDF5:
            raise ConfigError(f"{path}: {_ONLY_READ}")
        with replacing(path) as temporary:
            write_keras(model, temporary, type(self).__name__)
        return self._described(path, "keras", ("tensorflow", "keras"))

    def _described(self, path: Path, format: str, packages: Sequence[str]) -> Artifact:
        from importlib import import_module

        frameworks = tuple((name, str(import_module(name).__version__)) for name in packages)
        return self.artifact_of(path, format, frameworks)

    # -- training -------------------------------------------------------------------------------

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Draw fresh weights by the seed, if there are none yet."""
        self.check_installed()
        if not live.is_built:
            live.native = self.fresh(options.seed)

    def train(
        self, live: LiveModel, dataset: Dataset, options: TrainingOptions, progress: Progress = silent
    ) -> TrainingHistory:
        """Minimise :meth:`loss` with Adam.

        A fresh model gets its initial weights from the seed; one that has been
        loaded or used before is trained on from where it is.  Equal seeds give
        equal weights, to the last bit, on one machine.  With ``logdir``,
        loss and score of each epoch are written for TensorBoard, as runs
        ``train`` and ``validation``.  With ``run_folder`` there is a checkpoint after
        each epoch, from the last of which a run that was killed goes on, and
        ``callbacks`` look on.

        Raises
        ------
        ConfigError
            If the loss becomes infinite or no number, or there is nothing to train (on).
        """
        live.start(options)
        return tensorflow_training.train(self, live.native, dataset, options, progress)
