"""OpenVINO: reading models of several formats and running them by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.onnx_wrong import OPENVINO, refuse_wrong
from nnpipe.frameworks.openvino_files import read_openvino

_DTYPES = {
    "boolean": "bool",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}


_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class LoadedModel:
    """A model as OpenVINO has read it.

    Attributes
    ----------
    native
        An ``openvino.Model``.
    io
        Its tensors, outputs in the model's own order.
    taken
        Names of the inputs in the model's own order, which has none that it
        does not use.
    """

    native: Any
    io: IOSpec
    taken: tuple[str, ...]


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
    return _in_order(path, native, file.io, file.taken)


def _read_onnx(path: Path) -> LoadedModel:
    file = read_onnx(path)
    file.check_external()
    refuse_wrong(path, "OpenVINO", OPENVINO)
    native = _read(path, model=str(path))
    _refuse_wrong_pooling(path, native)
    # A tensor that is merely passed on bears the names of all that it is passed on as.
    taken = _taken(path, native, tuple(file.inputs))
    given = tuple(_name(path, port.names, file.outputs) for port in native.outputs)
    ports = dict(zip(taken, native.inputs, strict=True))
    inputs = []
    for name, (dtype, shape) in file.inputs.items():
        if name in ports:
            inputs.append(TensorSpec(name, _shape(path, ports[name], shape), _dtype(path, ports[name], name)))
        elif dtype is None or shape is None:
            raise ArtifactError(f"{path}: it does not say what {name!r} is, and OpenVINO makes no use of it")
        else:
            inputs.append(TensorSpec(name, shape, dtype))
    outputs = [
        TensorSpec(name, _shape(path, port, file.outputs[name][1]), _dtype(path, port, name))
        for name, port in zip(given, native.outputs, strict=True)
    ]
    io = IOSpec(tuple(map(file.quantised, inputs)), tuple(map(file.quantised, outputs)))
    return LoadedModel(native, io, taken)


def _refuse_wrong_pooling(path: Path, native: Any) -> None:
    """Refuse pools whose last window lies wholly beyond the input: ONNX has no such window, OpenVINO has."""
    for operation in native.get_ordered_ops():
        if operation.get_type_name() not in ("MaxPool", "AvgPool"):
            continue
        said = operation.get_attributes()
        given, made = operation.input(0).get_partial_shape(), operation.output(0).get_partial_shape()
        if said.get("rounding_type") != "ceil" or given.rank.is_dynamic:
            continue
        for axis, (stride, pad) in enumerate(zip(said["strides"], said["pads_begin"], strict=True), 2):
            if given[axis].is_static and (made[axis].get_length() - 1) * stride >= given[axis].get_length() + pad:
                raise NotSupported(
                    f"{path}: OpenVINO computes {operation.get_type_name()} {operation.friendly_name!r} wrongly: "
                    "ceil_mode adds a window that lies wholly beyond the input"
                )


def _taken(path: Path, native: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Find which inputs of an ONNX file those of the model are; one that is merely passed on may have lost its name."""
    if len(native.inputs) == len(names):
        return names  # OpenVINO keeps their order
    return tuple(_name(path, {port.node.friendly_name}, dict.fromkeys(names)) for port in native.inputs)


def _read_tflite(path: Path) -> LoadedModel:
    file = read_tflite(path)
    for spec in file.io:
        if spec.dtype not in _DTYPES.values():
            raise ArtifactError(
                f"{path}: tensor {spec.name!r} is {spec.dtype}, which cannot be put into or got from OpenVINO here"
            )
    native = _read(path, model=str(path))
    # Both list tensors in the order of the graph, and only the file knows the names of its signature.
    return _in_order(path, native, file.io, tuple(spec.name for spec in file.io.inputs))


def _read(path: Path, **arguments: Any) -> Any:
    import openvino

    try:
        return openvino.Core().read_model(**arguments)
    except Exception as error:  # its errors share no base but Exception
        raise ArtifactError(f"{path}: OpenVINO cannot read it: {one_line(error)}") from None


