"""Tasks that prepare a training and train."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, ClassVar

from nnpipe.codegen.description import ScriptGenerator
from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, gives, takes
from nnpipe.codegen.syntax import assign, attribute, build_name, call, literal
from nnpipe.codegen.tasks.data import count_inputs
from nnpipe.codegen.tasks.models import find_network
from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_value
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.torch.to_trainer import find_loss_layers, require_loss_outputs
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
_OF_OUTPUTS: Mapping[type[outputs.LossOutput], tuple[str, ...]] = {
    outputs.OutputClassification: ("accuracy",),
    outputs.OutputClassificationBinary: ("binary_accuracy",),
    outputs.OutputRegression: ("mean_squared_error", "mean_absolute_error"),
    outputs.OutputSegmentation: (),
    outputs.OutputTriplets: (),
}
"""Output layers that a script can train with, and the metrics that fit them."""
_DISTANCES = {"squared": "mean_squared_error", "absolute": "mean_absolute_error", "huber": "huber"}


@dataclass(frozen=True)
class LossAndMetrics:
    """The loss and the metrics of a network.

    Attributes
    ----------
    loss
        A key of :data:`LOSSES`, or the name of a function in :mod:`nnpipe.codegen.runtime` for
        other losses.
    metrics
        Keys of :data:`METRICS`.
    settings
        Arguments of that function besides outputs and targets.
    scale
        Factor of the loss.
    scored
        Whether the outputs of a classifier are probabilities; otherwise they are logits.
    top
        Numbers of highest scores among which the correct class counts; each one is a further
        metric.
    """

    loss: str
    metrics: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    scored: bool = False
    top: tuple[int, ...] = ()

    @classmethod
    def from_network(
        cls, graph: NetworkGraph | None, loss: str | None, metrics: Sequence[str]
    ) -> LossAndMetrics:
        """Return the loss and metrics of a network; without a named loss, the output layer
        determines the loss.
        """
        if loss is not None:
            return cls(
                loss, tuple(metrics), scored=graph is not None and has_probability_output(graph)
            )
        assert graph is not None  # check_loss_and_metrics reports a missing graph
        (output,) = require_loss_outputs(graph).values()
        title, settings = _get_loss(output)
        top = output.top if isinstance(output, outputs.OutputClassification) else ()
        return cls(title, tuple(metrics), settings, output.scale, top=top)

    def to_torch_code(self, writer: Writer) -> tuple[ast.expr, dict[str, ast.expr]]:
        """Return the loss and the metrics for a script of PyTorch, as expressions of functions."""
        loss = _with(
            writer,
            self.loss + "_of_probabilities" * (self.scored and self.loss in _SCORED),
            self.settings,
        )
        if self.scale != 1:
            loss = call(writer.require_helper("scale_loss"), loss, literal(self.scale))
        metrics: dict[str, ast.expr] = {}
        for metric in self.metrics:
            logits = metric == "binary_accuracy" and not self.scored
            metrics[metric] = writer.require_helper(metric + "_of_logits" * logits)
        for rank in self.top:
            metrics[f"top{rank}"] = _with(writer, "top_accuracy", {"rank": rank})
        return loss, metrics

    def to_keras_code(self, writer: Writer) -> dict[str, ast.expr]:
        """Return the loss and the metrics for a script of Keras, as arguments of ``compile``."""
        if self.loss in LOSSES:
            logits = (
                {"from_logits": literal(True)} if self.loss in _SCORED and not self.scored else {}
            )
            loss: ast.expr = call(f"keras.losses.{LOSSES[self.loss]}", **logits)
        else:
            loss = _with(writer, self.loss, self.settings)
        weights: dict[str, ast.expr] = (
            {} if self.scale == 1 else {"loss_weights": literal([self.scale])}
        )
        metrics: list[ast.expr] = []
        for metric in self.metrics:
            zero = (
                {"threshold": literal(0.0)}
                if metric == "binary_accuracy" and not self.scored
                else {}
            )
            metrics.append(call(f"keras.metrics.{METRICS[metric]}", name=literal(metric), **zero))
        for rank in self.top:
            kind = "keras.metrics.SparseTopKCategoricalAccuracy"
            metrics.append(call(kind, k=literal(rank), name=literal(f"top{rank}")))
        return {"loss": loss, **weights, "metrics": ast.List(metrics, ast.Load())}


def check_loss_and_metrics(
    graph: NetworkGraph | None, loss: str | None, metrics: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the reasons why a network has no valid loss and metrics: the argument of
    ``compile``, and the fault.
    """
    carried = [] if graph is None else find_loss_layers(graph)
    if loss is not None:
        if carried:
            yield (
                "loss",
                f"the output {carried[0][0]} has its own loss; remove this loss or that output",
            )
        return
    if graph is None:
        yield "loss", "is missing, and which network is trained is not known before the script runs"
        return
    try:
        (output,) = require_loss_outputs(graph).values()
    except ConfigError as error:
        yield "loss", f"is missing: name one, or use an output layer that has one ({error})"
        return
    if type(output) not in _OF_OUTPUTS:
        yield "model", f"the output {output.name} has no loss that scripts can train with"
        return
    if output.weights is not None:
        yield (
            "model",
            f"{output.name} weights samples by {output.weights!r}, which scripts do not read; "
            f"remove it",
        )
    for metric in metrics:
        if metric not in _OF_OUTPUTS[type(output)]:
            there = ", ".join(_OF_OUTPUTS[type(output)]) or "none"
            yield "metrics", f"{metric} does not fit {type(output).__name__}, which has: {there}"


