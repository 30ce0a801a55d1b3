"""Programs of other makers that components run: which, whether they are here, and how to get them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from nnpipe.core.errors import MissingTool


@dataclass(frozen=True)
class Tool:
    """A program that must be on the search path.

    Attributes
    ----------
    name
        What it is, with its article: ``"a C++ compiler"``.
    commands
        Names that it may bear; one of them is enough.
    install
        How to get it, as the end of a sentence.
    """

    name: str
    commands: tuple[str, ...]
    install: str

    def find(self) -> str | None:
        """Return the path of the first of its commands that is there, nothing if none is."""
        return next(filter(None, map(shutil.which, self.commands)), None)

    def check(self, needed_by: str) -> str:
        """Return its path; raise :class:`MissingTool`, saying who needs it and how to get it, if it is not there."""
        found = self.find()
        if found is None:
            error = MissingTool(f"{needed_by} needs {self.missing_text()}")
            error.commands = self.commands
            raise error
        return found

    def missing_text(self) -> str:
        """Return the end of a sentence that says what is missing where, and how to get it."""
        named = self.commands[0] if len(self.commands) == 1 else f"one of {', '.join(self.commands)}"
        return f"{self.name} on the PATH ({named}): {self.install}"


CXX = Tool("a C++ compiler", ("g++", "clang++", "c++"), "apt install g++, or xcode-select --install on macOS")
"""What links and compiles machine code here."""
