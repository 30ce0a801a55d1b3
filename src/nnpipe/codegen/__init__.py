"""The generator of standalone scripts that train, convert or run networks.

::

    checked = script.check()             # a ScriptGenerator: variables, tasks, networks
    if checked.graph is not None:
        generated = generate(checked.graph)

Problems are values and are all reported together.  Scripts are built as syntax trees, so no
text of a description ever becomes code.
"""

from nnpipe.codegen.description import (
    GeneratedScript,
    ScriptGenerator,
    check_script,
    list_task_classes,
    read_script,
)
from nnpipe.codegen.graph import CheckedScript, CodeGraph
from nnpipe.codegen.script import generate
from nnpipe.codegen.script_task import CODES, ScriptProblem, ScriptTask, Variable

__all__ = [
    "CODES",
    "CheckedScript",
    "CodeGraph",
    "GeneratedScript",
    "ScriptGenerator",
    "ScriptProblem",
    "ScriptTask",
    "Variable",
    "check_script",
    "generate",
    "list_task_classes",
    "read_script",
]
