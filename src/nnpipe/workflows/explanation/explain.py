"""Explaining what a network costs, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.analysis.operation_costs import graph_cost
from nnpipe.core.argument_checks import check_call
from nnpipe.core.graph import Graph
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.workflows.explanation.explain_result import ExplainResult
from nnpipe.workflows.user_inputs.data import inputs_of
from nnpipe.workflows.user_inputs.inputs import opened_by, working_folder


def explain(model: Any, *, shapes: Mapping[str, Sequence[int]] | None = None, data: Any = None) -> ExplainResult:
    """Return what each operation of a network costs: arithmetic, memory traffic, parameters and live memory.

    All figures follow from the network's graph, and are the same in every framework.  Nothing is measured.

    Parameters
    ----------
    model
        The path of a model file (``.onnx``, ``.tflite``, ``.keras``, ``.h5``, ``.pt2``), an ``nn.Module`` of PyTorch,
        a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, a wrapper, or ``(wrapper, path)``.
    shapes
        The shape of inputs by name, such as ``{"image": (8, 224, 224, 3)}``; free axes of the others get the length 1.
    data
        Samples with which an ``nn.Module`` is traced; nothing else needs them.

    Returns
    -------
    ExplainResult
        The figures; ``show()`` prints them.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged, or its format is not known.
    ConfigError
        If an input does not exist, or a shape does not fit it.
    NotSupported
        If the model does not show its graph.

    Examples
    --------
    A network that is one product of 6 values with 6 x 4 weights:

    >>> found = explain("model.onnx")
    >>> found.macs, found.cost.parameters
    (24, 28)
    """
    check_call(explain, locals())
    if isinstance(model, LiveModel):
        return _explained(type(model.wrapper).__name__, model, shapes)
    if isinstance(model, ModelWrapper):
        with model.open() as live:
            return _explained(type(model).__name__, live, shapes)
    with working_folder() as folder:
        samples = None if data is None else inputs_of(data)
        wrapper, path = opened_by(model, folder, samples)[0]
        title = Path(path).name if isinstance(model, (str, Path, tuple)) else type(model).__name__
        with wrapper.open(path) as live:
            return _explained(title, live, shapes)


def _explained(title: str, live: LiveModel, shapes: Mapping[str, Sequence[int]] | None) -> ExplainResult:
    graph: Graph = live.get_sized_graph(shapes or {})
    return ExplainResult(title, tuple(graph.tensors[name] for name in graph.inputs), graph_cost(graph))
