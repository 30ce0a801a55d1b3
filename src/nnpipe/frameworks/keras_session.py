"""Inference sessions of Keras models."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.batching import resolve_batch_axes, with_batch
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError, NotSupported
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.messages import format_one_line
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, measure_runs
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.frameworks.keras import (
    get_inner_graph,
    get_thread_count,
    import_keras,
    make_named_call,
    map_layer_paths,
)
from nnpipe.frameworks.recorded_calls import classify_function

_CHANNELS_LAST_ONLY = "only supports the NHWC tensor format"

log = logging.getLogger("nnpipe")


class KerasSession(InferenceSession):
    """Runs a Keras model as a TensorFlow graph that is traced once.

    Tracing is not part of any run; each run uses the model's present weights.

    Parameters
    ----------
    model
        A functional or sequential model.
    io
        Its inputs and outputs by name.
    freeze
        Whether the present weights become constants of the graph, so that TensorFlow can fold
        computations on them. A graph that cannot be frozen is run unchanged.
    batch
        Fixed batch size of the graph; ``None`` leaves it free, so that the graph computes shapes in
        every run.
    recording
        Whether TensorFlow's profiler is to see the operations.
    """

    def __init__(
        self,
        model: Any,
        io: IOSpec,
        freeze: bool = False,
        batch: int | None = None,
        recording: bool = False,
    ) -> None:
        tensorflow, _ = import_keras()
        self._tensorflow = tensorflow
        self._synchronises = bool(tensorflow.config.list_logical_devices("GPU"))
        fixed = with_batch(io, batch)
        function = trace_inference(model, fixed)
        self.io = (
            io
            if batch is None
            else resolve_batch_axes(io, IOSpec(fixed.inputs, _get_output_specs(function, io)))
        )
        self._traced = function
        # Stateful layers and others that assign to variables.
        changing = (
            [each for each in function.variables if not each.trainable]
            if _has_assignments(function)
            else []
        )
        self._held = [(each, each.numpy()) for each in changing]
        self.keeps_state = bool(self._held)
        ready = _freeze_variables(function) if freeze and not self.keeps_state else function
        # dictionaries are flattened in the order of their keys
        names = sorted(spec.name for spec in io.outputs)
        if recording:
            self._function = make_executor_call(ready, names)
        else:
            self._function = function if ready is function else _make_call(ready, names)
        self._again = partial(KerasSession, model, io, freeze, batch, recording=True)
        self._model = model
        self._inputs: list[Any] = []
        self._outputs: dict[str, Any] = {}

    def _put(self, batch: Batch) -> None:
        self._inputs = [
            self._tensorflow.convert_to_tensor(batch[spec.name]) for spec in self.io.inputs
        ]

    def _run(self) -> None:
        try:
            self._outputs = self._function(*self._inputs)
        except self._tensorflow.errors.OpError as error:
            raise _make_failure(error) from None
        if self._synchronises:  # a GPU may still compute after the call; a CPU has finished
            self._tensorflow.test.experimental.sync_devices()

    def _reset(self) -> None:
        for variable, value in self._held:
            variable.assign(value)

    def _get(self) -> dict[str, np.ndarray]:
        # numpy() returns a view of TensorFlow's memory; the caller gets a copy.
        return {spec.name: np.array(self._outputs[spec.name].numpy()) for spec in self.io.outputs}

    def stats(self) -> Mapping[str, Any]:
        """Return the number of threads per operation, which TensorFlow's first computation in
        the process fixes.
        """
        return {"num_threads": get_thread_count()}

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:

        if self._synchronises:
            raise NotSupported(
                "times of operations are taken on the processor alone: hide the GPU from TensorFlow"
            )
        with self._again() as session:
            session.put(batch)
            measure_runs(session, WARMUP_RUNS)
            return record_operations(session, runs, session._traced, self._model)

    def _close(self) -> None:
        self._inputs, self._outputs = [], {}
        if self.keeps_state:
            self._reset()
        del self._function, self._traced, self._again, self._model, self._held


def _make_failure(error: Exception) -> NNPipeError:
    if _CHANNELS_LAST_ONLY in str(error):
        return NotSupported(
            "the model has convolutions with channels first, which TensorFlow computes on this "
            "processor only with oneDNN: set the environment variable TF_ENABLE_ONEDNN_OPTS to 1"
        )
    return ArtifactError(f"TensorFlow cannot run the model: {format_one_line(error)}")


def _has_assignments(function: Any) -> bool:
    """Return whether a concrete function, or one that it calls, changes variables."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return any(node.op.startswith(("Assign", "ResourceScatter")) for node in nodes)


