"""Times of the operations of PyTorch models, measured by PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.errors import ConversionError
from nnpipe.core.graph import Graph, Profile, Timing
from nnpipe.core.messages import format_one_line
from nnpipe.core.model import Samples
from nnpipe.frameworks.torch_session import set_torch_threads, to_tensor
from nnpipe.modelwrappers.frameworks.pytorch_export import export_program
from nnpipe.modelwrappers.frameworks.pytorch_graph import convert_program, interpret, read_graph
from nnpipe.modelwrappers.frameworks.pytorch_training import (
    as_tuple,
    generate_random_samples,
    iter_samples,
    run_steps,
)

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_MARK = "nnpipe::"


def profile_inference(
    wrapper: PyTorchWrapper, module: Any, n_steps: int, samples: Samples | None
) -> Profile:
    """Run the exported graph node by node and return the time of each node, including the operators
    it calls.

    One batch runs first without measurement.
    """
    import torch

    program = export_program(wrapper, module)
    operations = convert_program(wrapper, program).operations
    batches = list(iter_samples(wrapper, n_steps, samples))
    wall = 0
    with set_torch_threads(wrapper.num_threads):
        for inputs, _ in batches[:1]:
            interpret(wrapper, program, inputs)
        with _make_profiler(wrapper) as profiler:
            for inputs, _ in batches:
                start = perf_counter_ns()
                interpret(
                    wrapper,
                    program,
                    inputs,
                    around=lambda node: torch.profiler.record_function(_MARK + node.name),
                )
                _wait_for_device(wrapper)
                wall += perf_counter_ns() - start
    found = {
        event.key.removeprefix(_MARK): event
        for event in profiler.key_averages()
        if event.key.startswith(_MARK)
    }
    timings = [
        Timing(
            op.name,
            op.kind,
            found[op.name].count,
            _get_nanoseconds(wrapper, found[op.name], "total"),
        )
        for op in operations
        if op.name in found
    ]
    return Profile(tuple(timings), len(batches), wall)


def profile_training(
    wrapper: PyTorchWrapper, module: Any, n_steps: int, samples: Samples | None
) -> Profile:
    """Run training steps and return the time of each operator, without the operators it calls.

    One step runs first without measurement.  The weights are restored afterwards.
    """
    before = {name: value.clone() for name, value in module.state_dict().items()}
    batches = list(iter_samples(wrapper, n_steps, samples))
    wall = 0

    def measure_time(work: Callable[[], Any]) -> Any:
        nonlocal wall
        start = perf_counter_ns()
        found = work()
        _wait_for_device(wrapper)
        wall += perf_counter_ns() - start
        return found

    try:
        run_steps(wrapper, module, 1, batches[:1])
        with _make_profiler(wrapper) as profiler:
            run_steps(wrapper, module, n_steps, batches, measure_time)
    finally:
        module.load_state_dict(before)
    timings = [
        Timing(event.key, event.key, event.count, _get_nanoseconds(wrapper, event, "self"))
        for event in profiler.key_averages()
        if event.key.startswith("aten::")
    ]
    return Profile(tuple(timings), len(batches), wall)


def _make_profiler(wrapper: PyTorchWrapper) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if wrapper.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities)


def _get_nanoseconds(wrapper: PyTorchWrapper, event: Any, what: str) -> int:
    """Return an event's time on the computing device, in ns: with its calls (``"total"``) or
    without (``"self"``).
    """
    on = "cpu" if wrapper.device == "cpu" else "device"
    microseconds: float = getattr(
        event, f"{on}_time_total" if what == "total" else f"self_{on}_time_total"
    )
    return round(microseconds * 1000)


def _wait_for_device(wrapper: PyTorchWrapper) -> None:
    import torch

    if wrapper.device == "cuda":
        torch.cuda.synchronize()


# The graph of a training step of a PyTorch model: forward, loss, and the gradients of all weights.
#
# ``torch.export`` offers a joint graph only under private names.  The documented
# ``torch.func.functional_call`` and ``make_fx`` suffice: a step is written as a function of weights
# and samples, and its operations on tensors are recorded.

_LAYER = "nnpipe_layer"


def trace_training_graph(wrapper: PyTorchWrapper, module: Any) -> Graph:
    """Return the graph of one training step, traced on a batch of noise.

    Operations of the backward pass belong to the layer of the corresponding
    forward operations.  The outputs are the loss, the gradients in the order of
    the weights, and the buffers after the step.  Axes have the lengths of the
    traced batch.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    weights = {name: value.detach().requires_grad_() for name, value in module.named_parameters()}
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    inputs, truth = next(generate_random_samples(wrapper))
    given = {spec.name: to_tensor(inputs[spec.name], wrapper.device) for spec in wrapper.io.inputs}
    targets = {name: to_tensor(np.asarray(array), wrapper.device) for name, array in truth.items()}
    marks = _LayerRecorder()

    def run_step(weights: Any, buffers: Any, given: Any, targets: Any) -> Any:
        with marks.record_layers(module):
            found = torch.func.functional_call(module, (weights, buffers), tuple(given.values()))
        loss = wrapper.loss_of(module, as_tuple(found), targets)
        return loss, torch.autograd.grad(loss, list(weights.values()), allow_unused=True), buffers

    try:
        wrapper.training_mode(module)
        # Tensors of the module that are neither weights nor buffers are real tensors among the fake
        # ones.
        trace = make_fx(run_step, tracing_mode="fake", _allow_non_fake_inputs=True)
        traced = trace(weights, buffers, given, targets)
    except Exception as error:  # its errors share no base but Exception
        raise ConversionError(
            f"the training of {type(wrapper).__name__} cannot be traced: {format_one_line(error)}"
        ) from error
    finally:
        module.eval()
    marks.write(traced.graph)
    traced.graph.eliminate_dead_code()
    placeholders = [node.name for node in traced.graph.nodes if node.op == "placeholder"]
    names = dict(zip(placeholders, [*weights, *buffers, *given, *targets], strict=True))
    fed = placeholders[len(weights) + len(buffers) :]
    return read_graph(traced.graph, names, set(fed), traced, lambda node: node.meta.get(_LAYER, ""))


