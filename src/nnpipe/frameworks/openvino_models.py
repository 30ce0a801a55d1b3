"""Reading of models of several formats with OpenVINO; models that it would compute wrongly are
rejected.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, NotSupported, SpecMismatch
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.model_folder import ZIP_ERRORS, check_stored, write_stored
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.onnx_known_faults import OPENVINO, check_known_faults

# OpenVINO models in one file, so that a model and its weights stay together.
#
# OpenVINO writes two files, ``.xml`` and ``.bin``.  nnpipe stores both uncompressed in one ZIP
# archive, with the names of inputs and outputs in their order: in OpenVINO, a tensor may have
# several names or none.

_XML, _BIN, _IO = "model.xml", "model.bin", "io.json"


@dataclass(frozen=True)
class OpenVINOFile:
    """The parts of a file.

    Attributes
    ----------
    xml, weights
        The two parts of OpenVINO's intermediate representation.
    io
        Inputs and outputs; outputs are in the model's order.
    taken
        Names of the inputs in the model's order, without inputs that it does not
        use.
    """

    xml: bytes
    weights: bytes
    io: IOSpec
    taken: tuple[str, ...]


def write_openvino(path: Path, xml: Path, io: IOSpec, taken: tuple[str, ...]) -> None:
    """Write a model to one file.

    Parameters
    ----------
    path
        The file to write.
    xml
        The ``.xml`` file that OpenVINO wrote; the weights beside it are copied in blocks.
    io, taken
        As in :class:`OpenVINOFile`.
    """
    said = json.dumps(io.to_json() | {"taken": list(taken)})
    write_stored(path, {_IO: said.encode(), _XML: xml, _BIN: xml.with_suffix(".bin")})


def read_openvino(path: Path) -> OpenVINOFile:
    """Return the parts of a file; the archive's checksums are verified.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if sorted(info.filename for info in infos) != sorted([_XML, _BIN, _IO]):
                raise ArtifactError(
                    f"{path}: an archive, but not of an OpenVINO model; compile it with nnpipe"
                )
            check_stored(path, archive, "OpenVINO models")
            said = parse_json(archive.read(_IO))
            io, taken = IOSpec.from_json(said), tuple(map(str, said["taken"]))
            return OpenVINOFile(archive.read(_XML), archive.read(_BIN), io, taken)
    except (*ZIP_ERRORS, KeyError, TypeError) as error:
        if isinstance(error, (SpecMismatch, KeyError, TypeError)):
            raise ArtifactError(
                f"{path}: its description of inputs and outputs is damaged: {error}"
            ) from None
        cause = error or type(error).__name__
        raise ArtifactError(f"{path}: damaged, or no OpenVINO model: {cause}") from None


