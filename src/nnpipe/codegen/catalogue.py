"""The catalogue of task classes."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.codegen.script_task import ScriptTask
from nnpipe.core.registry import named


def task_classes() -> Mapping[str, type[ScriptTask]]:
    """Return all task classes of nnpipe, plugins and the running program, by their names in descriptions."""
    return named(ScriptTask)
