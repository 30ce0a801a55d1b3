"""The catalogue of task classes."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.codegen.script_task import ScriptTask
from nnpipe.core.registry import named, named_or_imported


def task_classes() -> Mapping[str, type[ScriptTask]]:
    """Return all task classes of nnpipe, plugins and the running program, by their names in descriptions."""
    return named(ScriptTask)


def described_task(name: str) -> type[ScriptTask] | None:
    """Return the task class that a description names; ``None`` if there is none with this short name.

    The module of a dotted path is imported.

    Raises
    ------
    ComponentNotFound
        If there is no class with this dotted path.
    """
    return named_or_imported(name, ScriptTask)