def has_probability_output(graph: NetworkGraph) -> bool:
    """Return whether the first output of a network is a softmax or a sigmoid, and so gives
    probabilities.
    """
    layer = graph.layers[graph.outputs[0].layer]
    activation = getattr(layer, "activation", None)
    ends = isinstance(activation, ActivationFunction) and activation.name in ("softmax", "sigmoid")
    return ends or type(layer).__name__ == "Softmax"


def _get_loss(output: outputs.LossOutput) -> tuple[str, dict[str, Any]]:
    """Return the loss of an output layer, and its settings."""
    if isinstance(output, outputs.OutputClassification):
        if output.label_smoothing:
            return "cross_entropy_with_smoothing", {"label_smoothing": output.label_smoothing}
        return "cross_entropy", {}
    if isinstance(output, outputs.OutputClassificationBinary):
        if output.positive_weight != 1:
            return "binary_cross_entropy_with_weight", {"positive_weight": output.positive_weight}
        return "binary_cross_entropy", {}
    if isinstance(output, outputs.OutputSegmentation):
        titles = {"cross_entropy": "pixel_cross_entropy", "dice": "dice_loss"}
        first = output.data_format == "channels_first"
        return titles[output.criterion], {"ignore": output.ignore, "channels_first": first}
    if isinstance(output, outputs.OutputTriplets):
        return "triplet_loss", {"margin": output.margin}
    assert isinstance(output, outputs.OutputRegression)
    return _DISTANCES[output.distance], {}


def _with(writer: Writer, function: str, settings: Mapping[str, Any]) -> ast.expr:
    """Return a function of the script, with ``partial`` for its settings if there are any."""
    helper = writer.require_helper(function)
    if not settings:
        return helper
    return call(
        build_name("partial"), helper, **{key: literal(value) for key, value in settings.items()}
    )


OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
"""Optimisers with the name of their class, which is the same in both frameworks."""


