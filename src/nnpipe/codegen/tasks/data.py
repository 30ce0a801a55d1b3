"""Tasks that read samples or pass them through plugins."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nnpipe.codegen.description import ScriptGenerator
from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, find_faults, gives, takes
from nnpipe.codegen.syntax import assign, attribute, build_name, call, literal
from nnpipe.core.arguments import argument
from nnpipe.core.messages import format_value

_SKLEARN = ("breast_cancer", "diabetes", "digits", "iris", "wine")


class _Load(ScriptTask):
    test_fraction: float = argument(
        0.2, help="share of the samples for testing", minimum=0.01, maximum=0.9
    )
    scale: float = argument(1.0, help="factor of the inputs")
    data: str = gives("data", "samples for training and testing")

    @property
    def count(self) -> int:
        """Number of inputs of a sample."""
        return 1

    def _build_assignment(self, writer: Writer, function: str, *args: ast.expr) -> list[ast.stmt]:
        """Return the statement that assigns the result of a reading function to the variable."""
        fraction = writer.add_option(
            self, "test_fraction", float(self.test_fraction), "share of samples for testing"
        )
        seed = attribute(build_name("args"), "seed")
        made = call(writer.require_helper(function), *args, literal(self.scale), fraction, seed)
        return [assign(writer.get_variable(self.data), made)]


class LoadArrays(_Load):
    """Read samples from an .npz file with arrays of inputs and an array of targets."""

    task = "load_npz"
    path: str = argument(help="the file; the script takes another one as an argument")
    inputs: tuple[str, ...] = argument(
        ("x",), help="names of the arrays of inputs, in the network's order"
    )
    target: str = argument("y", help="name of the array of targets")
    shape: tuple[int, ...] | None = argument(
        None, help="shape of a sample, if it differs from the file's", minimum=1
    )

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if no array of inputs is named."""
        if self.inputs == ():
            yield ScriptProblem("argument", f"{self.name}.inputs", "must name at least one array")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that read the file."""
        path = writer.add_option(self, self.data, self.path, "samples, an .npz file", path=True)
        inputs, target = literal(self.inputs), literal(self.target)
        return self._build_assignment(
            writer, "read_array_data", path, inputs, target, literal(self.shape)
        )

    @property
    def count(self) -> int:
        """Number of inputs of a sample, one for each array."""
        return len(self.inputs)


class LoadTable(_Load):
    """Read samples from a CSV file with a header: columns of numbers, one of which holds the
    targets.
    """

    task = "load_csv"
    path: str = argument(help="the file; the script takes another one as an argument")
    target: str = argument(help="name of the column of targets")
    delimiter: str = argument(",", help="the character between cells")
    classes: bool = argument(True, help="whether the targets are classes, numbered from 0")
    shape: tuple[int, ...] | None = argument(
        None, help="shape of a sample, if it is not a row", minimum=1
    )

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the delimiter is not one character."""
        if isinstance(self.delimiter, str) and len(self.delimiter) != 1:
            yield ScriptProblem(
                "argument",
                f"{self.name}.delimiter",
                f"must be one character, not {format_value(self.delimiter)}",
            )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that read the file."""
        path = writer.add_option(self, self.data, self.path, "samples, a CSV file", path=True)
        given = (literal(v) for v in (self.target, self.delimiter, self.classes, self.shape))
        return self._build_assignment(writer, "read_table_data", path, *given)


class LoadImages(_Load):
    """Read images from a folder with one folder for each class; needs Pillow."""

    task = "load_images"
    path: str = argument(help="the folder; the script takes another one as an argument")
    size: tuple[int, ...] = argument(help="height and width that images are resized to", minimum=1)
    grey: bool = argument(False, help="one channel instead of three")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the size is not two numbers."""
        if isinstance(self.size, tuple) and len(self.size) != 2:
            yield ScriptProblem(
                "argument",
                f"{self.name}.size",
                f"must be height and width, not {format_value(self.size)}",
            )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that read the images."""
        path = writer.add_option(
            self, self.data, self.path, "a folder with a folder of images for each class", path=True
        )
        return self._build_assignment(
            writer, "read_image_data", path, literal(self.size), literal(self.grey)
        )


class LoadSklearn(_Load):
    """Load samples that come with scikit-learn, which the script then needs."""

    task = "load_sklearn"
    dataset: str = argument(help="the data set: " + ", ".join(_SKLEARN), choices=_SKLEARN)
    shape: tuple[int, ...] | None = argument(
        None, help="shape of a sample, if it is not a row", minimum=1
    )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that call scikit-learn's function."""
        load = writer.import_name("sklearn.datasets", f"load_{self.dataset}")
        return self._build_assignment(writer, "load_sklearn_data", load, literal(self.shape))


