"""Every class of task."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.codegen.task import Task
from nnpipe.core.registry import named


def task_classes() -> Mapping[str, type[Task]]:
    """Return the class of every task, of nnpipe, plugins and the program itself, by what descriptions call it."""
    return named(Task)