class Compile(ScriptTask):
    """Choose the loss, the optimiser and the metrics of a training."""

    task = "compile"
    model: str = takes("network", help="the network")
    loss: str | None = argument(
        None,
        help=f"{', '.join(LOSSES)}; left out if the network's output layer has a loss",
        choices=tuple(LOSSES),
    )
    optimiser: str = argument("adam", help=", ".join(OPTIMISERS), choices=tuple(OPTIMISERS))
    learning_rate: float = argument(1e-3, help="learning rate of the optimiser", minimum=0)
    momentum: float = argument(0.0, help="momentum of sgd", minimum=0, maximum=1)
    weight_decay: float = argument(
        0.0, help="weight decay, as the framework's optimiser defines it", minimum=0
    )
    metrics: tuple[str, ...] = argument(
        (),
        help="figures to compute besides the loss: " + ", ".join(METRICS),
        choices=tuple(METRICS),
    )
    compiled: str = gives("compiled", "the network with its loss, optimiser and metrics")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if momentum is set for another optimiser, and if the loss and metrics
        do not fit.
        """
        if self.momentum and self.optimiser != "sgd":
            yield ScriptProblem(
                "argument", f"{self.name}.momentum", f"is for sgd, not for {self.optimiser}"
            )
        graph = find_network(script, self.model)
        if graph is not None and len(graph.outputs) != 1:
            message = f"is trained with one loss, and has {len(graph.outputs)} outputs"
            yield ScriptProblem("argument", f"{self.name}.model", f"{self.model} {message}")
            return
        metrics = self.metrics if isinstance(self.metrics, tuple) else ()
        for where, fault in check_loss_and_metrics(graph, self.loss, metrics):
            yield ScriptProblem("argument", f"{self.name}.{where}", fault)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the loss, the optimiser and the metrics."""
        rate = writer.add_option(
            self, "learning_rate", float(self.learning_rate), "learning rate of the optimiser"
        )
        judgement = LossAndMetrics.from_network(
            find_network(writer.generator, self.model), self.loss, self.metrics
        )
        more = {"momentum": literal(float(self.momentum))} if self.momentum else {}
        if self.weight_decay or self.optimiser == "adamw":
            more["weight_decay"] = literal(float(self.weight_decay))
        model, target = writer.get_variable(self.model), writer.get_variable(self.compiled)
        kind = OPTIMISERS[self.optimiser]
        if writer.framework == "pytorch":
            optimiser = call(
                f"torch.optim.{kind}", call(attribute(model, "parameters")), lr=rate, **more
            )
            loss, metrics = judgement.to_torch_code(writer)
            parts = {
                "network": model,
                "loss": loss,
                "optimiser": optimiser,
                "metrics": _build_dict(metrics),
            }
            return [assign(target, _build_dict(parts))]
        optimiser = call(f"keras.optimizers.{kind}", learning_rate=rate, **more)
        named = {"optimizer": optimiser, **judgement.to_keras_code(writer)}
        made: list[ast.stmt] = [ast.Expr(call(attribute(model, "compile"), **named))]
        if judgement.loss not in LOSSES:
            made.append(ast.Expr(call(writer.require_helper("remove_loss"), model)))
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
        graph, count = find_network(script, self.compiled), count_inputs(script, self.data)
        if graph is not None and count and count != len(graph.inputs):
            message = (
                f"{self.data} has {count} inputs per sample, but the network takes "
                f"{len(graph.inputs)}"
            )
            yield ScriptProblem("argument", f"{self.name}.data", message)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statement that trains the network."""
        epochs = writer.add_option(
            self, "epochs", self.epochs, "number of passes over the training samples"
        )
        size = writer.add_option(self, "batch_size", self.batch_size, "samples in each step")
        callbacks = ast.List([writer.get_variable(item) for item in self.callbacks], ast.Load())
        compiled, data = writer.get_variable(self.compiled), writer.get_variable(self.data)
        target = writer.get_variable(self.model)
        return [
            assign(
                target,
                call(writer.require_helper("train"), compiled, data, epochs, size, callbacks),
            )
        ]


def _build_dict(parts: dict[str, ast.expr]) -> ast.expr:
    return ast.Dict([literal(key) for key in parts], list(parts.values()))


MONITORED = ("loss", *(f"test_{title}" for title in ("loss", *METRICS)))
"""Figures that can be monitored: the loss in training, and the loss and metrics on the test
samples.
"""


class _MonitoringTask(ScriptTask):
    monitor: str = argument(
        "test_loss", help="the figure that decides: " + ", ".join(MONITORED), choices=MONITORED
    )

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the monitored figure is a metric that the network is not compiled
        with.
        """

        metric = self.monitor.removeprefix("test_") if isinstance(self.monitor, str) else ""
        compiled = [
            task
            for task in script.tasks
            if isinstance(task, Compile) and isinstance(task.metrics, tuple)
        ]
        if metric in METRICS and compiled and not any(metric in task.metrics for task in compiled):
            message = (
                f"{self.monitor} is not computed; add {metric} to the metrics of {compiled[0].name}"
            )
            yield ScriptProblem("argument", f"{self.name}.monitor", message)

    @property
    def _largest(self) -> bool:
        """Whether larger values of the monitored figure are better."""
        return self.monitor.removeprefix("test_") in LARGEST

    def _get_keras_monitor(self) -> str:
        return self.monitor.replace("test_", "val_")


