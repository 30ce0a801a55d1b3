"""Times of the operations that TensorFlow makes of a Keras model, from its profiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.session import timed_runs
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.keras_names import graph_of, layer_paths
from nnpipe.frameworks.recorded_calls import computed_by
from nnpipe.frameworks.tensorflow_trace import TraceEvent, outermost, recorded_events

_MARK = "nnpipe run"
_CALL = re.compile(r"^(?:Stateful)?PartitionedCall/")
_NAME = re.compile(r"[^\s:]+")
_KIND = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"_\d+$")


def recorded_operations(session: Any, runs: int, traced: Any, model: Any) -> OperationTimes:
    """Return the times of the operations of TensorFlow's optimised graph.

    Parameters
    ----------
    session
        A session that has run, in which TensorFlow's ordinary executor carries out the graph (:func:`executed`): the
        one for small graphs records nothing.
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
        If nothing was recorded, because the model computes nothing, or if this TensorFlow does not let its profiles be
        read.
    """
    tensorflow, _ = import_keras()
    trace = tensorflow.profiler.experimental.Trace
    walls = np.zeros(runs)
    with recorded_events() as events:
        for number in range(runs):
            with trace(_MARK):
                walls[number] = timed_runs(session, 1)[0]
    marks = sorted((event for event in events if event.kind == _MARK), key=lambda event: event.start)
    layers, types = _layers(traced.graph, model), _types(traced.graph)
    steps: dict[tuple[str, str], np.ndarray] = {}
    for number, (mark, inside) in enumerate(zip(marks, _by_run(events, marks), strict=True)):
        for event, share in _shared(inside, mark):
            name = _CALL.sub("", event.name)
            steps.setdefault((name, event.kind), np.zeros(runs))[number] += share / 1000
    if not steps:
        raise NotSupported("TensorFlow recorded no operation: the model only passes its inputs on")
    return OperationTimes(
        tuple(_step(name, kind, ns, layers, types) for (name, kind), ns in steps.items()), walls
    )  # fmt: skip


def executed(function: Any, names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Return a call of a concrete function on TensorFlow's ordinary executor, without the packing of arguments.

    Parameters
    ----------
    function
        The function.
    names
        Names of the outputs, in their order.
    """
    tensorflow, _ = import_keras()
    stateful = any(operation.op_def.is_stateful for operation in function.graph.get_operations())
    run = tensorflow.raw_ops.StatefulPartitionedCall if stateful else tensorflow.raw_ops.PartitionedCall
    types = [tensor.dtype for tensor in function.outputs]
    held = list(function.captured_inputs)

    def call(*tensors: Any) -> dict[str, Any]:
        found = run(args=[*tensors, *held], Tout=types, f=function, executor_type="DEFAULT")
        return dict(zip(names, found, strict=True))

    return call


def _by_run(events: Sequence[TraceEvent], marks: Sequence[TraceEvent]) -> Iterator[list[TraceEvent]]:
    """Yield the outermost operations inside each mark, in the order of their starts."""
    operations = list(outermost(filter(_is_operation, events)))
    for mark in marks:
        yield [each for each in operations if mark.start <= each.start < mark.end]


def _is_operation(event: TraceEvent) -> bool:
    """Return whether it is an operation of a graph, and not a call of TensorFlow's own (``ExecutorState::Process``)."""
    return _NAME.fullmatch(event.name) is not None and _KIND.fullmatch(event.kind) is not None


def _shared(events: Sequence[TraceEvent], mark: TraceEvent) -> Iterator[tuple[TraceEvent, float]]:
    """Yield each event with its part of the mark's time; what runs at the same time has equal parts of it."""
    edges = sorted({mark.start, mark.end, *(min(edge, mark.end) for each in events for edge in (each.start, each.end))})
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


def _step(
    name: str, kind: str, ns: np.ndarray, layers: Mapping[str, str], types: Mapping[str, str]
) -> KernelTime:  # fmt: skip
    parts = name.split("/")
    prefixes = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
    layer = next((layers[each] for each in prefixes if each in layers), "")
    return KernelTime(
        f"{name}:{kind}", kind, ns, kind, types.get(name, ""), (layer,) if layer else (),
        computes="" if layer else computed_by(kind),
    )  # fmt: skip


def _types(graph: Any) -> dict[str, str]:
    """Return the type of the numbers that each operation of a traced graph reads, or else gives."""
    found = {}
    for operation in graph.get_operations():
        names = [tensor.dtype.name for side in (operation.inputs, operation.outputs) for tensor in side]
        found[operation.name] = next((each for each in names if each not in ("resource", "bool", "variant")), "")
    return found


def _layers(graph: Any, model: Any) -> dict[str, str]:
    """Return the call of a layer, as graphs of the model name it, by the scope of its operations.

    A scope has the names of the models and of the layer that are called, which TensorFlow numbers.  The second scope of
    a layer is its second call.
    """
    paths = layer_paths(model)
    found: dict[str, str] = {}
    calls: dict[str, int] = {}
    for operation in graph.get_operations():
        parts = operation.name.split("/")
        place = _place(parts, model)
        if place is None:
            continue
        scope, layer = "/".join(parts[: place[0]]), paths[id(place[1])]
        if scope not in found:
            calls[layer] = count = calls.get(layer, 0) + 1
            found[scope] = layer if count == 1 else f"{layer}#{count}"
    return found


def _place(parts: Sequence[str], model: Any) -> tuple[int, Any] | None:
    """Return how many parts of a name are the scope of a layer's call, and the layer."""
    inner, start = graph_of(model), next((n for n, part in enumerate(parts) if _names(part, model.name)), None)
    if start is None:
        return None
    for number, part in enumerate(parts[start + 1 : -1], start + 2):
        operations = [each for each in inner.operations if _names(part, each.name)]
        if not operations:
            continue
        layer = max(operations, key=lambda each: len(each.name))
        below = graph_of(layer)
        if below is None:
            return number, layer
        inner = below
    return None


def _names(part: str, name: str) -> bool:
    """Return whether a part of a scope is a name, which TensorFlow may have numbered."""
    return part == name or _NUMBER.sub("", part) == name
