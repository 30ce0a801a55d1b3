"""Times of the operations in a model's steps, measured by TensorFlow's profiler.

The graph is the one that the graph methods return, without the rewriting that
fuses operations, so that each keeps its name; with fusion, a step is faster.
Times of parallel threads are added up, so that the sum may exceed the wall time.
With a GPU, only the host's part is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from nnpipe.core.graph import Profile, Timing
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.tensorflow_trace import TraceEvent, outermost, recorded_events
from nnpipe.modelwrappers.frameworks.tensorflow_graph import LayerGraph
from nnpipe.modelwrappers.frameworks.tensorflow_step_graph import ScopedCall
from nnpipe.modelwrappers.frameworks.tensorflow_training import TrainingStep

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase


def profile_inference(graph: LayerGraph, batches: Sequence[Batch], specs: Iterable[TensorSpec]) -> Profile:
    """Return the times of a model's layer calls on these batches; see :meth:`TensorFlowWrapper.profile_inference`."""
    tensorflow, _ = import_keras()
    call = ScopedCall(graph)
    signature = {spec.name: tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in specs}
    run = tensorflow.function(call, input_signature=[signature], autograph=False)
    ready = [({name: tensorflow.constant(array) for name, array in batch.items()},) for batch in batches]
    events, wall = _observed(run, ready)
    times = dict.fromkeys((step.operation.name for step in graph.steps), 0)
    steps = {name: step for name in {event.name for event in events} if (step := call.layer_of(name)) is not None}
    for event in outermost(event for event in events if event.name in steps):
        times[steps[event.name].operation.name] += event.length
    timings = tuple(
        Timing(step.operation.name, step.operation.kind, len(ready), times[step.operation.name] // 1000)
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
    """Return the times of the operations of training steps; see :meth:`TensorFlowWrapper.profile_training`."""
    tensorflow, _ = import_keras()
    call = ScopedCall(graph)
    step = TrainingStep(wrapper, model, truth, 0.001, call)
    traced = step.train.get_concrete_function().graph
    names = call.stable_names(traced)
    kinds = {operation.name: operation.type for operation in traced.get_operations()}
    ready = [
        tuple({name: tensorflow.constant(array) for name, array in side.items()} for side in batch) for batch in batches
    ]
    before = [variable.numpy() for variable in step.model.variables]
    try:
        events, wall = _observed(step.train, ready)
    finally:
        for variable, value in zip(step.model.variables, before, strict=True):
            variable.assign(value)
    totals: dict[str, list[int]] = {}
    for event in outermost(event for event in events if event.name in kinds):
        totals.setdefault(event.name, []).append(event.length)
    timings = tuple(Timing(names[name], kinds[name], len(times), sum(times) // 1000) for name, times in totals.items())
    return Profile(timings, len(ready), wall)


def _observed(run: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[list[TraceEvent], int]:
    """Run a compiled function on each of ``arguments`` under the profiler; return events (ps) and wall time (ns)."""
    tensorflow, _ = import_keras()
    with _unfused(tensorflow):
        _wait(run(*arguments[0]))  # traces and compiles, which is not part of a step
        with recorded_events() as events:
            start = perf_counter_ns()
            for each in arguments:
                _wait(run(*each))
            wall = perf_counter_ns() - start
    return events, wall


def _wait(found: Mapping[str, Any]) -> None:
    for tensor in found.values():
        tensor.numpy()


@contextmanager
def _unfused(tensorflow: Any) -> Iterator[None]:
    optimizer, name = tensorflow.config.optimizer, "disable_meta_optimizer"
    before = optimizer.get_experimental_options().get(name, False)
    optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        optimizer.set_experimental_options({name: before})