class ProcessDataset(ScriptTask):
    """Pass samples through a plugin's process_dataset(x, y)."""

    task = "process_dataset"
    plugin: str = argument(help="the plugin's file, which the script runs as code")
    samples: str = takes("data", help="the samples to process")
    data: str = gives("data", "the processed samples")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield problems with the plugin, and a problem if the samples have more than one input."""
        yield from check_plugin(self, self.plugin, "process_dataset")
        count = count_inputs(script, self.samples)
        if count > 1:
            message = f"{self.samples} has {count} inputs, and a plugin takes one"
            yield ScriptProblem("argument", f"{self.name}.samples", message)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that load the plugin and call it."""
        function = attribute(add_plugin(writer, self, self.plugin), "process_dataset")
        made = call(
            writer.require_helper("process_data"), function, writer.get_variable(self.samples)
        )
        return [assign(writer.get_variable(self.data), made)]


class LoadTestData(ScriptTask):
    """Read samples for inference with a plugin's load_test_data(path)."""

    task = "load_test_data"
    plugin: str = argument(help="the plugin's file, which the script runs as code")
    path: str = argument(help="the test data; the script takes another path as an argument")
    samples: str = gives("samples", "the samples")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Return problems with the plugin."""
        return check_plugin(self, self.plugin, "load_test_data")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements that load the plugin and call it."""
        function = attribute(add_plugin(writer, self, self.plugin), "load_test_data")
        path = writer.add_option(self, self.samples, self.path, "test data that the plugin reads")
        return [
            assign(
                writer.get_variable(self.samples),
                call(writer.require_helper("test_data"), function, path),
            )
        ]


def count_inputs(script: ScriptGenerator, variable: str) -> int:
    """Return the number of inputs of the samples in a variable; 0 if it is not known before the
    script runs.
    """
    maker = next(
        (task for task in script.tasks if variable in [v for _, v in task.variables("gives")]), None
    )
    if isinstance(maker, _Load) and not any(field == "inputs" for field, _ in find_faults(maker)):
        return maker.count
    return int(isinstance(maker, ProcessDataset))


def add_plugin(writer: Writer, task: ScriptTask, path: str) -> ast.expr:
    """Return the expression that loads a plugin; a file that several tasks use gets one option
    of the script.
    """
    known: dict[str, ast.expr] = writer.plugins
    if path not in known:
        argument = writer.add_option(
            task, "plugin", path, "a plugin, which is run as code", path=True
        )
        known[path] = call(writer.require_helper("load_plugin"), argument)
    return known[path]


def check_plugin(task: Any, path: Any, function: str) -> Iterable[ScriptProblem]:
    """Yield problems with a plugin: its path, or a function that is missing or takes other
    arguments.
    """
    from nnpipe.core.errors import NNPipeError
    from nnpipe.plugins.plugin import read_checked_source

    if isinstance(path, str) and not path.endswith(".py"):
        yield ScriptProblem(
            "plugin",
            f"{task.name}.plugin",
            "must be a file that ends in .py, which the script can load",
        )
    elif isinstance(path, str) and "\0" not in path:
        try:
            read_checked_source(str(Path(path)), [function])
        except (NNPipeError, ValueError) as error:
            yield ScriptProblem("plugin", f"{task.name}.plugin", str(error))
