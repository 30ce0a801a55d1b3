"""Times of the operations of PyTorch models, measured by PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from nnpipe.core.graph import Profile, Timing
from nnpipe.core.model import Samples
from nnpipe.frameworks.torch_session import threads
from nnpipe.modelwrappers.frameworks.pytorch_export import exported_program
from nnpipe.modelwrappers.frameworks.pytorch_graph import graph_of_program, interpret
from nnpipe.modelwrappers.frameworks.pytorch_training import run_steps, some

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_MARK = "nnpipe::"


def profile_inference(wrapper: PyTorchWrapper, module: Any, n_steps: int, samples: Samples | None) -> Profile:
    """Run the exported graph node by node and return the time of each node, including the operators it calls.

    One batch runs first without measurement.
    """
    import torch

    program = exported_program(wrapper, module)
    operations = graph_of_program(wrapper, program).operations
    batches = list(some(wrapper, n_steps, samples))
    wall = 0
    with threads(wrapper.num_threads):
        for inputs, _ in batches[:1]:
            interpret(wrapper, program, inputs)
        with _profiler(wrapper) as profiler:
            for inputs, _ in batches:
                start = perf_counter_ns()
                interpret(
                    wrapper, program, inputs, around=lambda node: torch.profiler.record_function(_MARK + node.name)
                )
                _synchronise(wrapper)
                wall += perf_counter_ns() - start
    found = {event.key.removeprefix(_MARK): event for event in profiler.key_averages() if event.key.startswith(_MARK)}
    timings = [
        Timing(op.name, op.kind, found[op.name].count, _nanoseconds(wrapper, found[op.name], "total"))
        for op in operations
        if op.name in found
    ]
    return Profile(tuple(timings), len(batches), wall)


def profile_training(wrapper: PyTorchWrapper, module: Any, n_steps: int, samples: Samples | None) -> Profile:
    """Run training steps and return the time of each operator, without the operators it calls.

    One step runs first without measurement.  The weights are restored afterwards.
    """
    before = {name: value.clone() for name, value in module.state_dict().items()}
    batches = list(some(wrapper, n_steps, samples))
    wall = 0

    def timed(work: Callable[[], Any]) -> Any:
        nonlocal wall
        start = perf_counter_ns()
        found = work()
        _synchronise(wrapper)
        wall += perf_counter_ns() - start
        return found

    try:
        run_steps(wrapper, module, 1, batches[:1])
        with _profiler(wrapper) as profiler:
            run_steps(wrapper, module, n_steps, batches, timed)
    finally:
        module.load_state_dict(before)
    timings = [
        Timing(event.key, event.key, event.count, _nanoseconds(wrapper, event, "self"))
        for event in profiler.key_averages()
        if event.key.startswith("aten::")
    ]
    return Profile(tuple(timings), len(batches), wall)


def _profiler(wrapper: PyTorchWrapper) -> Any:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if wrapper.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities)


def _nanoseconds(wrapper: PyTorchWrapper, event: Any, what: str) -> int:
    """Return an event's time on the computing device, in ns: with its calls (``"total"``) or without (``"self"``)."""
    on = "cpu" if wrapper.device == "cpu" else "device"
    microseconds: float = getattr(event, f"{on}_time_total" if what == "total" else f"self_{on}_time_total")
    return round(microseconds * 1000)


def _synchronise(wrapper: PyTorchWrapper) -> None:
    import torch

    if wrapper.device == "cuda":
        torch.cuda.synchronize()