def _get_output_specs(function: Any, io: IOSpec) -> tuple[TensorSpec, ...]:
    """Return the outputs with the shapes found by tracing; without one, a shape stays unchanged."""
    found = {name: tensor.shape for name, tensor in function.structured_outputs.items()}
    return tuple(
        replace(spec, shape=tuple(found[spec.name])) if found[spec.name].rank is not None else spec
        for spec in io.outputs
    )


def _freeze_variables(function: Any) -> Any:
    """Return a concrete function with its variables as constants, or the function itself if this
    fails.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        return convert_variables_to_constants_v2(function, lower_control_flow=False)
    except Exception as error:  # its errors share no base but Exception
        log.debug("the graph cannot be frozen: %s", error)
        return function


def _make_call(frozen: Any, names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Return a call of a function without variables; ``names`` are those of its outputs, in
    order.
    """
    tensorflow, _ = import_keras()
    types = [tensor.dtype for tensor in frozen.outputs]
    stateful = any(operation.op_def.is_stateful for operation in frozen.graph.get_operations())
    run = (
        tensorflow.raw_ops.StatefulPartitionedCall
        if stateful
        else tensorflow.raw_ops.PartitionedCall
    )

    def call(*tensors: Any) -> dict[str, Any]:
        # Bypasses the packing of arguments and results in Python, which takes 0.1 ms (0.8 ms for a
        # frozen function).
        found = run(args=tensors, Tout=types, f=frozen)
        return dict(zip(names, found, strict=True))

    return call


def trace_inference(model: Any, io: IOSpec) -> Any:
    """Return a Keras model traced as a concrete function of its inputs in the order of ``io``.

    The function returns a dictionary of outputs; its signature has the names of
    ``io``, which converters use.
    """
    tensorflow, _ = import_keras()
    call = make_named_call(model, io)

    def infer(*tensors: Any) -> dict[str, Any]:
        outputs = call(
            {spec.name: tensor for spec, tensor in zip(io.inputs, tensors, strict=True)},
            training=False,
        )
        return {name: tensorflow.identity(tensor, name=name) for name, tensor in outputs.items()}

    signature = [
        tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in io.inputs
    ]
    return tensorflow.function(infer, autograph=False).get_concrete_function(*signature)


@dataclass(frozen=True)
class TraceEvent:
    """An event of a thread.

    Parameters
    ----------
    name, kind
        What the profiler writes before and behind the last colon: an operation of a graph, and the
        kernel that ran, which may be that of a faster replacement.  Without a colon, the whole is
        the kind.
    start, length
        In picoseconds.
    thread
        A number for the thread.
    """

    name: str
    kind: str
    start: int
    length: int
    thread: int

    @property
    def end(self) -> int:
        """Return when it ended, in picoseconds."""
        return self.start + self.length


@contextmanager
def record_events() -> Iterator[list[TraceEvent]]:
    """Record what runs in the block; the list is filled when the block ends.

    Raises
    ------
    ConfigError
        If the profiler is in use already.
    NotSupported
        If this TensorFlow does not let its profiles be read.
    """
    tensorflow, _ = import_keras()
    profiler = tensorflow.profiler.experimental
    found: list[TraceEvent] = []
    with create_temporary_folder() as folder:
        try:
            profiler.start(str(folder))
        except tensorflow.errors.AlreadyExistsError:
            raise ConfigError(
                "TensorFlow's profiler is in use already in this process; stop it first"
            ) from None
        try:
            yield found
        finally:
            profiler.stop()
        found += _read_events(folder)