def _in_order(path: Path, native: Any, io: IOSpec, taken: tuple[str, ...]) -> LoadedModel:
    """Give the tensors of a model the names and quantisation of ``io``."""
    if len(native.inputs) != len(taken) or len(native.outputs) != len(io.outputs):
        raise ArtifactError(
            f"{path}: OpenVINO sees {len(native.inputs)} inputs and {len(native.outputs)} outputs, "
            f"the file says {len(taken)} and {len(io.outputs)}"
        )
    if len(set(taken)) != len(taken) or not set(taken) <= {spec.name for spec in io.inputs}:
        raise ArtifactError(f"{path}: damaged: it takes {', '.join(taken)}, which are not its inputs")
    ports = dict(zip(taken, native.inputs, strict=True))
    inputs = tuple(_spec(path, ports[spec.name], spec) if spec.name in ports else spec for spec in io.inputs)
    outputs = tuple(_spec(path, port, spec) for port, spec in zip(native.outputs, io.outputs, strict=True))
    return LoadedModel(native, IOSpec(inputs, outputs), taken)


def _spec(path: Path, port: Any, known: TensorSpec) -> TensorSpec:
    dtype, shape = _dtype(path, port, known.name), _shape(path, port, known.shape)
    if dtype == known.dtype:
        return TensorSpec(known.name, shape, dtype, known.scale, known.zero_point, known.axis)
    return TensorSpec(known.name, shape, dtype)


def _name(path: Path, names: Collection[str], known: Mapping[str, object]) -> str:
    found = next((name for name in known if name in names), None)
    if found is None:
        raise ArtifactError(f"{path}: OpenVINO sees a tensor {sorted(names)} that the file does not name")
    return found


def _shape(path: Path, port: Any, known: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
    """Give the lengths of axes, as the file knows them where OpenVINO knows not even how many there are."""
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        if known is None:
            raise ArtifactError(f"{path}: nothing says how many axes {sorted(port.names)} has")
        return known
    return tuple(None if length.is_dynamic else int(length.get_length()) for length in shape)


def _dtype(path: Path, port: Any, name: str) -> str:
    kind = port.element_type.get_type_name()
    if kind not in _DTYPES:
        told = "bfloat16" if kind == "bf16" else kind
        raise ArtifactError(f"{path}: tensor {name!r} is {told}, which cannot be put into or got from OpenVINO here")
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
    """Runs a compiled model; ``io`` says what it takes and gives.

    Parameters
    ----------
    compiled
        An ``openvino.CompiledModel``.
    io
        What the session takes and gives.
    model
        The model, for the order of its tensors.
    path
        The file, for messages.
    """

    def __init__(self, compiled: Any, io: IOSpec, model: LoadedModel, path: Path) -> None:
        from openvino import Tensor
        from openvino._pyopenvino import InferRequest

        self.io = io
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._path = path
        self._tensor = Tensor
        # Past the wrapper in Python, which collects the outputs into a dictionary.
        self._native_call: Callable[..., Any] = InferRequest.infer
        self._slots = [(name, place) for place, name in enumerate(model.taken)]
        places = {spec.name: place for place, spec in enumerate(model.io.outputs)}
        self._picks = [(spec.name, places[spec.name]) for spec in io.outputs]
        self._doubles = {spec.name for spec in io if spec.dtype == "float64"}
        self._inputs: list[np.ndarray] = []

    def _put(self, batch: Batch) -> None:
        self._inputs = []
        for name, place in self._slots:
            array = np.asarray(batch[name])  # arithmetic on arrays without axes gives numbers
            if name in self._doubles and (np.abs(array) > _LARGEST).any():
                raise self._saturated(name)
            if not array.flags.c_contiguous or not array.flags.writeable:
                array = array.copy(order="C")  # OpenVINO cannot say of a tensor that it must not be written to
            self._inputs.append(array)
            self._request.set_input_tensor(place, self._tensor(array, shared_memory=True))

    def _run(self) -> None:
        try:
            self._native_call(self._request, {}, share_outputs=True, decode_strings=False)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(f"{self._path}: OpenVINO cannot run it: {one_line(error)}") from None

    def _get(self) -> dict[str, np.ndarray]:
        outputs = {name: self._request.get_output_tensor(place).data.copy() for name, place in self._picks}
        for name in self._doubles & outputs.keys():
            if (np.abs(outputs[name]) >= _LARGEST).any():
                raise self._saturated(name)
        return outputs

    def _saturated(self, name: str) -> NotSupported:
        return NotSupported(
            f"{self._path}: OpenVINO computes float64 in float32, and {name!r} holds infinite numbers or larger ones "
            "than that has; it would take the largest in their place"
        )

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
