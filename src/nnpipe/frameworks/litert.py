"""LiteRT: loading TensorFlow Lite models and running them by names of tensors."""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency, NotSupported
from nnpipe.core.messages import format_one_line
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import TFLiteFile
from nnpipe.frameworks.runtime_failures import make_runtime_failure

Recorded = Callable[[Mapping[int, np.ndarray], int], OperationTimes]
# Modules with the interpreter, in order of preference; TensorFlow's own is deprecated.
_MODULES = (
    "ai_edge_litert.interpreter",
    "tflite_runtime.interpreter",
    "tensorflow.lite.python.interpreter",
)


def open_interpreter(
    path: Path,
    num_threads: int,
    delegates: Sequence[Path] = (),
    resolver: str = "",
    content: bytes | None = None,
    keep_all: bool = False,
) -> Any:
    """Return an interpreter with a loaded model and allocated tensors.

    Parameters
    ----------
    path
        The file, which has been checked.
    num_threads
        Threads that one inference may use; 0 leaves it to LiteRT.
    delegates
        Shared libraries of delegates, which run parts of the model.
    resolver
        Kernels to use, a member of ``OpResolverType``; empty for the default ones.
    content
        A changed model to load instead of the file.
    keep_all
        Whether to keep the values of all tensors, not only of outputs.

    Raises
    ------
    ArtifactError
        If the interpreter cannot load it; the message names the file.
    ConfigError
        If a delegate cannot be loaded.
    MissingDependency
        If no interpreter can be imported.
    """
    with capture_native_output():  # TensorFlow prints long messages at its start
        module = import_interpreter()
    arguments: dict[str, Any] = {"num_threads": num_threads or None}
    if resolver:
        arguments["experimental_op_resolver_type"] = getattr(module.OpResolverType, resolver)
    if delegates:
        arguments["experimental_delegates"] = [
            _load_delegate(module, library) for library in delegates
        ]
    if keep_all:
        arguments["experimental_preserve_all_tensors"] = True
    arguments |= {"model_path": str(path)} if content is None else {"model_content": content}
    with capture_native_output(), warnings.catch_warnings():
        # TensorFlow's interpreter warns that LiteRT's replaces it; LiteRT's was tried first.
        warnings.filterwarnings(
            "ignore", message=r"\s*Warning: tf\.lite\.Interpreter is deprecated"
        )
        try:
            interpreter = module.Interpreter(**arguments)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise make_runtime_failure(path, "LiteRT", "load it", error) from None
    return interpreter


def check_tensors(io: IOSpec, path: Path) -> None:
    """Raise :class:`ArtifactError` for a tensor that cannot be put or got; the message names it."""
    for spec in io:
        if spec.dtype in ("string", "bfloat16"):
            raise ArtifactError(
                f"{path}: tensor {spec.name!r} is {spec.dtype}; LiteRT can neither put nor get such"
            )
        if spec.axis is not None:  # XNNPACK would abort the process
            raise ArtifactError(
                f"{path}: tensor {spec.name!r} is quantised per channel, which LiteRT supports for "
                f"weights only; "
                "quantise inputs and outputs per tensor"
            )


class LiteRTSession(InferenceSession):
    """Runs an interpreter with a loaded model; tensors are bound by their numbers in the file.

    ``recorded`` runs arrays, by the numbers of their tensors, repeatedly in another model and
    returns the times of operators; without it, there are none.  ``again`` opens the interpreter
    anew; it is needed for a file whose model keeps values in resources, which LiteRT does not
    reset.
    """

    def __init__(
        self,
        interpreter: Any,
        io: IOSpec,
        file: TFLiteFile,
        path: Path,
        recorded: Recorded | None = None,
        again: Callable[[], Any] | None = None,
    ) -> None:
        self.io = io
        self.keeps_state = file.keeps_state
        self._state_tensors = file.state_tensors
        self._recorded = recorded
        self._again = again if file.state_resources else None
        self._batch: Batch = {}
        self._interpreter = interpreter
        self._path = path
        self._inputs = [(spec.name, file.inputs[spec.name]) for spec in io.inputs]
        self._outputs = [(spec.name, file.outputs[spec.name]) for spec in io.outputs]
        self._shapes = {
            d["index"]: tuple(map(int, d["shape"])) for d in interpreter.get_input_details()
        }

    def _put(self, batch: Batch) -> None:
        shapes = {number: batch[name].shape for name, number in self._inputs}
        if shapes != self._shapes:
            self._resize(shapes)
        for name, number in self._inputs:
            self._interpreter.set_tensor(
                number, np.ascontiguousarray(batch[name]).reshape(batch[name].shape)
            )
        if self._again is not None:
            self._batch = batch

    def _reset(self) -> None:
        if self._again is None:
            self._interpreter.reset_all_variables()
        elif self._batch:
            self._interpreter, self._shapes = self._again(), {}
            self._put(self._batch)

    def _resize(self, shapes: dict[int, tuple[int, ...]]) -> None:
        self._shapes = {}  # unknown if resizing fails
        with capture_native_output():
            try:
                for number, shape in shapes.items():
                    self._interpreter.resize_tensor_input(number, shape)
                self._interpreter.allocate_tensors()
            except (ValueError, RuntimeError) as error:
                wanted = ", ".join(map(str, shapes.values()))
                advice = (
                    "compile it with --fixed-batch, or give inputs of the shapes that it was made "
                    "for"
                )
                failure = make_runtime_failure(
                    self._path, "LiteRT", f"run it with inputs of {wanted}", error, advice
                )
                raise failure from None
        self._shapes = shapes

    def _run(self) -> None:
        try:
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise make_runtime_failure(self._path, "LiteRT", "run it", error) from None

    def _get(self) -> dict[str, np.ndarray]:
        # get_tensor copies.
        return {name: self._interpreter.get_tensor(number) for name, number in self._outputs}

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        if self._state_tensors:  # its profiler does not load them
            raise NotSupported(
                f"{self._path}: LiteRT gives no times of operations for models that keep state in "
                f"tensors"
            )
        if self._recorded is None:
            raise NotSupported(
                f"{self._path}: LiteRT gives times of operations for its own kernels only"
            )
        return self._recorded(
            {number: np.asarray(batch[name]) for name, number in self._inputs}, runs
        )

    def _close(self) -> None:
        self._batch = {}
        del self._interpreter, self._recorded, self._again


def import_interpreter() -> Any:
    """Return the module with the interpreter, from the first package that can be imported."""
    causes = []
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:  # missing, or built for another numpy or Python
            causes.append(f"{name}: {error}")
    raise MissingDependency(
        f"no TensorFlow Lite interpreter can be imported "
        f"({format_one_line('; '.join(causes), 500)})"
    )


def _load_delegate(module: Any, library: Path) -> Any:
    try:
        # Loaded with ctypes first, because a delegate that fails to load raises again when it is
        # collected.
        if not hasattr(ctypes.CDLL(str(library)), "tflite_plugin_create_delegate"):
            raise ValueError("it is a library, but not a delegate")
        return module.load_delegate(str(library))
    except (ValueError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"the delegate {library} cannot be loaded: {format_one_line(error, 500)}"
        ) from None
