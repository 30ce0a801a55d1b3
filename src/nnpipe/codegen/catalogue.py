"""Every class of task."""

from __future__ import annotations

from typing import Any

from nnpipe.codegen.task import Task

# Classes are known once their modules are imported.
from nnpipe.codegen.tasks import calling, data, loggers, models, outputs, training  # noqa: F401


def task_classes() -> dict[str, type[Task]]:
    """Return the class of every task by what descriptions call it."""

    def below(cls: Any) -> list[Any]:
        return [found for child in cls.__subclasses__() for found in (child, *below(child))]

    return {cls.task: cls for cls in below(Task) if cls.task and cls.__module__.startswith("nnpipe.")}
