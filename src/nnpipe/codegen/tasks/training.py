"""Tasks that train."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from nnpipe.codegen.fields import gives, takes
from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.problems import ScriptProblem
from nnpipe.codegen.syntax import assign, attribute, call, literal
from nnpipe.codegen.task import Task
from nnpipe.codegen.tasks.data import inputs_of
from nnpipe.codegen.tasks.losses import LOSSES, METRICS, Judgement, faults_of
from nnpipe.codegen.tasks.models import graph_of
from nnpipe.codegen.writer import Writer
from nnpipe.core.arguments import argument

OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
"""Optimisers, with their class in both frameworks."""


class Compile(Task):
    """Choose what a network is trained with: a loss, an optimiser, metrics."""

    task = "compile"
    model: str = takes("network", help="the network")
    loss: str | None = argument(
        None, help=f"{', '.join(LOSSES)}; left out where the network's output carries one", choices=tuple(LOSSES)
    )
    optimiser: str = argument("adam", help=", ".join(OPTIMISERS), choices=tuple(OPTIMISERS))
    learning_rate: float = argument(1e-3, help="the optimiser's step", minimum=0)
    momentum: float = argument(0.0, help="for sgd", minimum=0, maximum=1)
    weight_decay: float = argument(
        0.0, help="how strongly weights are drawn to zero, in the way of the framework's optimiser", minimum=0
    )
    metrics: tuple[str, ...] = argument((), help="besides the loss: " + ", ".join(METRICS), choices=tuple(METRICS))
    compiled: str = gives("compiled", "the network with what it is trained with")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Momentum is for sgd; the network has one output, and one loss."""
        if self.momentum and self.optimiser != "sgd":
            yield ScriptProblem("argument", f"{self.name}.momentum", f"is for sgd, not for {self.optimiser}")
        graph = graph_of(script, self.model)
        if graph is not None and len(graph.outputs) != 1:
            message = f"is trained with one loss, and has {len(graph.outputs)} outputs"
            yield ScriptProblem("argument", f"{self.name}.model", f"{self.model} {message}")
            return
        metrics = self.metrics if isinstance(self.metrics, tuple) else ()
        for where, fault in faults_of(graph, self.loss, metrics):
            yield ScriptProblem("argument", f"{self.name}.{where}", fault)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Make the three."""
        rate = writer.argument(self, "learning_rate", float(self.learning_rate), "the optimiser's step")
        judgement = Judgement.of(graph_of(writer.generator, self.model), self.loss, self.metrics)
        more = {"momentum": literal(float(self.momentum))} if self.momentum else {}
        if self.weight_decay or self.optimiser == "adamw":
            more["weight_decay"] = literal(float(self.weight_decay))
        model, target = writer.variable(self.model), writer.variable(self.compiled)
        kind = OPTIMISERS[self.optimiser]
        if writer.framework == "pytorch":
            optimiser = call(f"torch.optim.{kind}", call(attribute(model, "parameters")), lr=rate, **more)
            loss, metrics = judgement.in_torch(writer)
            parts = {"network": model, "loss": loss, "optimiser": optimiser, "metrics": _dict(metrics)}
            return [assign(target, _dict(parts))]
        optimiser = call(f"keras.optimizers.{kind}", learning_rate=rate, **more)
        named = {"optimizer": optimiser, **judgement.in_keras(writer)}
        made: list[ast.stmt] = [ast.Expr(call(attribute(model, "compile"), **named))]
        if judgement.loss not in LOSSES:
            made.append(ast.Expr(call(writer.helper("leave_out_loss"), model)))
        return [*made, assign(target, model)]


class Train(Task):
    """Train a network; its figures are printed after each epoch."""

    task = "train"
    compiled: str = takes("compiled", help="the network with what it is trained with")
    data: str = takes("data", help="samples")
    callbacks: tuple[str, ...] = takes("callback", help="what looks on", many=True)
    epochs: int = argument(help="how often each sample is used", minimum=1)
    batch_size: int = argument(32, help="samples in each step", minimum=1)
    model: str = gives("network", "the trained network")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Samples have as many inputs as the network."""
        graph, count = graph_of(script, self.compiled), inputs_of(script, self.data)
        if graph is not None and count and count != len(graph.inputs):
            message = f"{self.data} has {count} inputs a sample, and the network takes {len(graph.inputs)}"
            yield ScriptProblem("argument", f"{self.name}.data", message)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Train."""
        epochs = writer.argument(self, "epochs", self.epochs, "how often each sample is used")
        size = writer.argument(self, "batch_size", self.batch_size, "samples in each step")
        callbacks = ast.List([writer.variable(item) for item in self.callbacks], ast.Load())
        compiled, data = writer.variable(self.compiled), writer.variable(self.data)
        target = writer.variable(self.model)
        return [assign(target, call(writer.helper("train"), compiled, data, epochs, size, callbacks))]


def _dict(parts: dict[str, ast.expr]) -> ast.expr:
    return ast.Dict([literal(key) for key in parts], list(parts.values()))
