"""Explaining what a network costs, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.analysis.layer_times import LayerTimes
from nnpipe.analysis.operation_costs import compute_graph_cost
from nnpipe.analysis.roofline import Ceilings
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Graph, Shapes, generate_random_inputs
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import create_component, find
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.file_formats import format_of
from nnpipe.workflows.candidates.model_files import read_artifact
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.explanation.explain_result import ExplainResult
from nnpipe.workflows.explanation.layer_errors import LayerErrors, compute_layer_errors
from nnpipe.workflows.explanation.layer_times import compute_layer_times
from nnpipe.workflows.explanation.profile_apart import (
    find_graph_wrapper,
    measure_memory,
    open_graph_model,
)
from nnpipe.workflows.file_facts import compute_total_bytes
from nnpipe.workflows.isolation.limits import call_limited, limit_process
from nnpipe.workflows.user_inputs.data import convert_inputs
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs, import_model
from nnpipe.workflows.verification.binding import match_tensors
from nnpipe.workflows.verification.claims import (
    get_declared_claims,
    infer_claims,
    read_artifact_description,
)
from nnpipe.workflows.verification.compare_outputs import prepare_samples


def explain(
    model: Any,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Any = None,
    runtime: str | Runtime | None = None,
    runs: int = 30,
    against: Any = None,
    samples: int = 64,
    ceilings: Ceilings | None = None,
    memory: bool = False,
) -> ExplainResult:
    """Return what each operation of a network costs: arithmetic, memory traffic, parameters and
    live memory.

    These figures follow from the network's graph, and are the same in every framework.  With a
    runtime, the time of each layer is measured as well.

    Parameters
    ----------
    model
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an
        ``nn.Module`` of PyTorch, a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, a
        wrapper, or ``(wrapper, path)``.
    shapes
        The shape of inputs by name, such as ``{"image": (8, 224, 224, 3)}``; free axes of the
        others get the length 1.
    data
        Samples on which the model is compared with ``against``: arrays, or a
        :class:`~nnpipe.core.dataset.Dataset`, whose test split is used; and with which an
        ``nn.Module`` is traced.
    runtime
        The runtime, or its name, that runs the file and whose steps are timed; None to measure
        nothing.  A compiled file that does not show its graph is explained by the graph of the file
        that it was made from.
    runs
        The number of runs to time.
    against
        The model that it was made from, in a form of ``model``; None to compare nothing.  The error
        of each operation alone is measured, without what it inherits: it is computed from the
        model's values as the source does it.
    samples
        The number of samples to compare on.
    ceilings
        What the machine can do (:func:`nnpipe.roofline`), to tell how close each timed layer comes
        to it.
    memory
        Whether the memory that the runtime takes is measured as well, in a process of its own.

    Returns
    -------
    ExplainResult
        The figures; ``show()`` prints them.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged, or its format is not known.
    ConfigError
        If an input does not exist, a shape does not fit it, or memory is to be measured without a
        runtime.
    NotSupported
        If the model does not show its graph, or the runtime gives no times of operations.

    Examples
    --------
    A network that is one product of 6 values with 6 x 4 weights:

    >>> found = explain("model.onnx")
    >>> found.macs, found.cost.parameters
    (24, 28)
    """
    check_call(explain, locals())
    check_range("explain: runs", runs, 2)
    check_range("explain: samples", samples, 1)
    if against is not None and data is None:
        raise ConfigError("explain: comparing it with its source needs samples: give data")
    made = find(runtime, Runtime)() if isinstance(runtime, str) else runtime
    if made is not None:
        made.check_installed()
    elif memory or ceilings is not None:
        raise ConfigError(
            "explain: the memory and the share of the roof are those in a runtime: name one"
        )
    wanted = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    for file in (model, against):
        if isinstance(file, (str, Path)) and Path(file).is_file():
            _check_opens(
                Path(file), wanted if file is model else {}, made if file is model else None
            )
    with create_working_folder() as folder:
        if made is not None or against is not None:
            path = _get_model_file(model)
            with open_graph_model(path) as live:
                found = _explain_graph(path.name, live, wanted)
                if made is not None:
                    found = replace(
                        found,
                        times=_measure_layer_times(path, made, live, wanted, runs),
                        ceilings=ceilings,
                    )
                if against is not None:
                    found = replace(
                        found, errors=_compare_layers(path, live, against, data, samples, folder)
                    )
            return (
                found
                if made is None or not memory
                else replace(found, memory=measure_memory(path, made, wanted))
            )
        if isinstance(model, LiveModel):
            return _explain_graph(type(model.wrapper).__name__, model, wanted)
        if isinstance(model, ModelWrapper):
            with model.open() as live:
                return _explain_graph(type(model).__name__, live, wanted)
        traced = None if data is None or isinstance(data, Dataset) else convert_inputs(data)
        wrapper, path = import_model(model, folder, traced)[0]
        title = Path(path).name if isinstance(model, (str, Path, tuple)) else type(model).__name__
        with wrapper.open(path) as live:
            return _explain_graph(title, live, wanted)


def _check_opens(path: Path, shapes: Shapes, runtime: Runtime | None) -> None:
    """Raise :class:`ArtifactError` if opening a file, as is done below, crashes or exceeds its
    limits.
    """
    wrapper, _ = find_graph_wrapper(path)
    request = {
        "path": str(path),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "runtime": None if runtime is None else runtime.describe(),
    }
    call_limited(f"{__name__}:open_here", path, request, compute_total_bytes(wrapper, path))


def open_here(request: Mapping[str, Any]) -> None:
    """Open a request's file and look at its graph, and load it in its runtime if there is one,
    in this process.
    """
    path = Path(request["path"])
    wrapper, here = find_graph_wrapper(path)
    limit_process(request["size"], wrapper)
    with wrapper.open(here) as live:
        live.get_sized_graph({name: tuple(shape) for name, shape in request["shapes"].items()})
    if request["runtime"] is not None:
        runtime: Runtime = create_component(request["runtime"], Runtime)
        runtime.import_framework()
        runtime.load(read_artifact(path, format_of(path), runtime)).close()


def _explain_graph(title: str, live: LiveModel, shapes: Shapes) -> ExplainResult:
    graph: Graph = live.get_sized_graph(shapes)
    return ExplainResult(
        title, tuple(graph.tensors[name] for name in graph.inputs), compute_graph_cost(graph)
    )


def _get_model_file(model: Any) -> Path:
    """Return the model's file, which a runtime is to load."""
    if isinstance(model, (str, Path)):
        return Path(model)
    if isinstance(model, Artifact):
        return model.path
    raise ConfigError(
        "explain: a runtime loads a file: give the path of one, or export the model first"
    )