def _read_events(folder: Path) -> Iterator[TraceEvent]:
    try:
        from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace
    except ImportError:
        raise NotSupported(
            "this TensorFlow does not let its profiles be read; use version 2.19 to 2.21"
        ) from None
    for path in folder.rglob("*.xplane.pb"):
        space = XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            for thread, line in enumerate(plane.lines):
                for event in line.events:
                    name, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    yield TraceEvent(name, kind, start, event.duration_ps, thread)


def select_outermost(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield the events that are not inside another event of the same thread: a loop contains its
    body.
    """
    ends: dict[int, int] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.length)):
        if event.start >= ends.get(event.thread, 0):
            ends[event.thread] = event.end
            yield event


_MARK = "nnpipe run"
_CALL = re.compile(r"^(?:Stateful)?PartitionedCall/")
_NAME = re.compile(r"[^\s:]+")
_KIND = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"_\d+$")


def record_operations(session: Any, runs: int, traced: Any, model: Any) -> OperationTimes:
    """Return the times of the operations of TensorFlow's optimised graph.

    Parameters
    ----------
    session
        A session that has run, in which TensorFlow's ordinary executor carries out the graph
        (:func:`make_executor_call`): the one for small graphs records nothing.
    runs
        The number of runs.
    traced
        The concrete function that the session runs, before its weights became constants.
    model
        The Keras model.

    Raises
    ------
    ConfigError
        If TensorFlow's profiler is in use already.
    NotSupported
        If nothing was recorded, because the model computes nothing, or if this TensorFlow does not
        let its profiles be read.
    """
    tensorflow, _ = import_keras()
    trace = tensorflow.profiler.experimental.Trace
    walls = np.zeros(runs)
    with record_events() as events:
        for number in range(runs):
            with trace(_MARK):
                walls[number] = measure_runs(session, 1)[0]
    marks = sorted(
        (event for event in events if event.kind == _MARK), key=lambda event: event.start
    )
    layers, types = _map_layers(traced.graph, model), _map_types(traced.graph)
    steps: dict[tuple[str, str], np.ndarray] = {}
    for number, (mark, inside) in enumerate(zip(marks, _split_by_run(events, marks), strict=True)):
        for event, share in _split_time(inside, mark):
            name = _CALL.sub("", event.name)
            steps.setdefault((name, event.kind), np.zeros(runs))[number] += share / 1000
    if not steps:
        raise NotSupported("TensorFlow recorded no operation: the model only passes its inputs on")
    return OperationTimes(
        tuple(
            _make_kernel_time(name, kind, ns, layers, types) for (name, kind), ns in steps.items()
        ),
        walls,
    )


def make_executor_call(function: Any, names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Return a call of a concrete function on TensorFlow's ordinary executor, without the packing
    of arguments.

    Parameters
    ----------
    function
        The function.
    names
        Names of the outputs, in their order.
    """
    tensorflow, _ = import_keras()
    stateful = any(operation.op_def.is_stateful for operation in function.graph.get_operations())
    run = (
        tensorflow.raw_ops.StatefulPartitionedCall
        if stateful
        else tensorflow.raw_ops.PartitionedCall
    )
    types = [tensor.dtype for tensor in function.outputs]
    held = list(function.captured_inputs)

    def call(*tensors: Any) -> dict[str, Any]:
        found = run(args=[*tensors, *held], Tout=types, f=function, executor_type="DEFAULT")
        return dict(zip(names, found, strict=True))

    return call


def _split_by_run(
    events: Sequence[TraceEvent], marks: Sequence[TraceEvent]
) -> Iterator[list[TraceEvent]]:
    """Yield the outermost operations inside each mark, in the order of their starts."""
    operations = list(select_outermost(filter(_is_operation, events)))
    for mark in marks:
        yield [each for each in operations if mark.start <= each.start < mark.end]


def _is_operation(event: TraceEvent) -> bool:
    """Return whether it is an operation of a graph, and not a call of TensorFlow's own
    (``ExecutorState::Process``).
    """
    return _NAME.fullmatch(event.name) is not None and _KIND.fullmatch(event.kind) is not None


def _split_time(
    events: Sequence[TraceEvent], mark: TraceEvent
) -> Iterator[tuple[TraceEvent, float]]:
    """Yield each event with its part of the mark's time; what runs at the same time has equal
    parts of it.
    """
    edges = sorted(
        {
            mark.start,
            mark.end,
            *(min(edge, mark.end) for each in events for edge in (each.start, each.end)),
        }
    )
    parts = dict.fromkeys(range(len(events)), 0.0)
    waiting, running = 0, set[int]()
    for edge, after in pairwise(edges):
        while waiting < len(events) and events[waiting].start <= edge:
            running.add(waiting)
            waiting += 1
        running = {each for each in running if events[each].end > edge}
        for each in running:
            parts[each] += (after - edge) / len(running)
    for number, part in parts.items():
        yield events[number], part


def _make_kernel_time(
    name: str, kind: str, ns: np.ndarray, layers: Mapping[str, str], types: Mapping[str, str]
) -> KernelTime:
    parts = name.split("/")
    prefixes = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
    layer = next((layers[each] for each in prefixes if each in layers), "")
    return KernelTime(
        f"{name}:{kind}",
        kind,
        ns,
        kind,
        types.get(name, ""),
        (layer,) if layer else (),
        computes="" if layer else classify_function(kind),
    )


def _map_types(graph: Any) -> dict[str, str]:
    """Return the type of the numbers that each operation of a traced graph reads, or else gives."""
    found = {}
    for operation in graph.get_operations():
        names = [
            tensor.dtype.name for side in (operation.inputs, operation.outputs) for tensor in side
        ]
        found[operation.name] = next(
            (each for each in names if each not in ("resource", "bool", "variant")), ""
        )
    return found


def _map_layers(graph: Any, model: Any) -> dict[str, str]:
    """Return the call of a layer, as graphs of the model name it, by the scope of its operations.

    A scope has the names of the models and of the layer that are called, which TensorFlow numbers.
    The second scope of a layer is its second call.
    """
    paths = map_layer_paths(model)
    found: dict[str, str] = {}
    calls: dict[str, int] = {}
    for operation in graph.get_operations():
        parts = operation.name.split("/")
        place = _find_layer_call(parts, model)
        if place is None:
            continue
        scope, layer = "/".join(parts[: place[0]]), paths[id(place[1])]
        if scope not in found:
            calls[layer] = count = calls.get(layer, 0) + 1
            found[scope] = layer if count == 1 else f"{layer}#{count}"
    return found


def _find_layer_call(parts: Sequence[str], model: Any) -> tuple[int, Any] | None:
    """Return how many parts of a name are the scope of a layer's call, and the layer."""
    inner, start = (
        get_inner_graph(model),
        next((n for n, part in enumerate(parts) if _match_name(part, model.name)), None),
    )
    if start is None:
        return None
    for number, part in enumerate(parts[start + 1 : -1], start + 2):
        operations = [each for each in inner.operations if _match_name(part, each.name)]
        if not operations:
            continue
        layer = max(operations, key=lambda each: len(each.name))
        below = get_inner_graph(layer)
        if below is None:
            return number, layer
        inner = below
    return None


def _match_name(part: str, name: str) -> bool:
    """Return whether a part of a scope is a name, which TensorFlow may have numbered."""
    return part == name or _NUMBER.sub("", part) == name
