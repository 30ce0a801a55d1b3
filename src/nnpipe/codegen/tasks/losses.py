"""The losses and metrics of scripts, named by a task or taken from an output of the network."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnpipe.codegen.syntax import call, literal, name
from nnpipe.codegen.writer import Writer
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.torch.to_trainer import judged_layers, learnt_outputs
from nnpipe.layers.vocabulary import outputs
from nnpipe.layers.vocabulary.activations import ActivationFunction

LOSSES = {
    "cross_entropy": "SparseCategoricalCrossentropy",
    "binary_cross_entropy": "BinaryCrossentropy",
    "mean_squared_error": "MeanSquaredError",
    "mean_absolute_error": "MeanAbsoluteError",
    "huber": "Huber",
}
"""Losses with their classes in Keras."""
_SCORED = ("cross_entropy", "binary_cross_entropy")
METRICS = {
    "accuracy": "SparseCategoricalAccuracy",
    "binary_accuracy": "BinaryAccuracy",
    "mean_squared_error": "MeanSquaredError",
    "mean_absolute_error": "MeanAbsoluteError",
}
"""Metrics with their classes in Keras."""
LARGEST = ("accuracy", "binary_accuracy")
"""Metrics of which larger values are better."""
_OF_OUTPUTS: Mapping[type[outputs.JudgedOutput], tuple[str, ...]] = {
    outputs.OutputClassification: ("accuracy",),
    outputs.OutputClassificationBinary: ("binary_accuracy",),
    outputs.OutputRegression: ("mean_squared_error", "mean_absolute_error"),
    outputs.OutputSegmentation: (),
    outputs.OutputTriplets: (),
}
"""Output layers that a script can train with, and the metrics that fit them."""
_DISTANCES = {"squared": "mean_squared_error", "absolute": "mean_absolute_error", "huber": "huber"}


@dataclass(frozen=True)
class Judgement:
    """The loss and the metrics of a network.

    Attributes
    ----------
    loss
        A key of :data:`LOSSES`, or the name of a function in :mod:`nnpipe.codegen.runtime` for other losses.
    metrics
        Keys of :data:`METRICS`.
    settings
        Arguments of that function besides outputs and targets.
    scale
        Factor of the loss.
    scored
        Whether the outputs of a classifier are probabilities; otherwise they are logits.
    top
        Numbers of highest scores among which the correct class counts; each one is a further metric.
    """

    loss: str
    metrics: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    scored: bool = False
    top: tuple[int, ...] = ()

    @classmethod
    def of(cls, graph: NetworkGraph | None, loss: str | None, metrics: Sequence[str]) -> Judgement:
        """Return the loss and metrics of a network; without a named loss, the output layer determines the loss."""
        if loss is not None:
            return cls(loss, tuple(metrics), scored=graph is not None and gives_probabilities(graph))
        assert graph is not None  # faults_of reports a missing graph
        (output,) = learnt_outputs(graph).values()
        title, settings = _loss_of(output)
        top = output.top if isinstance(output, outputs.OutputClassification) else ()
        return cls(title, tuple(metrics), settings, output.scale, top=top)

    def in_torch(self, writer: Writer) -> tuple[ast.expr, dict[str, ast.expr]]:
        """Return the loss and the metrics for a script of PyTorch, as expressions of functions."""
        loss = _with(writer, self.loss + "_of_probabilities" * (self.scored and self.loss in _SCORED), self.settings)
        if self.scale != 1:
            loss = call(writer.helper("scaled"), loss, literal(self.scale))
        metrics: dict[str, ast.expr] = {}
        for metric in self.metrics:
            logits = metric == "binary_accuracy" and not self.scored
            metrics[metric] = writer.helper(metric + "_of_logits" * logits)
        for rank in self.top:
            metrics[f"top{rank}"] = _with(writer, "top_accuracy", {"rank": rank})
        return loss, metrics

    def in_keras(self, writer: Writer) -> dict[str, ast.expr]:
        """Return the loss and the metrics for a script of Keras, as arguments of ``compile``."""
        if self.loss in LOSSES:
            logits = {"from_logits": literal(True)} if self.loss in _SCORED and not self.scored else {}
            loss: ast.expr = call(f"keras.losses.{LOSSES[self.loss]}", **logits)
        else:
            loss = _with(writer, self.loss, self.settings)
        weights: dict[str, ast.expr] = {} if self.scale == 1 else {"loss_weights": literal([self.scale])}
        metrics: list[ast.expr] = []
        for metric in self.metrics:
            zero = {"threshold": literal(0.0)} if metric == "binary_accuracy" and not self.scored else {}
            metrics.append(call(f"keras.metrics.{METRICS[metric]}", name=literal(metric), **zero))
        for rank in self.top:
            kind = "keras.metrics.SparseTopKCategoricalAccuracy"
            metrics.append(call(kind, k=literal(rank), name=literal(f"top{rank}")))
        return {"loss": loss, **weights, "metrics": ast.List(metrics, ast.Load())}


def faults_of(graph: NetworkGraph | None, loss: str | None, metrics: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the reasons why a network has no valid loss and metrics: the argument of ``compile``, and the fault."""
    carried = [] if graph is None else judged_layers(graph)
    if loss is not None:
        if carried:
            yield "loss", f"the output {carried[0][0]} has its own loss; remove this loss or that output"
        return
    if graph is None:
        yield "loss", "is missing, and which network is trained is not known before the script runs"
        return
    try:
        (output,) = learnt_outputs(graph).values()
    except ConfigError as error:
        yield "loss", f"is missing: name one, or use an output layer that has one ({error})"
        return
    if type(output) not in _OF_OUTPUTS:
        yield "model", f"the output {output.name} has no loss that scripts can train with"
        return
    if output.weights is not None:
        yield "model", f"{output.name} weights samples by {output.weights!r}, which scripts do not read; remove it"
    for metric in metrics:
        if metric not in _OF_OUTPUTS[type(output)]:
            there = ", ".join(_OF_OUTPUTS[type(output)]) or "none"
            yield "metrics", f"{metric} does not fit {type(output).__name__}, which has: {there}"