_DTYPES = {
    "boolean": "bool",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    **{
        f"{short}{bits}": f"{long}{bits}"
        for short, long in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
}


@dataclass(frozen=True)
class OpenVINOModel:
    """A model read by OpenVINO.

    Attributes
    ----------
    native
        An ``openvino.Model``.
    io
        Its inputs and outputs; outputs are in the model's order.
    taken
        Names of the inputs in the model's order, without inputs that it does not
        use.
    """

    native: Any
    io: IOSpec
    taken: tuple[str, ...]

    def for_batch(self, batch: int, path: Path) -> OpenVINOModel:
        """Return the model with free first axes of its inputs fixed to a batch size.

        Raises
        ------
        ArtifactError
            If the model does not allow this batch size; the message names ``path``.
        """
        free = {spec.name for spec in self.io.inputs if spec.shape[:1] == (None,)}
        shapes = {}
        for place, name in enumerate(self.taken):
            shape = self.native.inputs[place].partial_shape
            if name in free and shape.rank.is_static:
                shape[0] = batch
                shapes[place] = shape
        if not shapes:
            return self
        try:
            self.native.reshape(shapes)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(
                f"{path}: OpenVINO cannot make it for {batch} samples in a call: "
                f"{format_openvino_message(error)}; "
                "--fixed-batch 0 leaves the number free"
            ) from None
        ports = dict(zip((spec.name for spec in self.io.outputs), self.native.outputs, strict=True))
        ports |= dict(zip(self.taken, self.native.inputs, strict=True))
        found = [
            replace(spec, shape=_read_shape(path, ports[spec.name], spec.shape))
            if spec.name in ports
            else spec
            for spec in self.io
        ]
        count = len(self.io.inputs)
        return replace(self, io=IOSpec(tuple(found[:count]), tuple(found[count:])))


def read_model(path: Path, format: str) -> OpenVINOModel:
    """Read a model with OpenVINO.

    Parameters
    ----------
    path
        The file.
    format
        ``"openvino"``, ``"onnx"`` or ``"tflite"``.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or has operations or tensors that OpenVINO
        does not support; the message names it.
    """
    return {"openvino": _read_own, "onnx": _read_onnx, "tflite": _read_tflite}[format](path)


def _read_own(path: Path) -> OpenVINOModel:
    file = read_openvino(path)
    native = _read(path, model=file.xml, weights=file.weights)
    return _build_model(path, native, file.io, file.taken)


def _read_onnx(path: Path) -> OpenVINOModel:
    file = read_onnx(path)
    file.check_external()
    check_known_faults(path, "OpenVINO", OPENVINO)
    native = _read(path, model=str(path))
    _refuse_wrong_windows(path, native)
    # A tensor that is an input and an output has the names of both.
    taken = _match_inputs(path, native, tuple(file.inputs))
    given = tuple(_find_name(path, port.names, file.outputs) for port in native.outputs)
    ports = dict(zip(taken, native.inputs, strict=True))
    inputs = []
    for name, (dtype, shape) in file.inputs.items():
        if name in ports:
            inputs.append(
                TensorSpec(
                    name,
                    _read_shape(path, ports[name], shape),
                    _read_dtype(path, ports[name], name),
                )
            )
        elif dtype is None or shape is None:
            raise ArtifactError(
                f"{path}: it does not say what {name!r} is, and OpenVINO makes no use of it"
            )
        else:
            inputs.append(TensorSpec(name, shape, dtype))
    outputs = [
        TensorSpec(
            name, _read_shape(path, port, file.outputs[name][1]), _read_dtype(path, port, name)
        )
        for name, port in zip(given, native.outputs, strict=True)
    ]
    io = IOSpec(
        tuple(map(file.with_quantization, inputs)), tuple(map(file.with_quantization, outputs))
    )
    return OpenVINOModel(native, io, taken)


def _refuse_wrong_windows(path: Path, native: Any) -> None:
    """Reject pooling and transposed convolutions whose windows OpenVINO places or counts
    wrongly.
    """
    for operation in native.get_ordered_ops():
        kind = operation.get_type_name()
        if kind in ("MaxPool", "AvgPool"):
            fault = _find_pooling_fault(operation)
        elif kind.endswith("ConvolutionBackpropData"):
            fault = _find_transposed_fault(operation)
        else:
            continue
        if fault:
            raise NotSupported(
                f"{path}: OpenVINO computes {kind} {operation.friendly_name!r} wrongly: {fault}"
            )


def _find_pooling_fault(operation: Any) -> str:
    """Return what is wrong with pooling that rounds up: ONNX has no window that lies wholly
    beyond the input.
    """
    said = operation.get_attributes()
    given, made = operation.input(0).get_partial_shape(), operation.output(0).get_partial_shape()
    if not said["rounding_type"].startswith("ceil") or given.rank.is_dynamic:
        return ""
    pads = zip(said["pads_begin"], said["pads_end"], strict=True)
    for axis, (stride, kernel, (before, behind)) in enumerate(
        zip(said["strides"], said["kernel"], pads, strict=True), 2
    ):
        if not given[axis].is_static:
            continue
        length, last = given[axis].get_length(), (made[axis].get_length() - 1) * stride
        if last >= length + before:
            return "ceil_mode adds a window that lies wholly beyond the input"
        if (
            said.get("exclude-pad") is False
            and before + behind
            and last + kernel > length + before + behind
        ):
            return "with ceil_mode, count_include_pad does not count the padding of the last window"
    return ""


def _find_transposed_fault(operation: Any) -> str:
    """Return what is wrong with padding to the same length: with a free axis, such as the batch,
    it is left out.
    """
    said, given = operation.get_attributes(), operation.input(0).get_partial_shape()
    if not said["auto_pad"].startswith("same") or given.is_static:
        return ""
    kernel = list(operation.input(1).get_partial_shape())[-len(said["strides"]) :]
    for length, stride, dilation in zip(kernel, said["strides"], said["dilations"], strict=True):
        if length.is_dynamic or (length.get_length() - 1) * dilation + 1 != stride:
            return (
                "auto_pad is left out where the batch or another axis is free; export it with "
                "fixed lengths"
            )
    return ""


def _match_inputs(path: Path, native: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return which inputs of an ONNX file the model has; one that is also an output may have
    lost its name.
    """
    if len(native.inputs) == len(names):
        return names  # OpenVINO keeps their order
    return tuple(
        _find_name(path, {port.node.friendly_name}, dict.fromkeys(names)) for port in native.inputs
    )


def _read_tflite(path: Path) -> OpenVINOModel:
    file = read_tflite(path)
    for spec in file.io:
        if spec.dtype not in _DTYPES.values():
            raise ArtifactError(
                f"{path}: tensor {spec.name!r} is {spec.dtype}, which cannot be put into or got "
                f"from OpenVINO here"
            )
    native = _read(path, model=str(path))
    # Both list tensors in the order of the graph, and only the file has the names of the signature.
    return _build_model(path, native, file.io, tuple(spec.name for spec in file.io.inputs))


def _read(path: Path, **arguments: Any) -> Any:
    import openvino

    try:
        return openvino.Core().read_model(**arguments)
    except Exception as error:  # its errors share no base but Exception
        raise ArtifactError(
            f"{path}: OpenVINO cannot read {_find_failed_operation(error)}"
        ) from None


def _find_failed_operation(error: Exception) -> str:
    """Return the operation on which OpenVINO failed; the missing tensor in its message would not
    help users.
    """
    found = re.search(r"while working with operation of type (\w+)", str(error))
    if found is None:
        return f"it: {format_openvino_message(error)}"
    return f"operation {found[1]} as the model uses it; another runtime may"


def _build_model(path: Path, native: Any, io: IOSpec, taken: tuple[str, ...]) -> OpenVINOModel:
    """Return a model with the names and the quantisation of ``io`` for its tensors."""
    if len(native.inputs) != len(taken) or len(native.outputs) != len(io.outputs):
        raise ArtifactError(
            f"{path}: OpenVINO sees {len(native.inputs)} inputs and {len(native.outputs)} outputs, "
            f"the file says {len(taken)} and {len(io.outputs)}"
        )
    if len(set(taken)) != len(taken) or not set(taken) <= {spec.name for spec in io.inputs}:
        raise ArtifactError(
            f"{path}: damaged: it takes {', '.join(taken)}, which are not its inputs"
        )
    ports = dict(zip(taken, native.inputs, strict=True))
    inputs = tuple(
        _make_spec(path, ports[spec.name], spec) if spec.name in ports else spec
        for spec in io.inputs
    )
    outputs = tuple(
        _make_spec(path, port, spec) for port, spec in zip(native.outputs, io.outputs, strict=True)
    )
    return OpenVINOModel(native, IOSpec(inputs, outputs), taken)


def _make_spec(path: Path, port: Any, known: TensorSpec) -> TensorSpec:
    dtype, shape = _read_dtype(path, port, known.name), _read_shape(path, port, known.shape)
    if dtype == known.dtype:
        return TensorSpec(known.name, shape, dtype, known.scale, known.zero_point, known.axis)
    return TensorSpec(known.name, shape, dtype)


def _find_name(path: Path, names: Collection[str], known: Mapping[str, object]) -> str:
    found = next((name for name in known if name in names), None)
    if found is None:
        raise ArtifactError(
            f"{path}: OpenVINO sees a tensor {sorted(names)} that the file does not name"
        )
    return found


def _read_shape(
    path: Path, port: Any, known: tuple[int | None, ...] | None
) -> tuple[int | None, ...]:
    """Return the lengths of axes; those in the file if OpenVINO does not know the rank."""
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        if known is None:
            raise ArtifactError(f"{path}: nothing says how many axes {sorted(port.names)} has")
        return known
    return tuple(None if length.is_dynamic else int(length.get_length()) for length in shape)


def _read_dtype(path: Path, port: Any, name: str) -> str:
    kind = port.element_type.get_type_name()
    if kind not in _DTYPES:
        told = "bfloat16" if kind == "bf16" else kind
        raise ArtifactError(
            f"{path}: tensor {name!r} is {told}, which cannot be put into or got from OpenVINO here"
        )
    return _DTYPES[kind]


def format_openvino_message(error: object) -> str:
    """Return OpenVINO's message without the leading places in its source code."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("Exception from ", "Check '"))]
    return format_one_line(" ".join(told or lines) or type(error).__name__, 400)
