"""The generator of a script's source code from a checked graph of tasks."""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.codegen.description import GeneratedScript, ScriptGenerator
from nnpipe.codegen.graph import CodeGraph
from nnpipe.codegen.runtime.function_sources import load_definitions, with_needed
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.syntax import assign, attribute, build_name, call, fill_template, literal
from nnpipe.codegen.syntax import build_function as define
from nnpipe.codegen.torch_code.code_blocks import Names, Script
from nnpipe.codegen.unparse import (
    KNOWN,
    create_remark,
    find_imports,
    find_used_names,
    generate_source,
    sort_imports,
)
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph.graph import NetworkGraph

_TYPES = {int: "int", float: "float", str: "str"}
_OWN = (
    "args",
    "arguments",
    "main",
    "parser",
    "argparse",
    "sys",
    "json",
    "csv",
    "time",
    "random",
    "self",
)


@dataclass(frozen=True)
class ScriptArgument:
    """An option of the script's command line."""

    flag: str
    type: str
    default: ast.expr
    help: str


@dataclass
class Writer:
    """A script under construction.

    Attributes
    ----------
    arguments
        Options of the script's command line, by name.
    wanted
        Names of the functions that are copied into the script.
    networks
        The class or function that builds each network, by the names in the description.
    files
        Content of the files beside the script, by name.
    plugins
        Expressions that load the plugins, by the paths of their files.
    checks
        Statements that check something before the first task.
    """

    generator: ScriptGenerator
    arguments: dict[str, ScriptArgument] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    networks: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    plugins: dict[str, ast.expr] = field(default_factory=dict)
    checks: list[ast.stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        taken = {*dir(builtins), *KNOWN, *_OWN, *load_definitions(self.generator.framework)}
        # A variable gets another name if its own is in use elsewhere in the script.
        names = Names(taken)
        self._variables = {
            variable.name: names.fresh(variable.name) for variable in self.generator.variables
        }
        self._titles = Names({"help", "seed", "device"})
        self.script = Script(names)

    @property
    def framework(self) -> str:
        """``pytorch`` or ``keras``."""
        return self.generator.framework

    @property
    def has_own_layers(self) -> bool:
        """Whether a network has layers of other packages, which the script imports together with
        nnpipe.
        """
        return any(module == "nnpipe.layers" for module, _ in self.script.imports)

    def get_variable(self, title: str) -> ast.Name:
        """Return the name of a variable in the script."""
        return build_name(self._variables[title])

    def require_helper(self, title: str) -> ast.Name:
        """Return the name of a function, and mark it to be copied into the script."""
        if title not in load_definitions(self.framework):
            raise KeyError(title)
        self.wanted.add(title)
        return build_name(title)

    def add_option(
        self, task: ScriptTask | None, title: str, default: Any, help: str, *, path: bool = False
    ) -> ast.expr:
        """Add an option to the script, and return the expression of its value.

        If the name is taken, the task's name becomes part of it.
        """
        known = self.arguments
        title = title.strip("_") or "file"  # argparse keeps underscores at the ends
        if task is not None:
            title = self._titles.fresh(
                title if title not in self._titles.taken else f"{task.name}_{title}".strip("_")
            )
        kind = "Path" if path else _TYPES[type(default)]
        value = default if isinstance(default, ast.expr) else literal(default)
        value = call("Path", value) if path and not isinstance(default, ast.expr) else value
        known[title] = ScriptArgument("--" + title.replace("_", "-"), kind, value, help)
        return attribute(build_name("args"), title)

    def import_name(self, module: str, function: str) -> ast.Name:
        """Add the import of a function of an installed package, and return its name in the script.

        The function is imported under another name if its own is taken.
        """
        return self.script.import_name(module, function)

    def network(self, graph: NetworkGraph, wanted: str) -> Any:
        """Write a network into the script on the first call, and return its class or function
        there.
        """
        if wanted not in self.networks:
            if self.framework == "pytorch":
                from nnpipe.codegen.torch_code.network import to_class_name, write_network_class

                self.networks[wanted] = write_network_class(
                    graph, self.script, to_class_name(wanted)
                )
            else:
                from nnpipe.codegen.keras_code import write_network_function

                self.networks[wanted] = write_network_function(graph, self.script, wanted)
        return self.networks[wanted]

    def add_weights_file(
        self, graph: NetworkGraph, wanted: str, weights: Mapping[str, np.ndarray]
    ) -> ast.expr:
        """Add a file with a network's weights beside the script, and return the expression of
        the file's path.
        """
        from nnpipe.codegen.weights import build_keras_state, encode_safetensors

        written = self.network(graph, wanted)
        if self.framework == "pytorch":
            from nnpipe.codegen.torch_code.network import build_state_dict

            state = build_state_dict(written, graph, weights)
        else:
            state = build_keras_state(graph, weights)
        content, number = encode_safetensors(state), 1
        title = f"{self.generator.name}.{wanted}.safetensors"
        # the same network occurs with other weights
        while self.files.get(title, content) != content:
            number += 1
            title = f"{self.generator.name}.{wanted}_{number}.safetensors"
        self.files[title] = content
        return call(
            attribute(call("Path", ast.Name("__file__", ast.Load())), "with_name"), literal(title)
        )


_START = {
    "pytorch": "torch.manual_seed(SEED)",
    "keras": 'keras.utils.set_random_seed(SEED)\nkeras.config.set_image_data_format("channels_last")',
}
_NEEDS = {"pytorch": "PyTorch", "keras": "Keras and TensorFlow"}


def generate(graph: CodeGraph) -> GeneratedScript:
    """Return the script of a graph and its files; equal graphs give equal bytes."""
    check_call(generate, locals())
    writer = Writer(graph.script)
    seed = writer.add_option(
        None, "seed", graph.script.seed, "for initial weights and the order of samples"
    )
    tasks: list[ast.stmt] = []
    for task in graph.order:
        heading = task.name if task.name == task.task else f"{task.name}: {task.task}"
        tasks += [create_remark(heading), *task.write(writer)]
    start = fill_template(_START[writer.framework], SEED=seed)
    body = [*fill_template("args = arguments()"), *writer.checks, *start, *tasks]
    hidden = {module.partition(".")[0] for module, _ in writer.script.imports} & {graph.script.name}
    if hidden and writer.has_own_layers:
        raise ConfigError(
            f"{graph.script.name}: the script would hide the module of this name, which it needs"
        )
    main = define("main", [], body, "Run the tasks, one after another.")
    networks = list(writer.script.definitions.values())
    helpers = with_needed(
        writer.framework, writer.wanted | (find_used_names([*networks, main]) & {"run_in_mode"})
    )
    definitions: list[ast.stmt] = [
        *helpers.values(),
        *networks,
        _build_argument_parser(writer),
        main,
    ]
    call_main = fill_template('if __name__ == "__main__":\n    main()')
    imports = sort_imports([*find_imports(definitions), *writer.script.imports.values()])
    doc = (
        f"{_format_title(graph)}\n\nGenerated by nnpipe. It needs "
        f"{_format_requirements(graph, writer)}. --help shows its options.\n"
    )
    module = ast.Module([ast.Expr(ast.Constant(doc)), *imports, *definitions, *call_main], [])
    return GeneratedScript(generate_source(module), dict(writer.files))


def _format_title(graph: CodeGraph) -> str:
    """Return the first line of the script's docstring."""
    title = f"The script {graph.script.name}: {', '.join(task.name for task in graph.order)}."
    # with its opening quotes it fits in a line
    return textwrap.shorten(title, 85, placeholder=" ...")


def _format_requirements(graph: CodeGraph, writer: Writer) -> str:
    """Return the names of the packages that the script needs."""
    kinds = {task.task for task in graph.order}
    more = [
        package
        for kind, package in (("load_images", "Pillow"), ("load_sklearn", "scikit-learn"))
        if kind in kinds
    ]
    if writer.has_own_layers:  # which nnpipe builds
        own = sorted(
            {module.partition(".")[0] for module, _ in writer.script.imports} - {"sklearn"}
        )
        *first, last = [*_NEEDS[graph.script.framework].split(" and "), *more, *own]
        return f"{', '.join(first)} and {last}"
    return " and ".join([_NEEDS[graph.script.framework], *more]) + ", but not nnpipe"


def _build_argument_parser(writer: Writer) -> ast.stmt:
    """Return the function of the script that parses its command line."""
    parser = call(
        "argparse.ArgumentParser",
        description=literal(f"The script {writer.generator.name}."),
        formatter_class=attribute(build_name("argparse"), "ArgumentDefaultsHelpFormatter"),
    )
    body: list[ast.stmt] = [assign("parser", parser)]
    for argument in writer.arguments.values():
        given = {
            "type": build_name(argument.type),
            "default": argument.default,
            "help": literal(argument.help),
        }
        body.append(ast.Expr(call("parser.add_argument", literal(argument.flag), **given)))
    return define(
        "arguments",
        [],
        [*body, *fill_template("return parser.parse_args()")],
        "Return the parsed command line.",
    )
