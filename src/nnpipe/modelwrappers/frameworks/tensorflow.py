"""Models in Keras on TensorFlow."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, ConversionError, MissingDependency, NotSupported
from nnpipe.core.files import replace_atomically
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import format_one_line
from nnpipe.core.native_output import suppress_log_messages
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.keras import import_keras, make_named_call, suppress_copy_warning
from nnpipe.frameworks.keras_files import read_weights
from nnpipe.frameworks.keras_session import KerasSession
from nnpipe.modelwrappers.frameworks import tensorflow_training
from nnpipe.modelwrappers.frameworks.tensorflow_analysis import TensorFlowAnalysis

OPSET = 18


def write_keras(model: Any, path: Path, owner: str) -> None:
    """Write a ``.keras`` file; raises :class:`ConversionError` if Keras cannot."""
    named = path.with_name(path.name + ".keras")  # Keras goes by the ending
    try:
        with suppress_copy_warning():
            model.save(named)
        os.replace(named, path)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConversionError(f"{owner} cannot be saved: {format_one_line(error)}") from None
    finally:
        named.unlink(missing_ok=True)


def write_onnx(model: Any, io: IOSpec, path: Path, owner: str) -> None:
    """Convert a Keras model with tf2onnx; tensors keep the names of ``io`` and a free first axis
    stays free.

    Raises
    ------
    MissingDependency
        If tf2onnx or onnx is not installed.
    ConversionError
        If an operation has no equivalent in ONNX, or the model is too large for one file.
    """
    try:
        import onnx
        import tf2onnx
    except ImportError as error:
        raise MissingDependency(
            f"exporting {owner} as onnx needs {error.name}, which is not installed: pip install "
            f"'nnpipe[tensorflow]'"
        ) from None
    tensorflow, _ = import_keras()
    call = make_named_call(model, io)
    names = [spec.name for spec in io.inputs]

    def infer(*tensors: Any) -> tuple[Any, ...]:
        outputs = call(dict(zip(names, tensors, strict=True)))
        return tuple(tensorflow.identity(outputs[spec.name]) for spec in io.outputs)

    signature = [
        tensorflow.TensorSpec(s.shape, s.dtype, name=f"in{i}") for i, s in enumerate(io.inputs)
    ]
    function = tensorflow.function(infer, autograph=False)
    try:
        captures = function.get_concrete_function(*signature).graph.captures
        with suppress_log_messages(
            "tf2onnx", level=logging.ERROR
        ):  # it reports every attempted rewriting
            found, _ = tf2onnx.convert.from_function(
                function, input_signature=signature, opset=OPSET
            )
        _store_constants(found.graph, captures)
        _rename(found.graph, io)
        onnx.checker.check_model(found)
        content = found.SerializeToString()
    except Exception as error:  # tf2onnx, TensorFlow and protobuf each raise their own errors
        raise ConversionError(
            f"{owner} cannot be exported as onnx: {format_one_line(error)}"
        ) from None
    path.write_bytes(content)


def _store_constants(graph: Any, captures: Iterable[tuple[Any, Any]]) -> None:
    """Store tensors that the model holds beside its variables, such as the mean of a
    ``Normalization`` layer.

    tf2onnx makes them inputs of the graph, even those that no node takes any more.
    """
    from onnx import numpy_helper

    constants = {inner.name: outer for outer, inner in captures if outer.dtype.name != "resource"}
    used = {name for node in graph.node for name in node.input}
    for value in [value for value in graph.input if value.name in constants]:
        graph.input.remove(value)
        if value.name in used:
            graph.initializer.append(
                numpy_helper.from_array(constants[value.name].numpy(), value.name)
            )


def _rename(graph: Any, io: IOSpec) -> None:
    """Give inputs and outputs the names of ``io``, and their free first axes one name."""
    final = {}
    for values, specs in ((graph.input, io.inputs), (graph.output, io.outputs)):
        for value, spec in zip(values, specs, strict=True):
            final[value.name] = spec.name
    used = {name for node in graph.node for name in (*node.input, *node.output)} | {
        i.name for i in graph.initializer
    }
    for name in set(final.values()) & (used - set(final)):
        final[name] = name + "/inner"  # an inner tensor has the name of an input or output
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = final.get(name, name)
    for value in (*graph.initializer, *graph.value_info):
        value.name = final.get(value.name, value.name)
    for values, specs in ((graph.input, io.inputs), (graph.output, io.outputs)):
        for value, spec in zip(values, specs, strict=True):
            value.name = spec.name
            for axis, length in zip(value.type.tensor_type.shape.dim, spec.shape, strict=True):
                if length is not None:
                    axis.dim_value = length
            if spec.shape and spec.shape[0] is None:
                value.type.tensor_type.shape.dim[0].dim_param = "batch"


_HDF5 = (".h5", ".hdf5")
_ONLY_READ = (
    "TensorFlow models are saved as .keras; HDF5 can only be read: give a name that ends in .keras"
)


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
        """Raise :class:`ConfigError` unless the file can be written and its name ends in
        ``.keras``.
        """
        if Path(path).suffix.lower() in _HDF5:
            raise ConfigError(f"{path}: {_ONLY_READ}")
        super().check_saving(path, size)

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write structure and weights to a ``.keras`` archive."""
        return self._write_keras(live.native, Path(path))

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights from a ``.keras``, ``.weights.h5`` or ``.h5`` file that holds exactly those
        of this model.

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
            with replace_atomically(path) as temporary:
                write_onnx(live.native, self.io, temporary, type(self).__name__)
            return self._describe_artifact(path, "onnx", ("tensorflow", "keras", "tf2onnx", "onnx"))
        raise NotSupported(
            f"{type(self).__name__} cannot be exported as {format}; it can as "
            f"{' or '.join(self.exports)}"
        )

    def _write_keras(self, model: Any, path: Path) -> Artifact:
        if path.suffix.lower() in _HDF5:
            raise ConfigError(f"{path}: {_ONLY_READ}")
        with replace_atomically(path) as temporary:
            write_keras(model, temporary, type(self).__name__)
        return self._describe_artifact(path, "keras", ("tensorflow", "keras"))

    def _describe_artifact(self, path: Path, format: str, packages: Sequence[str]) -> Artifact:
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
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
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