def gives_probabilities(graph: NetworkGraph) -> bool:
    """Return whether the first output of a network is a softmax or a sigmoid, and so gives probabilities."""
    layer = graph.layers[graph.outputs[0].layer]
    activation = getattr(layer, "activation", None)
    ends = isinstance(activation, ActivationFunction) and activation.name in ("softmax", "sigmoid")
    return ends or type(layer).__name__ == "Softmax"


def _loss_of(output: outputs.JudgedOutput) -> tuple[str, dict[str, Any]]:
    """Return the loss of an output layer, and its settings."""
    if isinstance(output, outputs.OutputClassification):
        if output.label_smoothing:
            return "smoothed_cross_entropy", {"label_smoothing": output.label_smoothing}
        return "cross_entropy", {}
    if isinstance(output, outputs.OutputClassificationBinary):
        if output.positive_weight != 1:
            return "weighted_binary_cross_entropy", {"positive_weight": output.positive_weight}
        return "binary_cross_entropy", {}
    if isinstance(output, outputs.OutputSegmentation):
        titles = {"cross_entropy": "cross_entropy_of_places", "dice": "dice"}
        first = output.data_format == "channels_first"
        return titles[output.criterion], {"ignore": output.ignore, "channels_first": first}
    if isinstance(output, outputs.OutputTriplets):
        return "triplets", {"margin": output.margin}
    assert isinstance(output, outputs.OutputRegression)
    return _DISTANCES[output.distance], {}


def _with(writer: Writer, function: str, settings: Mapping[str, Any]) -> ast.expr:
    """Return a function of the script, with ``partial`` for its settings if there are any."""
    helper = writer.helper(function)
    if not settings:
        return helper
    return call(name("partial"), helper, **{key: literal(value) for key, value in settings.items()})
