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

    A subclass writes :attr:`io` and :meth:`build`, which returns a functional
    or sequential ``keras.Model`` whose inputs have the names in ``io``.  Several
    outputs also need these names: name the last layers, or pass the model a
    dictionary of outputs.  :meth:`loss` and :meth:`score` define the training,
    by default that of a classifier.

    Without training, initial weights are always the same; training draws its
    initial weights from its own seed.
    """

    # -- files ----------------------------------------------------------------------------------

    def check_saving(self, path: str | Path, size: int = 0) -> None:
        """Raise :class:`ConfigError` unless the file can be written and its name ends in ``.keras``."""
        if Path(path).suffix.lower() in _HDF5:
            raise ConfigError(f"{path}: {_ONLY_READ}")
        super().check_saving(path, size)

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write structure and weights to a ``.keras`` archive."""
        return self._write_keras(live.native, Path(path))

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights from a ``.keras``, ``.weights.h5`` or ``.h5`` file that holds exactly those of this model.

        The structure in the file is not used, and no code from it is run.
        """
        self.check_installed()
        import_keras(self.num_threads)
        read_weights(path, live.native, type(self).__name__)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the model as a TensorFlow graph.

        ``num_threads`` takes effect only if TensorFlow has not computed anything
        in this process yet; loading a model does not count.
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
        """Draw initial weights from the seed, if the model has none yet."""
        self.check_installed()
        if not live.is_built:
            live.native = self.fresh(options.seed)

    def train(
        self, live: LiveModel, dataset: Dataset, options: TrainingOptions, progress: Progress = silent
    ) -> TrainingHistory:
        """Minimise :meth:`loss` with Adam.

        A new model draws its initial weights from the seed; a model that was
        loaded or used before is trained further.  On one machine, equal seeds
        give equal weights, bit by bit.  With ``logdir``, loss and score of each
        epoch are written for TensorBoard, as the runs ``train`` and
        ``validation``.  With ``run_folder``, a checkpoint is written after each
        epoch, a killed run resumes from the last one, and ``callbacks`` are called.

        Raises
        ------
        ConfigError
            If the loss becomes infinite or NaN, or there are no weights or samples to train.
        """
        live.start(options)
        return tensorflow_training.train(self, live.native, dataset, options, progress)
