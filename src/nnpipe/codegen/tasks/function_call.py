"""The task that calls a function of an installed package, for everything that no other task
does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from nnpipe.codegen.description import ScriptGenerator
from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptProblem, ScriptTask, gives, takes
from nnpipe.codegen.syntax import assign, call, is_name
from nnpipe.core.arguments import argument
from nnpipe.core.messages import format_value


class Call(ScriptTask):
    """Import a function and call it with variables."""

    task = "call"
    function: str = argument(help="package.module:function")
    arguments: tuple[str, ...] = takes(
        "any", help="variables that it is called with, in order", many=True
    )
    result: str | None = gives("any", "what it returns", optional=True)

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Yield a problem if the name of the function is not valid, or if the script would hide
        its module.
        """
        if (
            isinstance(self.function, str)
            and self.function
            and _split_function_name(self.function) is None
        ):
            message = "must be package.module:function, with names that are valid in Python, not"
            yield ScriptProblem(
                "import", f"{self.name}.function", f"{message} {format_value(self.function)}"
            )
        elif (
            isinstance(self.function, str)
            and self.function.partition(":")[0].partition(".")[0] == script.name
        ):
            message = (
                "Python would import the script instead of this module; give the script another "
                "name"
            )
            yield ScriptProblem(
                "import", f"{self.name}.function", f"{format_value(self.function)}: {message}"
            )

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statement that calls the function, and add the function's import to the
        script.
        """
        found = _split_function_name(self.function)
        assert found is not None
        module, function = found
        made = call(
            writer.import_name(module, function),
            *(writer.get_variable(variable) for variable in self.arguments),
        )
        return [assign(writer.get_variable(self.result), made) if self.result else ast.Expr(made)]


def _split_function_name(text: str) -> tuple[str, str] | None:
    """Return the module and the function, or ``None`` if the text does not name a function."""
    module, colon, function = text.partition(":")
    good = colon and is_name(function) and all(is_name(part) for part in module.split("."))
    return (module, function) if good else None
