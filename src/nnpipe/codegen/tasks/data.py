"""Tasks that read samples, and pass them through plugins."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nnpipe.codegen.fields import faults, gives, takes
from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.problems import ScriptProblem
from nnpipe.codegen.syntax import assign, attribute, call, literal, name
from nnpipe.codegen.task import Task
from nnpipe.codegen.writer import Writer
from nnpipe.core.arguments import argument
from nnpipe.core.messages import shown

_SKLEARN = ("breast_cancer", "diabetes", "digits", "iris", "wine")


class _Load(Task):
    test_fraction: float = argument(
        0.2, help="share of the samples that is put aside for testing", minimum=0.01, maximum=0.9
    )
    scale: float = argument(1.0, help="what inputs are multiplied with")
    data: str = gives("data", "samples for training and testing")

    @property
    def count(self) -> int:
        """The number of inputs that a sample has."""
        return 1

    def _made(self, writer: Writer, function: str, *args: ast.expr) -> list[ast.stmt]:
        fraction = writer.argument(self, "test_fraction", float(self.test_fraction), "share of samples for testing")
        seed = attribute(name("args"), "seed")
        made = call(writer.helper(function), *args, literal(self.scale), fraction, seed)
        return [assign(writer.variable(self.data), made)]


class LoadArrays(_Load):
    """Read samples from an .npz file with an array for inputs and one for the truth."""

    task = "load_npz"
    path: str = argument(help="the file; the script takes another one as an argument")
    inputs: tuple[str, ...] = argument(("x",), help="arrays of inputs, in the network's order")
    target: str = argument("y", help="the array of the truth")
    shape: tuple[int, ...] | None = argument(None, help="shape of a sample, where the file's does not fit", minimum=1)

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """There is an input."""
        if self.inputs == ():
            yield ScriptProblem("argument", f"{self.name}.inputs", "must name at least one array")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Read the file."""
        path = writer.argument(self, self.data, self.path, "samples, an .npz file", path=True)
        inputs, target = literal(self.inputs), literal(self.target)
        return self._made(writer, "data_of_arrays", path, inputs, target, literal(self.shape))

    @property
    def count(self) -> int:
        """One input for each array."""
        return len(self.inputs)


class LoadTable(_Load):
    """Read samples from a CSV file with a header: numbers, and a column of the truth."""

    task = "load_csv"
    path: str = argument(help="the file; the script takes another one as an argument")
    target: str = argument(help="the column of the truth")
    delimiter: str = argument(",", help="what stands between cells")
    classes: bool = argument(True, help="whether the truth is classes, numbered from 0")
    shape: tuple[int, ...] | None = argument(None, help="shape of a sample, where it is no row", minimum=1)

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """The delimiter is one character."""
        if isinstance(self.delimiter, str) and len(self.delimiter) != 1:
            yield ScriptProblem(
                "argument", f"{self.name}.delimiter", f"must be one character, not {shown(self.delimiter)}"
            )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Read the file."""
        path = writer.argument(self, self.data, self.path, "samples, a CSV file", path=True)
        given = (literal(v) for v in (self.target, self.delimiter, self.classes, self.shape))
        return self._made(writer, "data_of_table", path, *given)


class LoadImages(_Load):
    """Read images from a folder with one folder for each class; needs Pillow."""

    task = "load_images"
    path: str = argument(help="the folder; the script takes another one as an argument")
    size: tuple[int, ...] = argument(help="height and width that images are brought to", minimum=1)
    grey: bool = argument(False, help="one channel in place of three")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """The size is two numbers."""
        if isinstance(self.size, tuple) and len(self.size) != 2:
            yield ScriptProblem("argument", f"{self.name}.size", f"must be height and width, not {shown(self.size)}")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Read the files."""
        path = writer.argument(self, self.data, self.path, "a folder with one folder of images a class", path=True)
        return self._made(writer, "data_of_images", path, literal(self.size), literal(self.grey))


class LoadSklearn(_Load):
    """Take samples that come with scikit-learn, which the script then needs."""

    task = "load_sklearn"
    dataset: str = argument(help="which: " + ", ".join(_SKLEARN), choices=_SKLEARN)
    shape: tuple[int, ...] | None = argument(None, help="shape of a sample, where it is no row", minimum=1)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Call its function."""
        load = writer.imported("sklearn.datasets", f"load_{self.dataset}")
        return self._made(writer, "data_of_sklearn", load, literal(self.shape))


class ProcessDataset(Task):
    """Pass samples through a plugin's process_dataset(x, y)."""

    task = "process_dataset"
    plugin: str = argument(help="the plugin's file, which the script runs as code")
    samples: str = takes("data", help="samples before")
    data: str = gives("data", "samples afterwards")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Return whether the plugin has the function, which takes one input."""
        yield from plugin_problems(self, self.plugin, "process_dataset")
        count = inputs_of(script, self.samples)
        if count > 1:
            message = f"{self.samples} has {count} inputs, and a plugin takes one"
            yield ScriptProblem("argument", f"{self.name}.samples", message)

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Load the plugin, and call it."""
        function = attribute(loaded_plugin(writer, self, self.plugin), "process_dataset")
        made = call(writer.helper("data_by_plugin"), function, writer.variable(self.samples))
        return [assign(writer.variable(self.data), made)]


class LoadTestData(Task):
    """Let a plugin's load_test_data(path) read samples to look at."""

    task = "load_test_data"
    plugin: str = argument(help="the plugin's file, which the script runs as code")
    path: str = argument(help="where the test data are; an argument of the script")
    samples: str = gives("samples", "the samples")

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Return whether the plugin has the function."""
        return plugin_problems(self, self.plugin, "load_test_data")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Load the plugin, and call it."""
        function = attribute(loaded_plugin(writer, self, self.plugin), "load_test_data")
        path = writer.argument(self, self.samples, self.path, "test data that the plugin reads")
        return [assign(writer.variable(self.samples), call(writer.helper("test_data"), function, path))]


def inputs_of(script: ScriptGenerator, variable: str) -> int:
    """Count the inputs of the samples that a variable holds; 0 if that cannot be told before the script runs."""
    maker = next((task for task in script.tasks if variable in [v for _, v in task.variables("gives")]), None)
    if isinstance(maker, _Load) and not any(field == "inputs" for field, _ in faults(maker)):
        return maker.count
    return int(isinstance(maker, ProcessDataset))


def loaded_plugin(writer: Writer, task: Task, path: str) -> ast.expr:
    """Return the plugin's module; a file that is named by several tasks is one argument."""
    known: dict[str, ast.expr] = writer.plugins
    if path not in known:
        argument = writer.argument(task, "plugin", path, "a plugin, which is run as code", path=True)
        known[path] = call(writer.helper("load_plugin"), argument)
    return known[path]


def plugin_problems(task: Any, path: Any, function: str) -> Iterable[ScriptProblem]:
    """Check a plugin by reading it."""
    from nnpipe.core.errors import NNPipeError
    from nnpipe.plugins.plugin import checked_source

    if isinstance(path, str) and not path.endswith(".py"):
        yield ScriptProblem(
            "plugin", f"{task.name}.plugin", "must be a file that ends in .py, which the script can load"
        )
    elif isinstance(path, str) and "\0" not in path:
        try:
            checked_source(str(Path(path)), [function])
        except (NNPipeError, ValueError) as error:
            yield ScriptProblem("plugin", f"{task.name}.plugin", str(error))
