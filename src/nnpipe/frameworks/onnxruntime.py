"""ONNX Runtime: loading models and running them by names of tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.processor import has_saturating_byte_sums
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.formats.onnx import ONNXFile
from nnpipe.frameworks.runtime_failures import make_runtime_failure

log = logging.getLogger("nnpipe")
Recorded = Callable[[Path], Any]
"""Returns a loaded model that writes the times of its operations to a folder."""
_DTYPES = {
    f"tensor({theirs})": ours
    for theirs, ours in {
        "bool": "bool",
        "float": "float32",
        "float16": "float16",
        "double": "float64",
        "string": "string",
        **{name: name for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()},
    }.items()
}
_LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_EXACT = "session.x64quantprecision"
# by default, products with 4-bit weights round activations to int8
_BLOCKS = "session.qdq_matmulnbits_accuracy_level"
_FLOAT = "1"
_REPLACED = "replace the existing tensor"  # how that option fails where a weight is used twice
# bytes of a model whose optimised graph is written out, with all weights, for a recording
_LARGEST = 1 << 30
_FATAL = 4  # log severity: errors are raised, so there is nothing to print


def open_model(
    file: ONNXFile,
    num_threads: int,
    device: str = "cpu",
    optimisation: str = "all",
    exact_integers: bool = True,
    content: bytes | None = None,
    recording: Path | None = None,
    batch: int | None = None,
) -> Any:
    """Return an ``onnxruntime.InferenceSession`` with a loaded model.

    Parameters
    ----------
    file
        The model, as :func:`~nnpipe.formats.onnx.read_onnx` returned it.
    num_threads
        Threads that one inference may use; 0 leaves it to ONNX Runtime.
    device
        ``"cpu"`` or ``"cuda"``.
    optimisation
        Level of graph optimisation: ``"none"``, ``"basic"``, ``"extended"`` or ``"all"``.
    exact_integers
        Whether to avoid overflow in products of 8-bit numbers on processors without VNNI, and 8-bit
        activations in products with 4-bit weights.
    content
        A changed model to load instead of the file.
    recording
        A folder to which the times of operations and the optimised graph are written; ``None`` to
        record nothing.
    batch
        Fixed batch size; ``None`` leaves it as in the model.

    Raises
    ------
    ArtifactError
        If ONNX Runtime cannot load it; the message names the file.
    ConfigError
        If the device is not available.
    """
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    if device == "cuda":
        providers.insert(0, "CUDAExecutionProvider")
        if providers[0] not in onnxruntime.get_available_providers():
            raise ConfigError(
                "the ONNX Runtime installed here cannot use a GPU: pip install onnxruntime-gpu"
            )
    file.check_external()
    # Elsewhere, the option gains nothing, and models with attention do not load with it.
    exact = exact_integers and has_saturating_byte_sums()

    def create(exact: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = num_threads
        # the default execution mode is sequential, so further threads would be idle
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, _LEVELS[optimisation]
        )
        options.add_session_config_entry(_EXACT, "1" if exact else "0")
        if exact_integers:
            options.add_session_config_entry(_BLOCKS, _FLOAT)
        for name in file.batch_names if batch is not None else ():
            options.add_free_dimension_override_by_name(name, batch)
        if recording is not None:
            from nnpipe.frameworks.onnxruntime_profile import OPTIMISED

            options.enable_profiling = True
            options.profile_file_prefix = str(recording / "times")
            if file.bytes_in_all < _LARGEST:
                options.optimized_model_filepath = str(recording / OPTIMISED)
        return onnxruntime.InferenceSession(
            content or str(file.path),
            options,
            providers=providers,
            enable_fallback=0,  # the fallback would print a message and try the same again
        )

    try:
        native = create(exact)
    except Exception as error:  # its errors share no base but Exception
        if not exact or _REPLACED not in str(error):
            raise make_runtime_failure(file.path, "ONNX Runtime", "load it", error) from None
        log.warning(
            "%s: ONNX Runtime cannot load it with exact integers: sums of 8-bit products may "
            "overflow on this processor; weights of 7 bits (--reduce-range) avoid that",
            file.path,
        )
        try:
            native = create(False)
        except Exception as again:
            raise make_runtime_failure(file.path, "ONNX Runtime", "load it", again) from None
    native.disable_fallback()
    if native.get_providers()[0] != providers[0]:
        raise ConfigError(
            "ONNX Runtime found no usable GPU (CUDA or cuDNN do not load); use --device cpu"
        )
    return native


def create_session(
    native: Any,
    io: IOSpec,
    path: Path,
    recorded: Recorded,
    device: str = "cpu",
    io_binding: bool = False,
) -> InferenceSession:
    """Return the session that runs a loaded model; ``io`` must match the model.

    ``recorded`` loads it again in the same way, and writes the times of operations to a folder; see
    :func:`open_model`.
    """
    text = any(spec.dtype == "string" for spec in io)  # text cannot be bound
    if (io_binding or device != "cpu") and not text:
        return BoundSession(native, io, path, recorded, device)
    # Most programs call run(), so this is measured by default.
    return FeedSession(native, io, path, recorded)


class _ONNXSession(InferenceSession):
    _native: Any
    _path: Path
    _recorded: Recorded

    def _make_session(self, native: Any) -> InferenceSession:
        """Return a session of the same kind for another loaded model."""
        raise NotImplementedError

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        from nnpipe.frameworks.onnxruntime_profile import record  # a target does not need it

        return record(self._recorded, self._make_session, [batch] * runs)

    def stats(self) -> dict[str, Any]:
        """Return whether sums of 8-bit products may saturate; nothing if they may not."""
        exact = self._native.get_session_options().get_session_config_entry(_EXACT) == "1"
        on_cpu = self._native.get_providers()[0] == "CPUExecutionProvider"
        return (
            {"saturating_integers": True}
            if on_cpu and has_saturating_byte_sums() and not exact
            else {}
        )


class BoundSession(_ONNXSession):
    """Runs with I/O binding, whose overhead for a tiny model is half of that of ``run``."""

    def __init__(
        self, native: Any, io: IOSpec, path: Path, recorded: Recorded, device: str
    ) -> None:
        self.io = io
        self._native = native
        self._path = path
        self._recorded = recorded
        self._device = device
        self._binding = native.io_binding()
        self._inputs: dict[str, Any] = {}
        self._shapes: list[tuple[int, ...]] = []
        self._predictable = _has_shapes_from_inputs(native)

    def _make_session(self, native: Any) -> BoundSession:
        return BoundSession(native, self.io, self._path, self._recorded, self._device)

    def _put(self, batch: Batch) -> None:
        for spec in self.io.inputs:
            array = np.ascontiguousarray(batch[spec.name]).reshape(batch[spec.name].shape)
            if self._device == "cpu":
                # The binding refers to the array and keeps it alive.
                self._binding.bind_cpu_input(spec.name, array)
            else:
                self._binding.bind_ortvalue_input(spec.name, self._on_device(array))
        shapes = [batch[spec.name].shape for spec in self.io.inputs]
        if shapes != self._shapes or not self._predictable:
            # A bound output keeps its buffer, and so its shape, until it is bound again.
            self._shapes = shapes
            for spec in self.io.outputs:
                self._binding.bind_output(spec.name, self._device)

    def _on_device(self, array: np.ndarray) -> Any:
        from onnxruntime import OrtValue

        return OrtValue.ortvalue_from_numpy(array, self._device, 0)

    def _run(self) -> None:
        try:
            self._native.run_with_iobinding(self._binding)
            if self._device != "cpu":
                self._binding.synchronize_outputs()
        except Exception as error:
            raise _make_failure(self._path, error) from None

    def _get(self) -> dict[str, np.ndarray]:
        # Copies, because the next run writes to the bound buffers.
        arrays = self._binding.copy_outputs_to_cpu()
        return {spec.name: array for spec, array in zip(self.io.outputs, arrays, strict=True)}

    def _close(self) -> None:
        del self._binding, self._native


class FeedSession(_ONNXSession):
    """Runs with ONNX Runtime's ordinary call, ``run``."""

    def __init__(self, native: Any, io: IOSpec, path: Path, recorded: Recorded) -> None:
        self.io = io
        self._native = native
        self._path = path
        self._recorded = recorded
        self._feed: dict[str, np.ndarray] = {}
        self._outputs: list[np.ndarray] = []
        self._names = [spec.name for spec in io.outputs]

    def _make_session(self, native: Any) -> FeedSession:
        return FeedSession(native, self.io, self._path, self._recorded)

    def _put(self, batch: Batch) -> None:
        # Arithmetic on 0-dimensional arrays gives scalars, which ONNX Runtime rejects.
        self._feed = {name: np.asarray(array) for name, array in batch.items()}

    def _run(self) -> None:
        try:
            self._outputs = self._native.run(self._names, self._feed)
        except Exception as error:
            raise _make_failure(self._path, error) from None

    def _get(self) -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in zip(self._names, self._outputs, strict=True)}

    def _close(self) -> None:
        del self._native


