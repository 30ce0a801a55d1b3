"""Tasks that train."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from nnpipe.codegen import fields
from nnpipe.codegen.fields import gives, setting, takes
from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.problems import Problem
from nnpipe.codegen.syntax import assign, attribute, call, literal
from nnpipe.codegen.task import Task
from nnpipe.codegen.tasks.models import graph_of
from nnpipe.codegen.writer import Writer
from nnpipe.layers.activations import Activation
from nnpipe.layers.graph import Graph

LOSSES = {
    "cross_entropy": "SparseCategoricalCrossentropy",
    "binary_cross_entropy": "BinaryCrossentropy",
    "mean_squared_error": "MeanSquaredError",
    "mean_absolute_error": "MeanAbsoluteError",
    "huber": "Huber",
}
"""Losses, with their class in Keras."""
_SCORED = ("cross_entropy", "binary_cross_entropy")
METRICS = {
    "accuracy": "SparseCategoricalAccuracy",
    "binary_accuracy": "BinaryAccuracy",
    "mean_squared_error": "MeanSquaredError",
    "mean_absolute_error": "MeanAbsoluteError",
}
"""Metrics, with their class in Keras."""
OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
"""Optimisers, with their class in both frameworks."""
LARGEST = ("accuracy", "binary_accuracy")
"""Metrics that are the better the larger they are."""


class Compile(Task):
    """Choose what a network is trained with: a loss, an optimiser, metrics."""

    task = "compile"
    model: str = takes("network", help="the network")
    loss: str = setting(fields.one_of(*LOSSES), ", ".join(LOSSES))
    optimiser: str = setting(fields.one_of(*OPTIMISERS), ", ".join(OPTIMISERS), "adam")
    learning_rate: float = setting(fields.number(0), "the optimiser's step", 1e-3)
    momentum: float = setting(fields.number(0, 1), "for sgd", 0.0)
    weight_decay: float = setting(fields.number(0), "share of weights that each step takes away", 0.0)
    metrics: tuple[str, ...] = setting(fields.several_of(*METRICS), "besides the loss: " + ", ".join(METRICS), ())
    compiled: str = gives("compiled", "the network with what it is trained with")

    def problems(self, script: ScriptGenerator) -> Iterable[Problem]:
        """Momentum is for sgd; the network has one output."""
        if self.momentum and self.optimiser != "sgd":
            yield Problem("argument", f"{self.name}.momentum", f"is for sgd, not for {self.optimiser}")
        graph = graph_of(script, self.model)
        if graph is not None and len(graph.outputs) != 1:
            message = f"is trained with one loss, and has {len(graph.outputs)} outputs"
            yield Problem("argument", f"{self.name}.model", f"{self.model} {message}")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Make the three."""
        rate = writer.argument(self, "learning_rate", float(self.learning_rate), "the optimiser's step")
        graph = graph_of(writer.generator, self.model)
        scored = graph is not None and gives_probabilities(graph)
        model, target = writer.variable(self.model), writer.variable(self.compiled)
        return (self._torch if writer.framework == "pytorch" else self._keras)(writer, model, target, rate, scored)

    def _torch(self, writer: Writer, model: ast.expr, target: ast.expr, rate: ast.expr, scored: bool) -> list[ast.stmt]:
        more = {"momentum": literal(float(self.momentum))} if self.momentum else {}
        if self.weight_decay or self.optimiser == "adamw":
            more["weight_decay"] = literal(float(self.weight_decay))
        kind = f"torch.optim.{OPTIMISERS[self.optimiser]}"
        optimiser = call(kind, call(attribute(model, "parameters")), lr=rate, **more)
        loss = self.loss + ("_of_probabilities" if scored and self.loss in _SCORED else "")
        metrics: dict[str, ast.expr] = {}
        for metric in self.metrics:
            logits = metric == "binary_accuracy" and not scored
            metrics[metric] = writer.helper(metric + ("_of_logits" if logits else ""))
        parts = {"network": model, "loss": writer.helper(loss), "optimiser": optimiser, "metrics": _dict(metrics)}
        return [assign(target, _dict(parts))]

    def _keras(self, writer: Writer, model: ast.expr, target: ast.expr, rate: ast.expr, scored: bool) -> list[ast.stmt]:
        more = {"momentum": literal(float(self.momentum))} if self.momentum else {}
        if self.weight_decay or self.optimiser == "adamw":
            more["weight_decay"] = literal(float(self.weight_decay))
        optimiser = call(f"keras.optimizers.{OPTIMISERS[self.optimiser]}", learning_rate=rate, **more)
        logits = {"from_logits": literal(True)} if self.loss in _SCORED and not scored else {}
        loss = call(f"keras.losses.{LOSSES[self.loss]}", **logits)
        metrics: list[ast.expr] = []
        for metric in self.metrics:
            zero = {"threshold": literal(0.0)} if metric == "binary_accuracy" and not scored else {}
            metrics.append(call(f"keras.metrics.{METRICS[metric]}", name=literal(metric), **zero))
        named = {"optimizer": optimiser, "loss": loss, "metrics": ast.List(metrics, ast.Load())}
        compiled: ast.stmt = ast.Expr(call(attribute(model, "compile"), **named))
        return [compiled, assign(target, model)]


class Train(Task):
    """Train a network; its figures are printed after each epoch."""

    task = "train"
    compiled: str = takes("compiled", help="the network with what it is trained with")
    data: str = takes("data", help="samples")
    callbacks: tuple[str, ...] = takes("callback", help="what looks on", many=True)
    epochs: int = setting(fields.integer(), "how often each sample is used")
    batch_size: int = setting(fields.integer(), "samples in each step", 32)
    model: str = gives("network", "the trained network")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Train."""
        epochs = writer.argument(self, "epochs", self.epochs, "how often each sample is used")
        size = writer.argument(self, "batch_size", self.batch_size, "samples in each step")
        callbacks = ast.List([writer.variable(item) for item in self.callbacks], ast.Load())
        compiled, data = writer.variable(self.compiled), writer.variable(self.data)
        target = writer.variable(self.model)
        if writer.framework == "pytorch":
            made = call(writer.helper("train"), compiled, data, epochs, size, callbacks)
            return [assign(target, made)]
        helper = writer.helper("train")
        return [assign(target, call(helper, compiled, data, epochs, size, callbacks))]


def gives_probabilities(graph: Graph) -> bool:
    """Whether a network ends with a softmax or a sigmoid; otherwise it gives logits."""
    layer = graph.layers[graph.outputs[0].layer]
    activation = getattr(layer, "activation", None)
    ends = isinstance(activation, Activation) and activation.name in ("softmax", "sigmoid")
    return ends or type(layer).__name__ == "Softmax"


def _dict(parts: dict[str, ast.expr]) -> ast.expr:
    return ast.Dict([literal(key) for key in parts], list(parts.values()))
