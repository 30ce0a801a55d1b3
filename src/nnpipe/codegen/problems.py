"""What is wrong with a description of a script: values, so that all of it can be told at once."""

from __future__ import annotations

from dataclasses import dataclass

CODES = {
    "structure": "a part of the description is missing, or not built as it must be",
    "unknown-task": "a task of a kind that there is not",
    "argument": "an argument of a task has a value that it cannot take, is missing, or is not known",
    "name": "a name that is no identifier, is a word of Python's, or that every script uses for something else",
    "duplicate-name": "two tasks, two variables, or a task and a variable of one name",
    "undeclared-variable": "a task names a variable that is not declared",
    "undeclared-task": "a task is to come after one that is not there, or the last task is not there",
    "variable-kind": "a task is given a variable of a kind that it does not take",
    "never-generated": "a variable is needed, and no task makes it",
    "generated-twice": "several tasks make the same variable",
    "cycle": "tasks that wait for each other",
    "variable-cycle": "tasks that need what comes out of each other",
    "island": "tasks or variables that nothing connects with the last task",
    "after-last": "a task that comes after the last one",
    "import": "an import that is no dotted name of identifiers",
    "network": "something is wrong with a network: what nnpipe.layers says of it",
    "file": "a file that is to be read when the script is written is missing or damaged",
    "plugin": "a plugin whose functions cannot be called",
    "framework": "something that one framework cannot do",
}
"""Every code of a problem, and what it means."""


@dataclass(frozen=True, order=True)
class ScriptProblem:
    """One thing that is wrong.

    Attributes
    ----------
    code
        A key of :data:`CODES`.
    where
        The task, variable or place in the file; empty for the whole.
    message
        What is wrong, and how to mend it, in one line.
    """

    code: str
    where: str
    message: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such code: {self.code}")

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        # Names of variables come from the description, and may hold anything.
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in f"{text} [{self.code}]")
