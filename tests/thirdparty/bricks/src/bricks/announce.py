"""A task of generated scripts."""

from __future__ import annotations

import ast

from nnpipe.codegen.fields import setting, text
from nnpipe.codegen.syntax import quoted
from nnpipe.codegen.task import Task
from nnpipe.codegen.writer import Writer


class Announce(Task):
    """Print a line."""

    task = "announce"
    line: str = setting(text, "what to print", "done")

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Print what the script's argument says."""
        return quoted("print(LINE)", LINE=writer.argument(self, "line", self.line, "what to print"))
