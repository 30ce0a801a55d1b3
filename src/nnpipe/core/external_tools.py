"""External programs that components run: their names, whether they are installed, and how to install them."""

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
        A description with its article: ``"a C++ compiler"``.
    commands
        Possible names of the program; one of them is enough.
    install
        How to install it, as the end of a sentence.
    """

    name: str
    commands: tuple[str, ...]
    install: str

    def find(self) -> str | None:
        """Return the path of the first of its commands that is installed, or None."""
        return next(filter(None, map(shutil.which, self.commands)), None)

    def check(self, needed_by: str) -> str:
        """Return the program's path.

        Raises
        ------
        MissingTool
            If it is not installed; the message says which component needs it and how to install it.
        """
        found = self.find()
        if found is None:
            error = MissingTool(f"{needed_by} needs {self.missing_text()}")
            error.commands = self.commands
            raise error
        return found

    def missing_text(self) -> str:
        """Return the end of a message: what is missing, and how to install it."""
        named = self.commands[0] if len(self.commands) == 1 else f"one of {', '.join(self.commands)}"
        return f"{self.name} on the PATH ({named}): {self.install}"


CXX = Tool("a C++ compiler", ("g++", "clang++", "c++"), "apt install g++, or xcode-select --install on macOS")
"""The compiler and linker for machine code of this computer."""

C = Tool("a C compiler", ("cc", "gcc", "clang"), "apt install gcc, or xcode-select --install on macOS")
"""The compiler of C for this computer."""
