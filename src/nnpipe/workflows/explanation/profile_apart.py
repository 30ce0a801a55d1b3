"""Timing the layers of a candidate in a process of its own, after it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nnpipe.analysis.operation_costs import graph_cost
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.graph_sizes import Shapes
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.explanation.graph_source import shown_by
from nnpipe.workflows.explanation.layer_times import layer_times
from nnpipe.workflows.explanation.memory_use import memory_use
from nnpipe.workflows.explanation.reasons import reasons
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.roofline.roofline import kept_ceilings

_RUNS = 30


def profile_apart(candidate: CandidateSpec, options: MeasureOptions, seconds: float = 0.0) -> dict[str, Any]:
    """Return the profile of a candidate's layers on the first test samples, in the form of a result file.

    Times and memory are each measured in a new process.  What cannot be measured has the ``reason`` instead.

    Parameters
    ----------
    candidate
        The candidate, with its data set.
    options
        The batch size counts.
    seconds
        The greatest time of each process in seconds; 0 for no limit.
    """
    if candidate.deployment is not None:
        return {"reason": "a target does not tell the times of its layers"}
    request = {"candidate": candidate.to_json(), "batch_size": options.inference_batch_size}
    try:
        with Worker(f"{__name__}:profile_here") as worker:
            found = worker.attempt("timing its layers", request, seconds)
        profile: dict[str, Any] = found["profile"]
        if candidate.runtime is not None:
            shapes = {name: tuple(shape) for name, shape in found["shapes"].items()}
            profile["memory"] = memory_use(_file_of(candidate), candidate.runtime, shapes, seconds).to_json()
    except NNPipeError as error:  # the measurement is valid in any case
        return {"reason": str(error)}
    return profile


def _file_of(candidate: CandidateSpec) -> Path:
    return candidate.model_path if candidate.artifact is None else candidate.artifact.path


# -- in the subprocess -----------------------------------------------------------------------------


def profile_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile of a request's candidate, and the shapes of the inputs, in this process."""
    spec = CandidateSpec.from_json(request["candidate"]).fitted()
    assert spec.dataset is not None
    size = request["batch_size"]
    with ExitStack() as stack:
        live = stack.enter_context(spec.wrapper.open() if spec.runs_itself else shown_by(_file_of(spec)))
        session = stack.enter_context(spec.open(live if spec.runs_itself else None))
        route = SampleRoute(spec.dataset, spec.wrapper, spec.wrapper.io, session.io, size)
        item = next(route.items(spec.dataset.split("test")), None)
        if item is None:
            raise ConfigError("there are no test samples to run it on")
        graph = live.get_sized_graph(_shapes(live.io, item.inputs, size))
        cost = graph_cost(graph)
        ran_in: Component = spec.runtime or spec.wrapper
        times = layer_times(type(ran_in).__name__, graph, session.profile(item.inputs, _RUNS))
    profile = LayerProfile(
        times,
        tuple(each.text for each in reasons(times)),
        cost.live_bytes,
        kept_ceilings(ran_in) if isinstance(ran_in, Runtime) else None,
    )
    return {
        "profile": profile.to_json(),
        "shapes": {name: array.shape for name, array in item.inputs.items()},
    }


def _shapes(io: IOSpec, batch: Batch, size: int) -> Shapes:
    """Return the lengths of a graph's inputs: those of the batch, or the batch size where names or layouts differ."""
    found = {}
    for spec in io.inputs:
        own = spec.shape
        given = batch[spec.name].shape if spec.name in batch else ()
        if len(given) == len(own) and all(length in (None, there) for length, there in zip(own, given, strict=True)):
            found[spec.name] = tuple(given)
        elif own and own[0] is None:
            found[spec.name] = (size, *(1 if length is None else length for length in own[1:]))
    return found