class _LayerRecorder:
    """Records the length of the graph whenever another layer starts, in the forward or the
    backward pass.
    """

    def __init__(self) -> None:
        self._changes: list[tuple[int, str]] = []
        self._open = [""]

    @contextmanager
    def record_layers(self, module: Any) -> Iterator[None]:
        """Observe all submodules inside the block, and their gradients later."""
        handles = []
        for name, child in module.named_modules():
            if name:
                handles.append(child.register_forward_pre_hook(self._enter(name)))
                handles.append(child.register_forward_hook(self._leave(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, name: str) -> Any:
        def hook(module: Any, arguments: Any) -> None:
            self._watch(arguments, self._open[-1])  # computed between layers, by the enclosing one
            self._open.append(name)
            self._record_change(name)

        return hook

    def _leave(self, name: str) -> Any:
        def hook(module: Any, arguments: Any, found: Any) -> None:
            self._watch(as_tuple(found), name)
            self._open.pop()
            self._record_change(self._open[-1])

        return hook

    def _watch(self, found: Iterable[Any], name: str) -> None:
        """Make the gradients of all tensors that were computed since the last call record this
        layer.
        """
        pending = [getattr(tensor, "grad_fn", None) for tensor in found]
        while pending:
            function = pending.pop()
            if function is None or _LAYER in function.metadata:
                continue
            function.metadata[_LAYER] = name
            function.register_prehook(lambda gradients: self._record_change(name))
            pending += [before for before, _ in function.next_functions]

    def _record_change(self, name: str) -> None:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        mode = get_proxy_mode()
        if mode is not None:
            self._changes.append((len(mode.tracer.graph.nodes), name))

    def write(self, graph: Any) -> None:
        """Write the layer of each node into the graph."""
        changes = iter([*self._changes, (len(graph.nodes) + 1, "")])
        layer, (due, coming) = "", next(changes)
        for position, node in enumerate(graph.nodes):
            while position >= due:
                layer, (due, coming) = coming, next(changes)
            node.meta[_LAYER] = layer
