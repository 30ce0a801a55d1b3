"""Tasks that prepare a training and train."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from nnpipe.codegen.fields import gives, takes
from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.problems import ScriptProblem
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.syntax import assign, attribute, call, literal
from nnpipe.codegen.tasks.data import inputs_of
from nnpipe.codegen.tasks.losses import LOSSES, METRICS, Judgement, faults_of
from nnpipe.codegen.tasks.models import graph_of
from nnpipe.codegen.writer import Writer
from nnpipe.core.arguments import argument

OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
"""Optimisers with the name of their class, which is the same in both frameworks."""


class Compile(ScriptTask):
    """Choose the loss, the optimiser and the metrics of a training."""

    task = "compile"
    model: str = takes("network", help="the network")
    loss: str | None = argument(
        None, help=f"{', '.join(LOSSES)}; left out if the network's output layer has a loss", choices=tuple(LOSSES)
    )
    optimiser: str = argument("adam", help=", ".join(OPTIMISERS), choices=tuple(OPTIMISERS))
    learning_rate: float = argument(1e-3, help="learning rate of the optimiser", minimum=0)
    momentum: float = argument(0.0, help="momentum of sgd", minimum=0, maximum=1)
    weight_decay: float = argument(0.0, help="weight decay, as the framework's optimiser defines it", minimum=0)
    metrics: tuple[str, ...] = argument(
        (), help="figures to compute besides the loss: " + ", ".join(METRICS), choices=tuple(METRICS)
    )
    compiled: str = gives("compiled", "the network with its loss, optimiser and metrics")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if momentum is set for another optimiser, and if the loss and metrics do not fit."""
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
        """Return the statements that create the loss, the optimiser and the metrics."""
        rate = writer.argument(self, "learning_rate", float(self.learning_rate), "learning rate of the optimiser")
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


class Train(ScriptTask):
    """Train a network and print its figures after each epoch."""

    task = "train"
    compiled: str = takes("compiled", help="the network with its loss, optimiser and metrics")
    data: str = takes("data", help="samples")
    callbacks: tuple[str, ...] = takes("callback", help="callbacks of the training", many=True)
    epochs: int = argument(help="number of passes over the training samples", minimum=1)
    batch_size: int = argument(32, help="samples in each step", minimum=1)
    model: str = gives("network", "the trained network")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the samples do not have as many inputs as the network."""
        graph, count = graph_of(script, self.compiled), inputs_of(script, self.data)
        if graph is not None and count and count != len(graph.inputs):
            message = f"{self.data} has {count} inputs per sample, but the network takes {len(graph.inputs)}"
            yield ScriptProblem("argument", f"{self.name}.data", message)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statement that trains the network."""
        epochs = writer.argument(self, "epochs", self.epochs, "number of passes over the training samples")
        size = writer.argument(self, "batch_size", self.batch_size, "samples in each step")
        callbacks = ast.List([writer.variable(item) for item in self.callbacks], ast.Load())
        compiled, data = writer.variable(self.compiled), writer.variable(self.data)
        target = writer.variable(self.model)
        return [assign(target, call(writer.helper("train"), compiled, data, epochs, size, callbacks))]


def _dict(parts: dict[str, ast.expr]) -> ast.expr:
    return ast.Dict([literal(key) for key in parts], list(parts.values()))
