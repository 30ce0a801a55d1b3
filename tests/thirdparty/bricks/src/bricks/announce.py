"""A task of generated scripts."""

from __future__ import annotations

import ast

from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.syntax import fill_template
from nnpipe.core.arguments import argument


class Announce(ScriptTask):
    """Print a line."""

    task = "announce"
    line: str = argument("done", help="what to print")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Print what the script's argument says."""
        return fill_template(
            "print(LINE)", LINE=writer.add_option(self, "line", self.line, "what to print")
        )
