"""Times of the operations in a model's steps, measured by TensorFlow's profiler.

The graph is the one that the graph methods return, without the rewriting that
fuses operations, so that each keeps its name; with fusion, a step is faster.
Times of parallel threads are added up, so that the sum may exceed the wall time.
With a GPU, only the host's part is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from nnpipe.core.graph import Graph, Operation, Profile, Timing
from nnpipe.core.tensors import DTYPES, Batch, TensorSpec
from nnpipe.frameworks.keras import import_keras, make_free_name, map_inner_names, map_named_weights
from nnpipe.frameworks.keras_session import TraceEvent, record_events, select_outermost
from nnpipe.modelwrappers.frameworks.tensorflow_graph import LayerGraph, TracedCall
from nnpipe.modelwrappers.frameworks.tensorflow_training import TrainingStep

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase

_BACKWARDS = "gradient_tape/"


class ScopedCall:
    """Runs a layer graph so that each TensorFlow operation is named after its layer call."""

    def __init__(self, graph: LayerGraph) -> None:
        self._graph = graph
        self.steps: dict[str, TracedCall] = {}

    def __call__(self, tensors: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Return the model's outputs for its inputs."""
        tensorflow, _ = import_keras()

        def run_in_scope(step: TracedCall, compute: Callable[[], list[Any]]) -> list[Any]:
            text = "".join(c if c.isalnum() or c in "._/-" else "." for c in step.operation.name)
            with tensorflow.name_scope(text) as scope:  # made unique, with a slash at the end
                self.steps[scope] = step
                return compute()

        values = self._graph.run(tensors, training, run_in_scope)
        return {name: values[tensor] for name, tensor in self._graph.output_names.items()}

    def find_layer_call(self, operation: str) -> TracedCall | None:
        """Return the step of a TensorFlow operation of the forward or backward pass, by the
        operation's name.
        """
        name = operation.removeprefix(_BACKWARDS)
        return next((step for scope, step in self.steps.items() if name.startswith(scope)), None)

    def compute_stable_names(self, traced: Any) -> dict[str, str]:
        """Return names for the operations of a traced graph that are the same in every trace of a
        model.

        Inside the scope of a step, Keras opens a scope for the layer and, in it,
        for the layers inside; both have names with process-wide numbers.
        """
        found: dict[str, str] = {}
        taken: dict[str, Any] = {}
        for operation in traced.get_operations():
            name = operation.name
            backwards = _BACKWARDS if name.startswith(_BACKWARDS) else ""
            rest = name.removeprefix(backwards)
            scope = next((scope for scope in self.steps if rest.startswith(scope)), "")
            if scope:
                parts = rest[len(scope) :].split("/")
                keras_operation = self.steps[scope].operation.native.operation
                if len(parts) > 1 and re.fullmatch(
                    rf"{re.escape(keras_operation.name)}(_\d+)?", parts[0]
                ):
                    del parts[0]
                stable = map_inner_names(keras_operation)
                name = (
                    backwards
                    + scope
                    + "/".join(_replace_numbered_part(part, stable) for part in parts)
                )
            found[operation.name] = name = make_free_name(name, taken)
            taken[name] = None
        return found


def trace_training_graph(
    wrapper: TensorFlowBase, model: Any, graph: LayerGraph, truth: Sequence[TensorSpec]
) -> Graph:
    """Return the graph of a training step; see :meth:`TensorFlowWrapper.get_training_graph`."""
    call = ScopedCall(graph)
    step = TrainingStep(wrapper, model, truth, 0.001, call)
    function = step.train.get_concrete_function()
    traced = function.graph
    variables = _list_variables(step)
    tensors = {
        name: TensorSpec(name, tuple(v.shape), v.dtype.name) for name, v in variables.items()
    }
    handles = {variable.handle.ref(): name for name, variable in variables.items()}
    names = {
        inside.name: handles[given.ref()]
        for given, inside in traced.captures
        if given.ref() in handles
    }
    inputs = []
    # TensorFlow flattens dictionaries in the order of their keys.
    flat = [(key, side[key]) for side in step.signature for key in sorted(side)]
    for (key, spec), placeholder in zip(flat, traced.inputs, strict=False):
        names[placeholder.name] = name = make_free_name(key, tensors)
        inputs.append(name)
        tensors[name] = TensorSpec(name, tuple(spec.shape), spec.dtype.name)
    placeholders = {tensor.op.name for tensor in traced.inputs}
    stable = call.compute_stable_names(traced)
    operations = []
    for operation in traced.get_operations():
        if operation.name in placeholders:
            continue
        outputs = []
        for number, tensor in enumerate(operation.outputs):
            if _is_numbers(tensor):
                names[tensor.name] = name = f"{stable[operation.name]}:{number}"
                outputs.append(name)
                tensors[name] = TensorSpec(name, tuple(tensor.shape), tensor.dtype.name)
        taken = tuple(names[tensor.name] for tensor in operation.inputs if tensor.name in names)
        layer = call.find_layer_call(operation.name)
        path = layer.operation.layer if layer else ""
        operations.append(
            Operation(
                stable[operation.name], operation.type, taken, tuple(outputs), path, operation
            )
        )
    results = tuple(names[function.structured_outputs[name].name] for name in ("loss", "score"))
    return Graph(tuple(operations), tensors, tuple(inputs), results, traced)


