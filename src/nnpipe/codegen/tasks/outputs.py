"""Tasks that use a network: evaluate it, save it, quantise it, run it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import ClassVar

from nnpipe.codegen.description import ScriptGenerator
from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, gives, takes
from nnpipe.codegen.syntax import assign, attribute, call, fill_template, literal
from nnpipe.codegen.tasks.data import add_plugin, check_plugin
from nnpipe.codegen.tasks.training import add_suffix, check_suffix
from nnpipe.core.arguments import argument


class Evaluate(ScriptTask):
    """Print the loss and the metrics on the test samples as one line of JSON."""

    task = "evaluate"
    compiled: str = takes("compiled", help="the network with its loss and metrics")
    data: str = takes("data", help="samples")
    batch_size: int = argument(256, help="samples at once", minimum=1)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statement that evaluates the network and prints the figures."""
        compiled, data = writer.get_variable(self.compiled), writer.get_variable(self.data)
        figures = call(
            writer.require_helper("evaluate_model"), compiled, data, literal(self.batch_size)
        )
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
        return check_suffix(self, script, "path")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that write the file."""
        target = add_suffix(self.path, writer.framework)
        path = writer.add_option(
            self, "output", target, "where the trained network is written", path=True
        )
        model = writer.get_variable(self.model)
        if writer.framework == "pytorch":
            found: list[ast.stmt] = [
                ast.Expr(call(writer.require_helper("write_weights"), path, model))
            ]
        else:
            found = fill_template("PATH.parent.mkdir(parents=True, exist_ok=True)", PATH=path)
            found.append(ast.Expr(call(attribute(model, "save"), path)))
        return [*found, *([assign(writer.get_variable(self.file), path)] if self.file else [])]


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
        path = writer.add_option(
            self, "tflite", self.path, "where the quantised network is written", path=True
        )
        model, data = writer.get_variable(self.model), writer.get_variable(self.data)
        made = call(
            writer.require_helper("quantize_model"),
            model,
            ast.Subscript(
                ast.Subscript(data, literal("train"), ast.Load()), literal(0), ast.Load()
            ),
        )
        written: ast.stmt = ast.Expr(call(writer.require_helper("write_model"), path, made))
        return [written, assign(writer.get_variable(self.file), path)]


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
        writer.checks.append(ast.Expr(call(writer.require_helper("check_edge_tpu_compiler"))))
        folder = writer.add_option(
            self, "edge_tpu", self.folder, "folder of the compiled network", path=True
        )
        made = call(
            writer.require_helper("compile_for_edge_tpu"),
            writer.get_variable(self.quantised),
            folder,
        )
        return [assign(writer.get_variable(self.file), made) if self.file else ast.Expr(made)]


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
            writer.get_variable(v) for v in (self.model, self.samples, self.outputs)
        )
        if writer.generator.kinds[self.samples] == "data":
            samples = call(writer.require_helper("get_test_samples"), samples)  # type: ignore[assignment]
        found = [
            assign(
                target,
                call(
                    writer.require_helper("compute_outputs"),
                    model,
                    samples,
                    literal(self.batch_size),
                ),
            )
        ]
        statements: list[ast.stmt] = [*found]
        if self.path is not None:
            path = writer.add_option(
                self, "outputs", self.path, "a CSV file for the outputs of the network", path=True
            )
            outputs = ast.Subscript(target, literal("outputs"), ast.Load())
            statements.append(ast.Expr(call(writer.require_helper("write_outputs"), path, outputs)))
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
        return check_plugin(self, self.plugin, "process_model_output")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that load the plugin and call it."""
        function = attribute(add_plugin(writer, self, self.plugin), "process_model_output")
        return [
            ast.Expr(
                call(
                    writer.require_helper("show_outputs"),
                    function,
                    writer.get_variable(self.outputs),
                )
            )
        ]
