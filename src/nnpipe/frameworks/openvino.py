"""OpenVINO: reading models of several formats and running them by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.openvino_files import read_openvino

_DTYPES = {
    "boolean": "bool",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}


class LoadedModel:
    """A model as OpenVINO has read it, with its inputs and outputs in the order of ``io``.

    Attributes
    ----------
    native
        An ``openvino.Model``.
    io
        Its tensors, inputs and outputs each in the model's own order.
    """

    def __init__(self, native: Any, io: IOSpec) -> None:
        self.native = native
        self.io = io


def read_model(path: Path, format: str) -> LoadedModel:
    """Read a model.

    Parameters
    ----------
    path
        The file.
    format
        ``"openvino"``, ``"onnx"`` or ``"tflite"``.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or holds what OpenVINO cannot read or
        what cannot be put or got; the message names it.
    """
    return {"openvino": _read_own, "onnx": _read_onnx, "tflite": _read_tflite}[format](path)


def _read_own(path: Path) -> LoadedModel:
    file = read_openvino(path)
    native = _read(path, model=file.xml, weights=file.weights)
    return LoadedModel(native, _io_in_order(path, native, file.io))


def _read_onnx(path: Path) -> LoadedModel:
    file = read_onnx(path)
    file.check_external()
    native = _read(path, model=str(path))
    inputs = tuple(_named(path, port, file.inputs) for port in native.inputs)
    outputs = tuple(_named(path, port, file.outputs) for port in native.outputs)
    return LoadedModel(native, IOSpec(tuple(map(file.quantised, inputs)), tuple(map(file.quantised, outputs))))


def _read_tflite(path: Path) -> LoadedModel:
    file = read_tflite(path)
    native = _read(path, model=str(path))
    # Both list tensors in the order of the graph, and only the file knows the names of its signature.
    return LoadedModel(native, _io_in_order(path, native, file.io))


def _read(path: Path, **arguments: Any) -> Any:
    import openvino

    try:
        return openvino.Core().read_model(**arguments)
    except Exception as error:  # its errors share no base but Exception
        raise ArtifactError(f"{path}: OpenVINO cannot read it: {one_line(error)}") from None


def _io_in_order(path: Path, native: Any, named: IOSpec) -> IOSpec:
    """Give the tensors of a model the names and quantisation of ``named``, place by place."""
    sides = []
    for ports, specs in ((native.inputs, named.inputs), (native.outputs, named.outputs)):
        if len(ports) != len(specs):
            raise ArtifactError(f"{path}: OpenVINO sees {len(ports)} tensors where the file says {len(specs)}")
        sides.append(tuple(_spec(path, port, spec) for port, spec in zip(ports, specs, strict=True)))
    return IOSpec(*sides)


def _spec(path: Path, port: Any, known: TensorSpec) -> TensorSpec:
    dtype = _dtype(path, port, known.name)
    if dtype == known.dtype:
        return TensorSpec(known.name, _shape(path, port), dtype, known.scale, known.zero_point, known.axis)
    return TensorSpec(known.name, _shape(path, port), dtype)


def _named(path: Path, port: Any, names: Mapping[str, object]) -> TensorSpec:
    # Tensors that are merely passed on bear the names of all that they are passed on as.
    found = next((name for name in names if name in port.names), None)
    if found is None:
        raise ArtifactError(f"{path}: OpenVINO sees a tensor {sorted(port.names)} that the file does not name")
    return TensorSpec(found, _shape(path, port), _dtype(path, port, found))


def _shape(path: Path, port: Any) -> tuple[int | None, ...]:
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        raise ArtifactError(f"{path}: OpenVINO does not know how many axes {sorted(port.names)} has")
    return tuple(None if length.is_dynamic else int(length.get_length()) for length in shape)


def _dtype(path: Path, port: Any, name: str) -> str:
    kind = port.element_type.get_type_name()
    if kind not in _DTYPES:
        raise ArtifactError(f"{path}: tensor {name!r} is {kind}, which cannot be put into or got from OpenVINO here")
    return _DTYPES[kind]


def compile_model(model: LoadedModel, path: Path, device: str, num_threads: int, precision: str) -> Any:
    """Make a model ready to run on a device.

    Parameters
    ----------
    model
        The model.
    path
        Its file, for messages.
    device
        ``"cpu"``, ``"gpu"`` or ``"npu"``.
    num_threads
        Threads that one inference may use; 0 leaves it to OpenVINO.
    precision
        ``"f32"``, ``"bf16"``, ``"f16"``, or ``"auto"`` for OpenVINO's choice.

    Raises
    ------
    ConfigError
        If there is no such device.
    ArtifactError
        If OpenVINO cannot compile the model; the message names the file.
    """
    import openvino

    core = openvino.Core()
    there = {name.partition(".")[0] for name in core.available_devices}
    if device.upper() not in there:
        found = ", ".join(sorted(there)).lower() or "none"
        raise ConfigError(f"OpenVINO finds no usable {device} here, only: {found}")
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if device == "cpu":
        settings["NUM_STREAMS"] = 1
        if num_threads:
            settings["INFERENCE_NUM_THREADS"] = num_threads
    if precision != "auto":
        settings["INFERENCE_PRECISION_HINT"] = precision
    try:
        return core.compile_model(model.native, device.upper(), settings)
    except Exception as error:  # its errors share no base but Exception
        raise ArtifactError(f"{path}: OpenVINO cannot compile it for the {device}: {one_line(error)}") from None


class OpenVINOSession(InferenceSession):
    """Runs a compiled model; ``io`` says how its tensors, in the order of ``found``, are called.

    Parameters
    ----------
    compiled
        An ``openvino.CompiledModel``.
    io
        What the session takes and gives.
    found
        The same tensors in the model's own order.
    path
        The file, for messages.
    """

    def __init__(self, compiled: Any, io: IOSpec, found: IOSpec, path: Path) -> None:
        from openvino import Tensor
        from openvino._pyopenvino import InferRequest

        self.io = io
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._path = path
        self._tensor = Tensor
        # Past the wrapper in Python, which collects the outputs into a dictionary.
        self._infer: Callable[..., Any] = InferRequest.infer
        self._slots = [(spec.name, place) for place, spec in enumerate(found.inputs)]
        places = {spec.name: place for place, spec in enumerate(found.outputs)}
        self._picks = [(spec.name, places[spec.name]) for spec in io.outputs]
        self._inputs: list[np.ndarray] = []

    def _put(self, batch: Batch) -> None:
        self._inputs = []
        for name, place in self._slots:
            array = batch[name]
            if not array.flags.c_contiguous or not array.flags.writeable:
                array = array.copy(order="C")  # OpenVINO cannot say of a tensor that it must not be written to
            self._inputs.append(array)
            self._request.set_input_tensor(place, self._tensor(array, shared_memory=True))

    def _run(self) -> None:
        try:
            self._infer(self._request, {}, share_outputs=True, decode_strings=False)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{self._path}: OpenVINO cannot run it: {one_line(error)}") from None

    def _get(self) -> dict[str, np.ndarray]:
        return {name: self._request.get_output_tensor(place).data.copy() for name, place in self._picks}

    def stats(self) -> dict[str, Any]:
        """Say in what precision, on what, and with how many threads OpenVINO computes."""
        found = {
            "inference_precision": _property(self._compiled, "INFERENCE_PRECISION_HINT"),
            "num_threads": _property(self._compiled, "INFERENCE_NUM_THREADS"),
            "execution_devices": _property(self._compiled, "EXECUTION_DEVICES"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _close(self) -> None:
        self._inputs = []
        del self._request, self._compiled


def _property(compiled: Any, name: str) -> Any:
    try:
        value = compiled.get_property(name)
    except Exception:  # not every device has every property
        return None
    if isinstance(value, (int, str)):
        return value
    return list(map(str, value)) if isinstance(value, (list, tuple)) else value.get_type_name()


def import_nncf() -> Any:
    """Import NNCF, which quantises; unless it was imported before, it will not tell Google of its use."""
    with mock.patch.dict(os.environ, {"NNCF_CI": "1"}):
        import nncf
    return nncf


def one_line(error: object) -> str:
    """Give OpenVINO's message without the places in its own source, which come first."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("Exception from ", "Check '"))]
    return (" ".join(" ".join(told or lines).split()) or type(error).__name__)[:400]
