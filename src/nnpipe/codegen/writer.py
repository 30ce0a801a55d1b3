"""The writer of a script, which collects the arguments, functions, networks and files that the tasks need."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.codegen.generator import ScriptGenerator
from nnpipe.codegen.imports import KNOWN
from nnpipe.codegen.runtime.function_sources import parts
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.syntax import attribute, call, literal, name
from nnpipe.codegen.torch_code.code_blocks import Names, Script
from nnpipe.layers.graph.graph import NetworkGraph

_TYPES = {int: "int", float: "float", str: "str"}
_OWN = ("args", "arguments", "main", "parser", "argparse", "sys", "json", "csv", "time", "random", "self")


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
        taken = {*dir(builtins), *KNOWN, *_OWN, *parts(self.generator.framework)}
        # A variable gets another name if its own is in use elsewhere in the script.
        names = Names(taken)
        self._variables = {variable.name: names.fresh(variable.name) for variable in self.generator.variables}
        self._titles = Names({"help", "seed", "device"})
        self.script = Script(names)

    @property
    def framework(self) -> str:
        """``pytorch`` or ``keras``."""
        return self.generator.framework

    @property
    def has_own_layers(self) -> bool:
        """Whether a network has layers of other packages, which the script imports together with nnpipe."""
        return any(module == "nnpipe.layers" for module, _ in self.script.imports)

    def variable(self, title: str) -> ast.Name:
        """Return the name of a variable in the script."""
        return name(self._variables[title])

    def helper(self, title: str) -> ast.Name:
        """Return the name of a function, and mark it to be copied into the script."""
        if title not in parts(self.framework):
            raise KeyError(title)
        self.wanted.add(title)
        return name(title)

    def argument(self, task: ScriptTask | None, title: str, default: Any, help: str, *, path: bool = False) -> ast.expr:
        """Add an option to the script, and return the expression of its value.

        If the name is taken, the task's name becomes part of it.
        """
        known = self.arguments
        title = title.strip("_") or "file"  # argparse keeps underscores at the ends
        if task is not None:
            title = self._titles.fresh(title if title not in self._titles.taken else f"{task.name}_{title}".strip("_"))
        kind = "Path" if path else _TYPES[type(default)]
        value = default if isinstance(default, ast.expr) else literal(default)
        value = call("Path", value) if path and not isinstance(default, ast.expr) else value
        known[title] = ScriptArgument("--" + title.replace("_", "-"), kind, value, help)
        return attribute(name("args"), title)

    def imported(self, module: str, function: str) -> ast.Name:
        """Add the import of a function of an installed package, and return its name in the script.

        The function is imported under another name if its own is taken.
        """
        return self.script.imported(module, function)

    def network(self, graph: NetworkGraph, wanted: str) -> Any:
        """Write a network into the script on the first call, and return its class or function there."""
        if wanted not in self.networks:
            if self.framework == "pytorch":
                from nnpipe.codegen.torch_code.network import camel, network_class

                self.networks[wanted] = network_class(graph, self.script, camel(wanted))
            else:
                from nnpipe.codegen.keras_code import network_function

                self.networks[wanted] = network_function(graph, self.script, wanted)
        return self.networks[wanted]

    def stored_weights(self, graph: NetworkGraph, wanted: str, weights: Mapping[str, np.ndarray]) -> ast.expr:
        """Add a file with a network's weights beside the script, and return the expression of the file's path."""
        from nnpipe.codegen.weights import encoded, keras_state

        written = self.network(graph, wanted)
        if self.framework == "pytorch":
            from nnpipe.codegen.torch_code.network import state_of

            state = state_of(written, graph, weights)
        else:
            state = keras_state(graph, weights)
        content, number = encoded(state), 1
        title = f"{self.generator.name}.{wanted}.safetensors"
        while self.files.get(title, content) != content:  # the same network occurs with other weights
            number += 1
            title = f"{self.generator.name}.{wanted}_{number}.safetensors"
        self.files[title] = content
        return call(attribute(call("Path", ast.Name("__file__", ast.Load())), "with_name"), literal(title))
