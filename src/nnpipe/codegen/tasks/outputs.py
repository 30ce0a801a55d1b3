"""Tasks that use a network: evaluate it, save it, quantise it, run it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import ClassVar

from nnpipe.codegen.description import ScriptGenerator
from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, gives, takes
from nnpipe.codegen.syntax import assign, attribute, call, literal, quoted
from nnpipe.codegen.tasks.data import loaded_plugin, plugin_problems
from nnpipe.codegen.tasks.training import suffix_problems, suffixed
from nnpipe.core.arguments import argument


class Evaluate(ScriptTask):
    """Print the loss and the metrics on the test samples as one line of JSON."""

    task = "evaluate"
    compiled: str = takes("compiled", help="the network with its loss and metrics")
    data: str = takes("data", help="samples")
    batch_size: int = argument(256, help="samples at once", minimum=1)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statement that evaluates the network and prints the figures."""
        compiled, data = writer.variable(self.compiled), writer.variable(self.data)
        figures = call(writer.helper("judged"), compiled, data, literal(self.batch_size))
        return [ast.Expr(call("print", call("json.dumps", figures)))]


class Save(ScriptTask):
    """Write a network to a file: the weights as safetensors for PyTorch, the whole network as
    .keras for Keras.
    """

    task = "save"
    model: str = takes("network", help="the network")
    path: str = argument(help="the file; without a suffix it gets .safetensors or .keras")
    file: str | None = gives("file", "the file that was written", optional=True)

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Return a problem if the framework does not write files with this suffix."""
        return suffix_problems(self, script, "path")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that write the file."""
        target = suffixed(self.path, writer.framework)
        path = writer.argument(
            self, "output", target, "where the trained network is written", path=True
        )
        model = writer.variable(self.model)
        if writer.framework == "pytorch":
            found: list[ast.stmt] = [ast.Expr(call(writer.helper("write_weights"), path, model))]
        else:
            found = quoted("PATH.parent.mkdir(parents=True, exist_ok=True)", PATH=path)
            found.append(ast.Expr(call(attribute(model, "save"), path)))
        return [*found, *([assign(writer.variable(self.file), path)] if self.file else [])]


class Quantise(ScriptTask):
    """Write a network as a TensorFlow Lite file with 8-bit integers, calibrated with samples."""

    task = "quantise"
    frameworks: ClassVar[tuple[str, ...]] = ("keras",)
    model: str = takes("network", help="the network")
    data: str = takes("data", help="samples to calibrate with")
    path: str = argument(help="the .tflite file")
    file: str = gives("file", "the file that was written")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that convert the network and write the file."""
        path = writer.argument(
            self, "tflite", self.path, "where the quantised network is written", path=True
        )
        model, data = writer.variable(self.model), writer.variable(self.data)
        made = call(
            writer.helper("quantised"),
            model,
            ast.Subscript(
                ast.Subscript(data, literal("train"), ast.Load()), literal(0), ast.Load()
            ),
        )
        written: ast.stmt = ast.Expr(call(writer.helper("write_model"), path, made))
        return [written, assign(writer.variable(self.file), path)]


class CompileEdgeTPU(ScriptTask):
    """Compile a quantised file for Google's Edge TPU with edgetpu_compiler, which must be
    installed.
    """

    task = "compile_edge_tpu"
    frameworks: ClassVar[tuple[str, ...]] = ("keras",)
    quantised: str = takes("file", help="a quantised .tflite file")
    folder: str = argument(".", help="where the compiled file is written")
    file: str | None = gives("file", "the file that was written", optional=True)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statement that calls the compiler, and add a check to the script's start
        that it is installed.
        """
        writer.checks.append(ast.Expr(call(writer.helper("check_edge_tpu_compiler"))))
        folder = writer.argument(
            self, "edge_tpu", self.folder, "folder of the compiled network", path=True
        )
        made = call(writer.helper("compile_for_edge_tpu"), writer.variable(self.quantised), folder)
        return [assign(writer.variable(self.file), made) if self.file else ast.Expr(made)]


class Inference(ScriptTask):
    """Run a network on samples that a plugin read, or on the test samples."""

    task = "inference"
    model: str = takes("network", help="the network")
    samples: str = takes("samples", "data", help="samples")
    batch_size: int = argument(256, help="samples at once", minimum=1)
    path: str | None = argument(None, help="a CSV file for the outputs, one row a sample")
    outputs: str = gives("outputs", "inputs and outputs")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that run the network and write the file of outputs, if one is
        named.
        """
        model, samples, target = (
            writer.variable(v) for v in (self.model, self.samples, self.outputs)
        )
        if writer.generator.kinds[self.samples] == "data":
            samples = call(writer.helper("samples_of"), samples)  # type: ignore[assignment]
        found = [
            assign(
                target, call(writer.helper("computed"), model, samples, literal(self.batch_size))
            )
        ]
        statements: list[ast.stmt] = [*found]
        if self.path is not None:
            path = writer.argument(
                self, "outputs", self.path, "a CSV file for the outputs of the network", path=True
            )
            outputs = ast.Subscript(target, literal("outputs"), ast.Load())
            statements.append(ast.Expr(call(writer.helper("write_outputs"), path, outputs)))
        return statements


class ProcessOutput(ScriptTask):
    """Pass inputs and outputs to a plugin's process_model_output, which writes into the folder
    ``output``.
    """

    task = "process_model_output"
    plugin: str = argument(help="the plugin's file, which the script runs as code")
    outputs: str = takes("outputs", help="inputs and outputs")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Return problems with the plugin."""
        return plugin_problems(self, self.plugin, "process_model_output")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that load the plugin and call it."""
        function = attribute(loaded_plugin(writer, self, self.plugin), "process_model_output")
        return [
            ast.Expr(call(writer.helper("show_outputs"), function, writer.variable(self.outputs)))
        ]
