"""Problems of script descriptions, which are values that can be collected and reported together."""

from __future__ import annotations

from dataclasses import dataclass

CODES = {
    "structure": "a part of the description is missing, or has the wrong structure",
    "unknown-task": "a task of a kind that does not exist",
    "argument": "an argument of a task has an invalid value, is missing, or is not known",
    "name": "a name that is not an identifier, is a keyword of Python, or has another meaning in every script",
    "duplicate-name": "two tasks, two variables, or a task and a variable with the same name",
    "undeclared-variable": "a task names a variable that is not declared",
    "undeclared-task": "the last task, or a task that another one should follow, does not exist",
    "variable-kind": "a task is given a variable of a kind that it does not accept",
    "never-generated": "a variable is needed, and no task creates it",
    "generated-twice": "several tasks create the same variable",
    "cycle": "tasks that wait for each other",
    "variable-cycle": "tasks that need each other's variables",
    "island": "tasks or variables without a connection to the last task",
    "after-last": "a task that comes after the last one",
    "import": "an import that is not a dotted name of identifiers",
    "network": "a problem of a network, as nnpipe.layers reports it",
    "file": "a file that is needed to write the script is missing or damaged",
    "plugin": "a plugin whose functions cannot be called",
    "framework": "something that a framework does not support",
}
"""The codes of problems and their meanings."""


@dataclass(frozen=True, order=True)
class ScriptProblem:
    """One problem of a description.

    Attributes
    ----------
    code
        A key of :data:`CODES`.
    where
        The task, the variable or the path in the description; empty for the whole description.
    message
        What is wrong and how to mend it, in one line.
    """

    code: str
    where: str
    message: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such code: {self.code}")

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        # Names of variables come from the description and may hold unprintable characters.
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in f"{text} [{self.code}]")
