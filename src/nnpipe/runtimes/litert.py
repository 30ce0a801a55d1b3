"""TensorFlow Lite models on LiteRT, by whichever package brings the interpreter."""

from __future__ import annotations

import ctypes
import importlib
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.agreement import agreed_io
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.quiet import native_output_held
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import TFLiteFile, read_tflite

# Where the interpreter is, best first; TensorFlow's own is about to go.
_MODULES = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite.python.interpreter")


class LiteRTRuntime(Runtime):
    """TensorFlow Lite models on LiteRT (``ai_edge_litert``, ``tflite_runtime`` or TensorFlow)."""

    requires: ClassVar[tuple[str, ...]] = ("ai_edge_litert|tflite_runtime|tensorflow",)
    install: ClassVar[str] = "nnpipe[litert]"
    accepts: ClassVar[tuple[str, ...]] = ("tflite",)

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)
    delegates_list: tuple[Path, ...] = argument(
        (), help="shared libraries of delegates, such as libedgetpu.so.1, that take over parts of the model"
    )
    reference_kernels: bool = argument(
        False, help="use the slow kernels that other implementations compare themselves with, bit for bit"
    )

    def io_of(self, path: str | Path) -> IOSpec:
        """Read the inputs and outputs of a bare TensorFlow Lite file; needs no interpreter.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or not TensorFlow Lite; the message names it.
        """
        return read_tflite(path).io

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_tflite(artifact.path)
        io = agreed_io(artifact, file.io)
        if any(spec.dtype in ("string", "bfloat16") for spec in io):
            raise ArtifactError(f"{artifact.path}: text and bfloat16 tensors cannot be put and got")
        return _LiteRTSession(self._open(artifact.path), io, file, artifact.path)

    def _open(self, path: Path) -> Any:
        with native_output_held():  # TensorFlow greets at length
            module = _interpreter_module()
        arguments: dict[str, Any] = {"num_threads": self.num_threads or None}
        if self.reference_kernels:
            arguments["experimental_op_resolver_type"] = module.OpResolverType.BUILTIN_REF
        if self.delegates_list:
            arguments["experimental_delegates"] = [_delegate(module, library) for library in self.delegates_list]
        with native_output_held(), warnings.catch_warnings():
            # TensorFlow's interpreter asks to be replaced by LiteRT's, which is what is tried first.
            warnings.filterwarnings("ignore", message=r"\s*Warning: tf\.lite\.Interpreter is deprecated")
            try:
                interpreter = module.Interpreter(model_path=str(path), **arguments)
                interpreter.allocate_tensors()
            except (ValueError, RuntimeError) as error:
                raise ArtifactError(f"{path}: LiteRT cannot load it: {_one_line(error)}") from None
        return interpreter


class _LiteRTSession(InferenceSession):
    def __init__(self, interpreter: Any, io: IOSpec, file: TFLiteFile, path: Path) -> None:
        self.io = io
        self._interpreter = interpreter
        self._path = path
        self._inputs = [(spec.name, file.inputs[spec.name]) for spec in io.inputs]
        self._outputs = [(spec.name, file.outputs[spec.name]) for spec in io.outputs]
        self._shapes = {d["index"]: tuple(map(int, d["shape"])) for d in interpreter.get_input_details()}

    def _put(self, batch: Batch) -> None:
        shapes = {number: batch[name].shape for name, number in self._inputs}
        if shapes != self._shapes:
            self._resize(shapes)
        for name, number in self._inputs:
            self._interpreter.set_tensor(number, np.ascontiguousarray(batch[name]).reshape(batch[name].shape))

    def _resize(self, shapes: dict[int, tuple[int, ...]]) -> None:
        self._shapes = {}  # unknown, should this fail
        with native_output_held():
            try:
                for number, shape in shapes.items():
                    self._interpreter.resize_tensor_input(number, shape)
                self._interpreter.allocate_tensors()
            except (ValueError, RuntimeError) as error:
                wanted = ", ".join(map(str, shapes.values()))
                raise ArtifactError(
                    f"{self._path}: LiteRT cannot run it with inputs of {wanted}: {_one_line(error)}"
                ) from None
        self._shapes = shapes

    def _run(self) -> None:
        try:
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise ArtifactError(f"{self._path}: LiteRT cannot run it: {_one_line(error)}") from None

    def _get(self) -> dict[str, np.ndarray]:
        # get_tensor copies.
        return {name: self._interpreter.get_tensor(number) for name, number in self._outputs}

    def _close(self) -> None:
        del self._interpreter


def _interpreter_module() -> Any:
    causes = []
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:  # absent, or built for another numpy or Python
            causes.append(f"{name}: {error}")
    raise MissingDependency(f"no TensorFlow Lite interpreter can be imported ({_one_line('; '.join(causes))})")


def _delegate(module: Any, library: Path) -> Any:
    try:
        # Tried beforehand, because a delegate that fails to load complains once more when it is collected.
        if not hasattr(ctypes.CDLL(str(library)), "tflite_plugin_create_delegate"):
            raise ValueError("it is a library, but no delegate")
        return module.load_delegate(str(library))
    except (ValueError, OSError, RuntimeError) as error:
        raise ConfigError(f"the delegate {library} cannot be loaded: {_one_line(error)}") from None


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:500]