def _measure_layer_times(
    path: Path, runtime: Runtime, live: LiveModel, shapes: Shapes, runs: int
) -> LayerTimes:
    """Return the times of a file's layers in a runtime, on random inputs."""
    with runtime.load(read_artifact(path, format_of(path), runtime)) as session:
        times = session.profile(generate_random_inputs(session.io, shapes), runs)
    return compute_layer_times(type(runtime).__name__, live.get_sized_graph(shapes), times)


def _compare_layers(
    path: Path, live: LiveModel, against: Any, data: Any, samples: int, folder: Path
) -> LayerErrors:
    """Return the errors of a model against its source."""
    taken = data if isinstance(data, Dataset) else convert_inputs(data)
    ready = import_inputs(against, taken, folder, calibration_samples=0)
    (wrapper, source_path), dataset = ready.models[0], ready.dataset
    assert dataset is not None
    prepare_dataset(dataset)
    with wrapper.for_samples(dataset.spec).open(source_path) as source:
        made = read_artifact_description(path)
        claims = (
            None if made is None or made.parent is None else get_declared_claims(made, source_path)
        )
        batches = prepare_samples(source.wrapper, dataset, samples)
        return compute_layer_errors(
            source,
            live,
            match_tensors(source.io, live.io, {}),
            batches,
            claims or infer_claims(live),
        )
