"""OpenVINO: compiling models for a device and running them by names of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.processor import has_saturating_byte_sums
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, measure_runs
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.frameworks.openvino_models import OpenVINOModel, format_openvino_message, read_model
from nnpipe.frameworks.runtime_failures import make_runtime_failure

__all__ = [
    "OpenVINOModel",
    "OpenVINOSession",
    "build_kernel_times",
    "compile_model",
    "read_model",
    "undo_averaging",
]

_MICROSECOND = timedelta(microseconds=1)
_LARGEST = float(np.finfo(np.float32).max)


def compile_model(
    model: OpenVINOModel,
    path: Path,
    device: str,
    num_threads: int,
    precision: str,
    counting: bool = False,
) -> Any:
    """Return a model compiled for a device, an ``openvino.CompiledModel``.

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
    counting
        Whether it counts the time of each step.

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
        if precision == "f32" and device == "cpu":
            # By default, products with 4-bit weights round their activations to 8 bits.
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"
    if counting:
        settings["PERF_COUNT"] = True
    try:
        return core.compile_model(model.native, device.upper(), settings)
    except Exception as error:  # its errors share no base but Exception
        raise make_runtime_failure(
            path, "OpenVINO", f"compile it for the {device}", format_openvino_message(error)
        ) from None


class OpenVINOSession(InferenceSession):
    """Runs a compiled model.

    Parameters
    ----------
    compiled
        An ``openvino.CompiledModel``.
    io
        Inputs and outputs of the session.
    model
        The model, for the order of its tensors.
    path
        The file, for messages.
    counted
        Compiles the model again in the same way, but so that it counts the time of each step.
    """

    def __init__(
        self,
        compiled: Any,
        io: IOSpec,
        model: OpenVINOModel,
        path: Path,
        counted: Callable[[], Any],
    ) -> None:
        from openvino import Tensor
        from openvino._pyopenvino import InferRequest

        self.io = io
        self._compiled = compiled
        self._model = model
        self._counted = counted
        self._request = compiled.create_infer_request()
        self.keeps_state = bool(self._request.query_state())  # pairs of ReadValue and Assign
        self._path = path
        self._tensor = Tensor
        # Bypasses the Python wrapper, which collects the outputs into a dictionary.
        self._native_call: Callable[..., Any] = InferRequest.infer
        self._slots = [(name, place) for place, name in enumerate(model.taken)]
        places = {spec.name: place for place, spec in enumerate(model.io.outputs)}
        self._picks = [(spec.name, places[spec.name]) for spec in io.outputs]
        self._doubles = {spec.name for spec in io if spec.dtype == "float64"}
        self._inputs: list[np.ndarray] = []

    def _put(self, batch: Batch) -> None:
        self._inputs = []
        for name, place in self._slots:
            array = np.asarray(batch[name])  # arithmetic on 0-dimensional arrays gives scalars
            if name in self._doubles and (np.abs(array) > _LARGEST).any():
                raise self._make_saturation_error(name)
            if not array.flags.c_contiguous or not array.flags.writeable:
                array = array.copy(order="C")  # OpenVINO has no read-only tensors
            self._inputs.append(array)
            self._request.set_input_tensor(place, self._tensor(array, shared_memory=True))

    def _run(self) -> None:
        try:
            self._native_call(self._request, {}, share_outputs=True, decode_strings=False)
        except Exception as error:  # its errors share no base but Exception
            raise make_runtime_failure(
                self._path, "OpenVINO", "run it", format_openvino_message(error)
            ) from None

    def _reset(self) -> None:
        self._request.reset_state()

    def _get(self) -> dict[str, np.ndarray]:
        outputs = {
            name: self._request.get_output_tensor(place).data.copy() for name, place in self._picks
        }
        for name in self._doubles & outputs.keys():
            if (np.abs(outputs[name]) >= _LARGEST).any():
                raise self._make_saturation_error(name)
        return outputs

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:

        compiled = self._counted()
        averages, walls = [], np.zeros(runs)
        with OpenVINOSession(compiled, self.io, self._model, self._path, self._counted) as session:
            session.put(batch)
            for number in range(-WARMUP_RUNS, runs):
                wall = measure_runs(session, 1)
                found = session._request.get_profiling_info()
                averages.append([each.real_time // _MICROSECOND for each in found])
                if number >= 0:
                    walls[number] = wall[0]
        times = undo_averaging(np.array(averages, np.int64).T)[:, WARMUP_RUNS:]
        names, kernels = [each.node_name for each in found], [each.exec_type for each in found]
        return OperationTimes(
            build_kernel_times(compiled, self._model.native, names, kernels, times), walls
        )

    def _make_saturation_error(self, name: str) -> NotSupported:
        return NotSupported(
            f"{self._path}: OpenVINO computes float64 in float32, and {name!r} holds infinite "
            f"numbers or larger ones "
            "than that has; it would take the largest in their place"
        )

    def stats(self) -> dict[str, Any]:
        """Return the precision, the device, the number of threads, and whether sums of 8-bit
        products may saturate.
        """
        found = {
            "inference_precision": _get_property(self._compiled, "INFERENCE_PRECISION_HINT"),
            "num_threads": _get_property(self._compiled, "INFERENCE_NUM_THREADS"),
            "execution_devices": _get_property(self._compiled, "EXECUTION_DEVICES"),
        }
        if found["execution_devices"] == ["CPU"] and has_saturating_byte_sums():
            found["saturating_integers"] = True
        return {name: value for name, value in found.items() if value is not None}

    def _close(self) -> None:
        self._inputs = []
        del self._request, self._compiled, self._model, self._counted


def _get_property(compiled: Any, name: str) -> Any:
    try:
        value = compiled.get_property(name)
    except Exception:  # not every device has every property
        return None
    if isinstance(value, (int, str)):
        return value
    return list(map(str, value)) if isinstance(value, (list, tuple)) else value.get_type_name()


_FAMILIES = {
    "Convolution": "convolution",
    "GroupConvolution": "convolution",
    "Deconvolution": "convolution",
    "FullyConnected": "matrix product",
    "MatMul": "matrix product",
    "Pooling": "pooling",
    "AdaptivePooling": "pooling",
    "Softmax": "softmax",
    "Reduce": "reduction",
    "MVN": "normalisation",
    "Interpolate": "resize",
    "LSTMSequence": "lstm",
    "LSTMCell": "lstm",
    "GRUSequence": "gru",
    "GRUCell": "gru",
    "ScaledDotProductAttention": "attention",
}
_PRECISIONS = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
}
_CONSTANT = ("Const", "Input", "Output", "Parameter", "Result")


def undo_averaging(averages: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the time of each run, given the average over it and all runs before, ``(steps, runs)``
    microseconds.

    OpenVINO keeps sums of whole microseconds, and returns them divided by the number of runs,
    rounded down.  So a sum is known up to that number.  Of the sums that are possible, the one is
    taken whose last run is closest to the average of all runs.
    """
    counts = np.arange(1, averages.shape[1] + 1)
    least = averages * counts
    usual = averages[:, -1]
    sums = np.zeros((len(averages), len(counts) + 1))
    for place, count in enumerate(counts):
        earliest = np.maximum(least[:, place], sums[:, place])  # no run takes less than nothing
        latest = np.maximum(least[:, place] + count - 1, sums[:, place])
        sums[:, place + 1] = np.clip(sums[:, place] + usual, earliest, latest)
    return np.diff(sums, axis=1)


@dataclass(frozen=True)
class _Node:
    kind: str
    precision: str
    origins: tuple[str, ...]
    after: tuple[str, ...]


def build_kernel_times(
    compiled: Any,
    source: Any,
    names: Sequence[str],
    kernels: Sequence[str],
    times: npt.NDArray[np.float64],
) -> tuple[KernelTime, ...]:
    """Return the steps that took time, or all of them if none took a whole microsecond.

    Parameters
    ----------
    compiled
        The ``openvino.CompiledModel``.
    source
        The ``openvino.Model`` that was compiled, whose tensors have the names in the file.
    names, kernels
        The name and the implementation of each step.
    times
        Microseconds in each run, ``(steps, runs)``.
    """
    nodes = _read_nodes(compiled)
    tensors = {
        each.get_friendly_name(): tuple(
            name for output in each.outputs() for name in output.get_names()
        )
        for each in source.get_ordered_ops()
    }
    found = []
    ran = {name for name, row in zip(names, times, strict=True) if row.any()}
    ran = ran or {name for name in names if name in nodes and nodes[name].kind not in _CONSTANT}
    for name, kernel, row in zip(names, kernels, times, strict=True):
        if name not in ran:
            continue
        node = nodes.get(name, _Node("", "", (), ()))
        sources = dict.fromkeys(
            each for origin in node.origins for each in (*tensors.get(origin, ()), origin)
        )
        found.append(
            KernelTime(
                name,
                node.kind,
                1000.0 * row,
                kernel,
                _find_precision(kernel, node),
                tuple(sources),
                _find_predecessors(node, nodes, ran),
                _FAMILIES.get(node.kind, ""),
            )
        )
    return tuple(found)


def _read_nodes(compiled: Any) -> dict[str, _Node]:
    """Return what the compiled model's graph says about each step."""
    found = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        told: Mapping[str, Any] = node.get_rt_info()
        kind = _get_text(told, "layerType")
        origins = (
            ()
            if kind in _CONSTANT
            else tuple(filter(None, _get_text(told, "originalLayersNames").split(",")))
        )
        after = tuple(
            each.get_source_output().get_node().get_friendly_name() for each in node.inputs()
        )
        precision = _get_text(told, "runtimePrecision")
        found[node.get_friendly_name()] = _Node(
            kind, _PRECISIONS.get(precision, precision), origins, after
        )
    return found


def _get_text(told: Mapping[str, Any], key: str) -> str:
    return str(told[key].astype(str)) if key in told else ""


def _find_precision(kernel: str, node: _Node) -> str:
    """Return the type that the implementation names last, or else that of the step's values."""
    named = kernel.rpartition("_")[2].lower()
    return node.precision if named == "i8" else _PRECISIONS.get(named, node.precision)


def _find_predecessors(node: _Node, nodes: Mapping[str, _Node], ran: set[str]) -> tuple[str, ...]:
    """Return the nearest steps before one that took time."""
    found: dict[str, None] = {}
    waiting, seen = list(node.after), set(node.after)
    while waiting:
        name = waiting.pop()
        if name in ran:
            found[name] = None
            continue
        fresh = [each for each in nodes[name].after if each not in seen] if name in nodes else []
        seen.update(fresh)
        waiting += fresh
    return tuple(found)
