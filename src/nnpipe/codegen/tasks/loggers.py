"""Tasks that create loggers and other callbacks for a training."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import ClassVar

from nnpipe.codegen.fields import gives
from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.problems import ScriptProblem
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.syntax import assign, call, literal
from nnpipe.codegen.tasks.losses import LARGEST, METRICS
from nnpipe.codegen.writer import Writer
from nnpipe.core.arguments import argument
from nnpipe.core.messages import shown

MONITORED = ("loss", *(f"test_{title}" for title in ("loss", *METRICS)))
"""Figures that can be monitored: the loss in training, and the loss and metrics on the test samples."""


class _Watching(ScriptTask):
    monitor: str = argument("test_loss", help="the figure that decides: " + ", ".join(MONITORED), choices=MONITORED)

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the monitored figure is a metric that the network is not compiled with."""
        from nnpipe.codegen.tasks.training import Compile

        metric = self.monitor.removeprefix("test_") if isinstance(self.monitor, str) else ""
        compiled = [task for task in script.tasks if isinstance(task, Compile) and isinstance(task.metrics, tuple)]
        if metric in METRICS and compiled and not any(metric in task.metrics for task in compiled):
            message = f"{self.monitor} is not computed; add {metric} to the metrics of {compiled[0].name}"
            yield ScriptProblem("argument", f"{self.name}.monitor", message)

    @property
    def _largest(self) -> bool:
        """Whether larger values of the monitored figure are better."""
        return self.monitor.removeprefix("test_") in LARGEST

    def _in_keras(self) -> str:
        return self.monitor.replace("test_", "val_")


class Checkpoint(_Watching):
    """Write the network of the best epoch to a file."""

    task = "checkpoint"
    path: str = argument(help="the file; without a suffix it gets .safetensors or .keras")
    callback: str = gives("callback", "the callback")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield problems with the monitored figure and the suffix of the file."""
        yield from super().problems(script)
        yield from suffix_problems(self, script, "path")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        best = suffixed(self.path, writer.framework)
        path = writer.argument(self, "checkpoint", best, "the best epoch's network", path=True)
        if writer.framework == "pytorch":
            made = call(writer.helper("Checkpoint"), path, literal(self.monitor), literal(self._largest))
        else:
            made = call(
                "keras.callbacks.ModelCheckpoint", path, monitor=literal(self._in_keras()),
                mode=literal("max" if self._largest else "min"), save_best_only=literal(True),
            )  # fmt: skip
        return [assign(writer.variable(self.callback), made)]


class EarlyStopping(_Watching):
    """End a training whose figures no longer improve."""

    task = "early_stopping"
    patience: int = argument(5, help="epochs without an improvement after which training ends", minimum=1)
    min_delta: float = argument(0.0, help="the smallest change that counts as an improvement", minimum=0)
    callback: str = gives("callback", "the callback")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        patience = writer.argument(
            self, "patience", self.patience, "epochs without an improvement after which training ends"
        )
        if writer.framework == "pytorch":
            given = (literal(self.monitor), literal(self._largest), patience, literal(float(self.min_delta)))
            made = call(writer.helper("EarlyStopping"), *given)
        else:
            made = call(
                "keras.callbacks.EarlyStopping", monitor=literal(self._in_keras()), patience=patience,
                mode=literal("max" if self._largest else "min"), min_delta=literal(float(self.min_delta)),
            )  # fmt: skip
        return [assign(writer.variable(self.callback), made)]


class _Logger(ScriptTask):
    helpers: ClassVar[Mapping[str, str]] = {}
    """Names of the functions that create the callback from a path, by framework."""
    callback: str = gives("callback", "the callback")

    def _made(self, writer: Writer, path: ast.expr) -> list[ast.stmt]:
        helper = writer.helper(self.helpers[writer.framework])
        return [assign(writer.variable(self.callback), call(helper, path))]


class TableLogger(_Logger):
    """Write each epoch's figures to a CSV file."""

    task = "csv_logger"
    helpers: ClassVar[Mapping[str, str]] = {"pytorch": "TableLogger", "keras": "table_logger"}
    path: str = argument(help="the file")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        return self._made(
            writer, writer.argument(self, "log", self.path, "a CSV file with each epoch's figures", path=True)
        )


class BoardLogger(_Logger):
    """Write each epoch's figures for TensorBoard; PyTorch needs the package tensorboard for it."""

    task = "tensorboard_logger"
    helpers: ClassVar[Mapping[str, str]] = {"pytorch": "BoardLogger", "keras": "board_logger"}
    folder: str = argument(help="the folder")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        return self._made(writer, writer.argument(self, "board", self.folder, "a folder for TensorBoard", path=True))


class ProgressLogger(_Logger):
    """Write the progress of the training to a file: one JSON object per line, with ``fraction`` and ``metrics``."""

    task = "progress"
    helpers: ClassVar[Mapping[str, str]] = {"pytorch": "Progress", "keras": "progress"}
    path: str = argument("progress.jsonl", help="the file")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that create the callback."""
        # The program that starts the script, such as nnpipe jobs, may set another file in the environment.
        default = call("Path", call("os.environ.get", literal("NNPIPE_PROGRESS"), literal(self.path)))
        return self._made(writer, writer.argument(self, "progress", default, "the progress file", path=True))


SUFFIXES = {"pytorch": ".safetensors", "keras": ".keras"}


def suffix_problems(task: ScriptTask, script: ScriptGenerator, field: str) -> Iterable[ScriptProblem]:
    """Yield a problem if the path in a field has a suffix that the framework does not write."""
    suffix = SUFFIXES.get(script.framework, "")
    path = getattr(task, field)
    if isinstance(path, str) and PurePath(path).suffix not in ("", suffix):
        message = f"must end in {suffix} or have no suffix, not be {shown(path)}"
        yield ScriptProblem("argument", f"{task.name}.{field}", message)


def suffixed(path: str, framework: str) -> str:
    """Return a path with the framework's suffix, which is added if the path has none."""
    return path if PurePath(path).suffix else path + SUFFIXES[framework]