class Checkpoint(_MonitoringTask):
    """Write the network of the best epoch to a file."""

    task = "checkpoint"
    path: str = argument(help="the file; without a suffix it gets .safetensors or .keras")
    callback: str = gives("callback", "the callback")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield problems with the monitored figure and the suffix of the file."""
        yield from super().problems(script)
        yield from check_suffix(self, script, "path")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        best = add_suffix(self.path, writer.framework)
        path = writer.add_option(self, "checkpoint", best, "the best epoch's network", path=True)
        if writer.framework == "pytorch":
            made = call(
                writer.require_helper("Checkpoint"),
                path,
                literal(self.monitor),
                literal(self._largest),
            )
        else:
            made = call(
                "keras.callbacks.ModelCheckpoint",
                path,
                monitor=literal(self._get_keras_monitor()),
                mode=literal("max" if self._largest else "min"),
                save_best_only=literal(True),
            )
        return [assign(writer.get_variable(self.callback), made)]


class EarlyStopping(_MonitoringTask):
    """End a training whose figures no longer improve."""

    task = "early_stopping"
    patience: int = argument(
        5, help="epochs without an improvement after which training ends", minimum=1
    )
    min_delta: float = argument(
        0.0, help="the smallest change that counts as an improvement", minimum=0
    )
    callback: str = gives("callback", "the callback")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        patience = writer.add_option(
            self,
            "patience",
            self.patience,
            "epochs without an improvement after which training ends",
        )
        if writer.framework == "pytorch":
            given = (
                literal(self.monitor),
                literal(self._largest),
                patience,
                literal(float(self.min_delta)),
            )
            made = call(writer.require_helper("EarlyStopping"), *given)
        else:
            made = call(
                "keras.callbacks.EarlyStopping",
                monitor=literal(self._get_keras_monitor()),
                patience=patience,
                mode=literal("max" if self._largest else "min"),
                min_delta=literal(float(self.min_delta)),
            )
        return [assign(writer.get_variable(self.callback), made)]


class _Logger(ScriptTask):
    helpers: ClassVar[Mapping[str, str]] = {}
    """Names of the functions that create the callback from a path, by framework."""
    callback: str = gives("callback", "the callback")

    def _build_callback(self, writer: Writer, path: ast.expr) -> list[ast.stmt]:
        helper = writer.require_helper(self.helpers[writer.framework])
        return [assign(writer.get_variable(self.callback), call(helper, path))]


class TableLogger(_Logger):
    """Write each epoch's figures to a CSV file."""

    task = "csv_logger"
    helpers: ClassVar[Mapping[str, str]] = {
        "pytorch": "TableLogger",
        "keras": "create_table_logger",
    }
    path: str = argument(help="the file")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        return self._build_callback(
            writer,
            writer.add_option(
                self, "log", self.path, "a CSV file with each epoch's figures", path=True
            ),
        )


class BoardLogger(_Logger):
    """Write each epoch's figures for TensorBoard; PyTorch needs the package tensorboard for it."""

    task = "tensorboard_logger"
    helpers: ClassVar[Mapping[str, str]] = {
        "pytorch": "BoardLogger",
        "keras": "create_board_logger",
    }
    folder: str = argument(help="the folder")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        return self._build_callback(
            writer,
            writer.add_option(self, "board", self.folder, "a folder for TensorBoard", path=True),
        )


class ProgressLogger(_Logger):
    """Write the progress of the training to a file: one JSON object per line, with ``fraction``
    and ``metrics``.
    """

    task = "progress"
    helpers: ClassVar[Mapping[str, str]] = {
        "pytorch": "Progress",
        "keras": "create_progress_logger",
    }
    path: str = argument("progress.jsonl", help="the file")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        # The program that starts the script, such as nnpipe jobs, may set another file in the
        # environment.
        default = call(
            "Path", call("os.environ.get", literal("NNPIPE_PROGRESS"), literal(self.path))
        )
        return self._build_callback(
            writer,
            writer.add_option(self, "progress", default, "the progress file", path=True),
        )


SUFFIXES = {"pytorch": ".safetensors", "keras": ".keras"}


def check_suffix(task: ScriptTask, script: ScriptGenerator, field: str) -> Iterable[ScriptProblem]:
    """Yield a problem if the path in a field has a suffix that the framework does not write."""
    suffix = SUFFIXES.get(script.framework, "")
    path = getattr(task, field)
    if isinstance(path, str) and PurePath(path).suffix not in ("", suffix):
        message = f"must end in {suffix} or have no suffix, not be {format_value(path)}"
        yield ScriptProblem("argument", f"{task.name}.{field}", message)


def add_suffix(path: str, framework: str) -> str:
    """Return a path with the framework's suffix, which is added if the path has none."""
    return path if PurePath(path).suffix else path + SUFFIXES[framework]
