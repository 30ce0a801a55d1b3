"""LiteRT: loading TensorFlow Lite models and running them by name."""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.messages import one_line
from nnpipe.core.native_output import native_output_held
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import TFLiteFile

# Where the interpreter is, best first; TensorFlow's own is about to go.
_MODULES = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite.python.interpreter")


def open_interpreter(
    path: Path,
    num_threads: int,
    delegates: Sequence[Path] = (),
    resolver: str = "",
    content: bytes | None = None,
    keep_all: bool = False,
) -> Any:
    """Load a model into an interpreter, with memory for its tensors.

    Parameters
    ----------
    path
        The file, which has been checked.
    num_threads
        Threads that one inference may use; 0 leaves it to LiteRT.
    delegates
        Shared libraries that take over parts of the model.
    resolver
        Which kernels to use, a member of ``OpResolverType``; the usual ones where it is empty.
    content
        A changed form of the model, to be loaded in place of the file.
    keep_all
        Whether the values of all tensors are kept, not only of outputs.

    Raises
    ------
    ArtifactError
        If the interpreter cannot load it; the message names the file.
    ConfigError
        If a delegate cannot be loaded.
    MissingDependency
        If no interpreter can be imported.
    """
    with native_output_held():  # TensorFlow greets at length
        module = interpreter_module()
    arguments: dict[str, Any] = {"num_threads": num_threads or None}
    if resolver:
        arguments["experimental_op_resolver_type"] = getattr(module.OpResolverType, resolver)
    if delegates:
        arguments["experimental_delegates"] = [_delegate(module, library) for library in delegates]
    if keep_all:
        arguments["experimental_preserve_all_tensors"] = True
    arguments |= {"model_path": str(path)} if content is None else {"model_content": content}
    with native_output_held(), warnings.catch_warnings():
        # TensorFlow's interpreter asks to be replaced by LiteRT's, which is what is tried first.
        warnings.filterwarnings("ignore", message=r"\s*Warning: tf\.lite\.Interpreter is deprecated")
        try:
            interpreter = module.Interpreter(**arguments)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise ArtifactError(f"{path}: LiteRT cannot load it: {one_line(error, 500)}") from None
    return interpreter


def check_tensors(io: IOSpec, path: Path) -> None:
    """Raise :class:`ArtifactError`, naming the tensor, where one cannot be put or got."""
    for spec in io:
        if spec.dtype in ("string", "bfloat16"):
            raise ArtifactError(f"{path}: tensor {spec.name!r} is {spec.dtype}; LiteRT can neither put nor get such")
        if spec.axis is not None:  # XNNPACK ends the process over it
            raise ArtifactError(
                f"{path}: tensor {spec.name!r} is quantised by channel, which LiteRT knows of weights only; "
                "quantise inputs and outputs as a whole"
            )


class LiteRTSession(InferenceSession):
    """Runs an interpreter that holds a model; tensors are bound by their numbers in the file."""

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
                    f"{self._path}: LiteRT cannot run it with inputs of {wanted}: {one_line(error, 500)}"
                ) from None
        self._shapes = shapes

    def _run(self) -> None:
        try:
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise ArtifactError(f"{self._path}: LiteRT cannot run it: {one_line(error, 500)}") from None

    def _get(self) -> dict[str, np.ndarray]:
        # get_tensor copies.
        return {name: self._interpreter.get_tensor(number) for name, number in self._outputs}

    def _close(self) -> None:
        del self._interpreter


def interpreter_module() -> Any:
    """Import the module with the interpreter, from whichever package has it."""
    causes = []
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:  # absent, or built for another numpy or Python
            causes.append(f"{name}: {error}")
    raise MissingDependency(f"no TensorFlow Lite interpreter can be imported ({one_line('; '.join(causes), 500)})")


def _delegate(module: Any, library: Path) -> Any:
    try:
        # Tried beforehand, because a delegate that fails to load complains once more when it is collected.
        if not hasattr(ctypes.CDLL(str(library)), "tflite_plugin_create_delegate"):
            raise ValueError("it is a library, but no delegate")
        return module.load_delegate(str(library))
    except (ValueError, OSError, RuntimeError) as error:
        raise ConfigError(f"the delegate {library} cannot be loaded: {one_line(error, 500)}") from None
