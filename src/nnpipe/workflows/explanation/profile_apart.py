"""Timing the layers of a candidate in a process of its own, after it was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from nnpipe.analysis.operation_costs import compute_graph_cost
from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, NNPipeError, NotSupported
from nnpipe.core.graph import Shapes, generate_random_inputs
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import create_component
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers.files.file_formats import find_wrapper, format_of
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.report.layer_tables import MemoryUse
from nnpipe.workflows.candidates.model_files import compute_model_size, read_artifact
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.explanation.layer_times import compute_layer_times
from nnpipe.workflows.explanation.reasons import find_reasons
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.roofline.roofline import find_kept_ceilings
from nnpipe.workflows.verification.claims import iter_lineage, read_artifact_description


def open_graph_model(path: Path) -> LiveModel:
    """Open the file that shows the graph of a file; used in a ``with`` block.

    Raises
    ------
    NotSupported
        If there is none.
    """
    wrapper, here = find_graph_wrapper(path)
    return wrapper.open(here)


def find_graph_wrapper(path: Path) -> tuple[ModelWrapper, Path]:
    """Return what opens a file, or the nearest one that it was made from that shows its graph, and
    that file.

    Raises
    ------
    NotSupported
        If there is none.
    """
    artifact = read_artifact_description(path)
    formats = (
        [(path, format_of(path))]
        if artifact is None
        else [(each.path, each.format) for each in iter_lineage(artifact)]
    )
    for here, format in formats:
        cls = find_wrapper(format)
        if (
            cls is not None
            and not cls.missing()
            and cls.offers("get_sized_graph")
            and here.exists()
        ):
            wrapper: ModelWrapper = cls.from_json({"model_path": str(here)})
            return wrapper, here
    raise NotSupported(f"{path}: neither it nor a file that it was made from shows its graph")


_MEMORY_RUNS = 5


def measure_memory(path: Path, runtime: Runtime, shapes: Shapes, seconds: float = 0.0) -> MemoryUse:
    """Return the memory that a runtime takes for a file, on random inputs, within ``seconds``; 0
    for no limit.

    Raises
    ------
    NNPipeError
        If the model does not run.
    """
    request = {
        "runtime": runtime.describe(),
        "path": str(path),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
    }
    with Worker(f"{__name__}:measure_here") as worker:
        return MemoryUse(**worker.attempt("measuring the memory", request, seconds))


# -- in the subprocess -----------------------------------------------------------------------------


def measure_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of a request's model as JSON, measured in this process."""
    runtime: Runtime = create_component(request["runtime"], Runtime)
    path = Path(request["path"])
    runtime.import_framework()
    artifact: Artifact = read_artifact(path, format_of(path), runtime)
    before = psutil.Process().memory_info().rss
    with runtime.load(artifact) as session:
        shapes = {name: tuple(shape) for name, shape in request["shapes"].items()}
        batch = generate_random_inputs(session.io, shapes)
        loaded = psutil.Process().memory_info().rss
        resets = _reset_peak()
        for _ in range(_MEMORY_RUNS):
            session.infer(batch)
        peak = _read_peak_memory() if resets else None
        size = compute_model_size(artifact, session.stats())
    return {
        "file_bytes": artifact.size if size is None else size,
        "loaded_bytes": max(loaded - before, 0),
        "peak_bytes": None if peak is None else max(peak - loaded, 0),
    }


def _reset_peak() -> bool:
    """Let Linux begin anew to look for the process's peak; return whether it does."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False


def _read_peak_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None


_RUNS = 30


def profile_apart(
    candidate: CandidateSpec, options: MeasureOptions, seconds: float = 0.0
) -> dict[str, Any]:
    """Return the profile of a candidate's layers on the first test samples, in the form of a result
    file.

    Times and memory are each measured in a new process.  What cannot be measured has the ``reason``
    instead.

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
            profile["memory"] = measure_memory(
                _get_model_file(candidate), candidate.runtime, shapes, seconds
            ).to_json()
    except NNPipeError as error:  # the measurement is valid in any case
        return {"reason": str(error)}
    return profile


def _get_model_file(candidate: CandidateSpec) -> Path:
    return candidate.model_path if candidate.artifact is None else candidate.artifact.path


# -- in the subprocess -----------------------------------------------------------------------------


def profile_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile of a request's candidate, and the shapes of the inputs, in this
    process.
    """
    spec = CandidateSpec.from_json(request["candidate"]).fit_wrapper()
    assert spec.dataset is not None
    size = request["batch_size"]
    with ExitStack() as stack:
        live = stack.enter_context(
            spec.wrapper.open() if spec.runs_itself else open_graph_model(_get_model_file(spec))
        )
        session = stack.enter_context(spec.open(live if spec.runs_itself else None))
        route = SampleRoute(spec.dataset, spec.wrapper, spec.wrapper.io, session.io, size)
        item = next(route.items(spec.dataset.split("test")), None)
        if item is None:
            raise ConfigError("there are no test samples to run it on")
        graph = live.get_sized_graph(_get_input_shapes(live.io, item.inputs, size))
        cost = compute_graph_cost(graph)
        ran_in: Component = spec.runtime or spec.wrapper
        times = compute_layer_times(
            type(ran_in).__name__, graph, session.profile(item.inputs, _RUNS)
        )
    profile = LayerProfile(
        times,
        tuple(each.text for each in find_reasons(times)),
        cost.live_bytes,
        find_kept_ceilings(ran_in) if isinstance(ran_in, Runtime) else None,
    )
    return {
        "profile": profile.to_json(),
        "shapes": {name: array.shape for name, array in item.inputs.items()},
    }


def _get_input_shapes(io: IOSpec, batch: Batch, size: int) -> Shapes:
    """Return the lengths of a graph's inputs: those of the batch, or the batch size where names
    or layouts differ.
    """
    found = {}
    for spec in io.inputs:
        own = spec.shape
        given = batch[spec.name].shape if spec.name in batch else ()
        if len(given) == len(own) and all(
            length in (None, there) for length, there in zip(own, given, strict=True)
        ):
            found[spec.name] = tuple(given)
        elif own and own[0] is None:
            found[spec.name] = (size, *(1 if length is None else length for length in own[1:]))
    return found