def read_onnxruntime_io(native: Any, file: ONNXFile) -> IOSpec:
    """Return the inputs and outputs of a loaded model, with the quantisation stated in its file.

    Raises
    ------
    ArtifactError
        If one of them is not a plain tensor.
    """

    def make_spec(value: Any) -> TensorSpec:
        if value.type not in _DTYPES:
            raise ArtifactError(
                f"{file.path}: {value.name!r} is a {value.type}; only plain tensors can be put and "
                f"got"
            )
        shape = tuple(
            length if isinstance(length, int) and length >= 0 else None for length in value.shape
        )
        return file.with_quantization(TensorSpec(value.name, shape, _DTYPES[value.type]))

    return IOSpec(
        tuple(map(make_spec, native.get_inputs())), tuple(map(make_spec, native.get_outputs()))
    )


def _has_shapes_from_inputs(native: Any) -> bool:
    """Return whether the outputs' shapes depend on the inputs' shapes alone."""
    free = {
        length for value in native.get_inputs() for length in value.shape if isinstance(length, str)
    }
    # An empty shape means a scalar, or an output of unknown shape.
    return all(
        value.shape and all(isinstance(length, int) or length in free for length in value.shape)
        for value in native.get_outputs()
    )


def _make_failure(path: Path, error: Exception) -> ArtifactError:
    return make_runtime_failure(path, "ONNX Runtime", "run it", error)