def _replace_numbered_part(part: str, stable: Mapping[str, str]) -> str:
    """Replace a layer's name in a part of a scope, which TensorFlow may have numbered too, by
    its stable name.
    """
    for name in sorted(stable, key=len, reverse=True):
        if part == name or re.fullmatch(rf"{re.escape(name)}_\d+", part):
            return stable[name] + part[len(name) :]
    return part


def _list_variables(step: TrainingStep) -> dict[str, Any]:
    """Return all TensorFlow variables of a step by name, including the optimiser's."""
    found = dict(map_named_weights(step.model))
    weights = {id(variable) for variable in found.values()}
    # Keras names a moment of "conv/kernel" "conv_kernel_momentum"; of two matching names, the
    # longer is meant.
    by_weight = sorted(
        ((v.path.replace("/", "_"), name) for name, v in found.items()),
        key=lambda item: -len(item[0]),
    )
    for number, variable in enumerate(v for v in step.model.variables if id(v) not in weights):
        found[f"generator/{number}"] = variable
    for variable in step.optimizer.variables:
        kind = variable.name
        for path, weight in by_weight:
            if kind.startswith(path + "_"):
                kind = f"{weight}/{kind.removeprefix(path + '_')}"
                break
        name = f"optimizer/{kind}"
        found[name if name not in found else f"{name}_{len(found)}"] = variable
    return {name: variable.value for name, variable in found.items()}


def _is_numbers(tensor: Any) -> bool:
    # Handles of variables and of lists are not numeric tensors and have no shape of their own.
    return tensor.dtype.name in DTYPES and tensor.shape.rank is not None


def profile_inference(
    graph: LayerGraph, batches: Sequence[Batch], specs: Iterable[TensorSpec]
) -> Profile:
    """Return the times of a model's layer calls on these batches; see
    :meth:`TensorFlowWrapper.profile_inference`.
    """
    tensorflow, _ = import_keras()
    call = ScopedCall(graph)
    signature = {
        spec.name: tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in specs
    }
    run = tensorflow.function(call, input_signature=[signature], autograph=False)
    ready = [
        ({name: tensorflow.constant(array) for name, array in batch.items()},) for batch in batches
    ]
    events, wall = _run_profiler(run, ready)
    times = dict.fromkeys((step.operation.name for step in graph.steps), 0)
    steps = {
        name: step
        for name in {event.name for event in events}
        if (step := call.find_layer_call(name)) is not None
    }
    for event in select_outermost(event for event in events if event.name in steps):
        times[steps[event.name].operation.name] += event.length
    timings = tuple(
        Timing(
            step.operation.name, step.operation.kind, len(ready), times[step.operation.name] // 1000
        )
        for step in graph.steps
    )
    return Profile(timings, len(ready), wall)


def profile_training(
    wrapper: TensorFlowBase,
    model: Any,
    graph: LayerGraph,
    batches: Sequence[tuple[Batch, Batch]],
    truth: Iterable[TensorSpec],
) -> Profile:
    """Return the times of the operations of training steps; see
    :meth:`TensorFlowWrapper.profile_training`.
    """
    tensorflow, _ = import_keras()
    call = ScopedCall(graph)
    step = TrainingStep(wrapper, model, truth, 0.001, call)
    traced = step.train.get_concrete_function().graph
    names = call.compute_stable_names(traced)
    kinds = {operation.name: operation.type for operation in traced.get_operations()}
    ready = [
        tuple({name: tensorflow.constant(array) for name, array in side.items()} for side in batch)
        for batch in batches
    ]
    before = [variable.numpy() for variable in step.model.variables]
    try:
        events, wall = _run_profiler(step.train, ready)
    finally:
        for variable, value in zip(step.model.variables, before, strict=True):
            variable.assign(value)
    totals: dict[str, list[int]] = {}
    for event in select_outermost(event for event in events if event.name in kinds):
        totals.setdefault(event.name, []).append(event.length)
    timings = tuple(
        Timing(names[name], kinds[name], len(times), sum(times) // 1000)
        for name, times in totals.items()
    )
    return Profile(timings, len(ready), wall)


def _run_profiler(
    run: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> tuple[list[TraceEvent], int]:
    """Run a compiled function on each of ``arguments`` under the profiler; return events (ps)
    and wall time (ns).
    """
    tensorflow, _ = import_keras()
    with _suppress_fusion(tensorflow):
        _wait(run(*arguments[0]))  # traces and compiles, which is not part of a step
        with record_events() as events:
            start = perf_counter_ns()
            for each in arguments:
                _wait(run(*each))
            wall = perf_counter_ns() - start
    return events, wall


def _wait(found: Mapping[str, Any]) -> None:
    for tensor in found.values():
        tensor.numpy()


@contextmanager
def _suppress_fusion(tensorflow: Any) -> Iterator[None]:
    optimizer, name = tensorflow.config.optimizer, "disable_meta_optimizer"
    before = optimizer.get_experimental_options().get(name, False)
    optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        optimizer.set_experimental_options({name: before})
