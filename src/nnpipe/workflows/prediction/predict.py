"""Predicting how long networks take that are not built yet, or that this machine does not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.kernel_table import KernelTable
from nnpipe.analysis.kernels import FusedKernel, build_kernels, split_into_steps
from nnpipe.analysis.operation_costs import compute_graph_cost
from nnpipe.core.argument_checks import check_call
from nnpipe.core.bounded_json import read_object
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.graph import Graph
from nnpipe.core.live_model import LiveModel
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.operations import build_operation_graph
from nnpipe.measuring.host import get_machine_folder
from nnpipe.modelwrappers.files.mimic import read_file_graph
from nnpipe.workflows.prediction.predict_result import PredictedKernel, Prediction, PredictResult

_LARGEST, _MOST_VALUES = 16 << 20, 2_000_000


def predict(
    models: Any,
    kernels: KernelTable | str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> PredictResult:
    """Return how long networks take in a runtime on a machine, by the kernels that were measured
    there.

    The network is not run, and need not be trained or built.  Its operations are put together as
    the runtime fuses them; each such kernel is estimated, and the sum corrected by networks that
    were measured as a whole.

    Parameters
    ----------
    models
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), or of a
        network that is declared layer by layer (``.yaml``, ``.json``); such a network from
        :func:`nnpipe.layers.network`; a graph of operations
        (:meth:`~nnpipe.LiveModel.get_sized_graph`); or a list of them.
    kernels
        What :func:`nnpipe.learn_kernels` returned, or a file of it from any machine.
    shapes
        The shape of inputs by name; free axes of the others get the length 1.

    Returns
    -------
    PredictResult
        The time of each network with its interval, and of each of its kernels; ``show()`` prints
        them.

    Raises
    ------
    ArtifactError
        If a file is missing or damaged.
    ConfigError
        If there is no model, or a shape does not fit.
    NotSupported
        If a model does not show its graph.

    Examples
    --------
    >>> import nnpipe
    >>> found = predict("model.onnx", nnpipe.learn_kernels(kernels=40, seconds=1))
    >>> low, high = found.predictions[0].interval
    >>> low <= found.predictions[0].ns <= high
    True
    """
    check_call(predict, locals())
    table = kernels if isinstance(kernels, KernelTable) else read_kernels(kernels)
    given = list(models) if isinstance(models, (list, tuple)) else [models]
    if not given:
        raise ConfigError("predict: no model was given")
    wanted = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    titles, steps = [], []
    for number, each in enumerate(given):
        title, graph = _open_model(each, number, wanted)
        titles.append(title)
        steps.append(_list_kernels(graph, table))
    return PredictResult(table, predict_networks(titles, steps, table))


def predict_networks(
    titles: Sequence[str], steps: Sequence[Sequence[FusedKernel]], table: KernelTable
) -> tuple[Prediction, ...]:
    """Return the predictions for networks whose kernels are known; equal kernels are estimated
    once.
    """
    places: dict[Any, int] = {}
    different: list[FusedKernel] = []
    for each in (kernel for kernels in steps for kernel in kernels):
        if places.setdefault((each.kind, each.sizes), len(different)) == len(different):
            different.append(each)
    times = table.times(different) * table.scale
    reasons = [table.outside(each) for each in different]
    intervals = {
        kind: table.get_kernel_interval(kind) for kind in {each.kind for each in different}
    }
    found = []
    for title, kernels in zip(titles, steps, strict=True):
        rows = []
        for kernel in kernels:
            place = places[kernel.kind, kernel.sizes]
            ns = float(times[place]) if kernel.kind else None
            rows.append(PredictedKernel(kernel, ns, intervals[kernel.kind], reasons[place]))
        known = np.array([row.ns for row in rows if row.ns is not None])
        total = table.call_ns + float(known.sum())
        equal = np.array(
            [places[kernel.kind, kernel.sizes] for kernel in kernels if kernel.kind], np.int64
        )
        low, high = table.compute_network_interval(np.bincount(equal, times[equal]))
        alone = table.predict_from_macs(sum(kernel.macs for kernel in kernels))
        found.append(
            Prediction(title, tuple(rows), table.call_ns, total, (low * total, high * total), alone)
        )
    return tuple(found)


def read_kernels(path: str | Path) -> KernelTable:
    """Read the kernels that were measured on this machine or another one.

    Raises
    ------
    ArtifactError
        If the file is missing, or holds something else; the message names it.

    Examples
    --------
    >>> import nnpipe
    >>> nnpipe.learn_kernels(kernels=40, seconds=1).save("kernels.json")
    >>> read_kernels("kernels.json").threads
    1
    """
    check_call(read_kernels, locals())
    path = Path(path)
    try:
        return KernelTable.from_json(read_object(path, _LARGEST, _MOST_VALUES))
    except ArtifactError as error:
        told = str(error)
        raise ArtifactError(told if told.startswith(str(path)) else f"{path}: {told}") from None


def get_kernels_file(
    runtime: str, threads: int, precision: str = "float32", folder: Path | None = None
) -> Path:
    """Return the file for the kernels of a runtime in the folder of a machine, by default of
    this one.
    """
    many = f"{threads}-thread{'' if threads == 1 else 's'}" if threads else "all-threads"
    return (
        folder or get_machine_folder(Path.home())
    ) / f"kernels-{runtime}-{precision}-{many}.json"


def _list_kernels(graph: Graph, table: KernelTable) -> tuple[FusedKernel, ...]:
    cost = compute_graph_cost(graph)
    return build_kernels(graph, cost, split_into_steps(graph, table.patterns, cost.folded))


def _open_model(
    model: Any, number: int, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[str, Graph]:
    """Return a title and the graph of a model."""
    if isinstance(model, Graph):
        return f"network {number + 1}", model
    if isinstance(model, NetworkGraph):
        return model.name, build_operation_graph(model, shapes)
    if isinstance(model, LiveModel):
        return type(model.wrapper).__name__, model.get_sized_graph(shapes)
    if not isinstance(model, (str, Path)):
        raise ConfigError(
            f"predict: takes paths of model files, networks and graphs, not {type(model).__name__}"
        )
    return Path(model).name, read_file_graph(Path(model), shapes)
