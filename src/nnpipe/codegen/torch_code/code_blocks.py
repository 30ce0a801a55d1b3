"""Containers of generated code: the statements of a function, the definitions of a script, and the names in use."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from nnpipe.codegen.syntax import assign, is_name
from nnpipe.codegen.torch_code.values import Expression


@dataclass
class Names:
    """The names in use in one scope."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        """Return an unused name that resembles ``wanted``, and mark it as used; equal calls give equal names."""
        # Python mangles names in classes that start with two underscores.
        stem = re.sub(r"[^a-zA-Z0-9]+", "_", wanted)
        stem = stem if stem.strip("_") else f"{stem}value"
        stem = stem if not stem[0].isdigit() else f"_{stem}"
        found, number = stem, 1
        while found in self.taken or not is_name(found):
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found


@dataclass
class Script:
    """The functions and classes of a script that networks need, in order, and the imports by module and name."""

    names: Names = field(default_factory=Names)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[tuple[str, str], ast.ImportFrom] = field(default_factory=dict)

    def imported(self, module: str, title: str) -> ast.Name:
        """Add the import of a function or class of an installed package, and return its name in the script.

        It is imported under another name if its own is taken.
        """
        if (module, title) not in self.imports:
            fresh = self.names.fresh(title)
            self.imports[module, title] = ast.ImportFrom(
                module, [ast.alias(title, fresh if fresh != title else None)], 0
            )
        (alias,) = self.imports[module, title].names
        return ast.Name(alias.asname or alias.name, ast.Load())

    def mark(self) -> tuple[set[str], dict[str, ast.stmt]]:
        """Return a copy of the present state for :meth:`back_to`."""
        return set(self.names.taken), dict(self.definitions)

    def back_to(self, mark: tuple[set[str], dict[str, ast.stmt]]) -> None:
        """Restore the state of a mark, to remove the traces of a failed attempt."""
        self.names.taken, self.definitions = set(mark[0]), dict(mark[1])

    def define(self, wanted: str, made: ast.FunctionDef | ast.ClassDef) -> str:
        """Add a definition and return its name; an equal definition that exists already is used again."""
        for known, node in self.definitions.items():
            made.name = known
            if ast.dump(made) == ast.dump(node):
                return known
        made.name = self.names.fresh(wanted)
        self.definitions[made.name] = made
        return made.name


@dataclass
class CodeBlock:
    """The statements of one function."""

    names: Names = field(default_factory=Names)
    statements: list[ast.stmt] = field(default_factory=list)

    def mark(self) -> tuple[set[str], int]:
        """Return the present state for :meth:`back_to`."""
        return set(self.names.taken), len(self.statements)

    def back_to(self, mark: tuple[set[str], int]) -> None:
        """Restore the state of a mark."""
        self.names.taken = set(mark[0])
        del self.statements[mark[1] :]

    def bind(self, value: Expression, wanted: str) -> Expression:
        """Add the assignment of a value to a new name, and return the name; return an atomic value itself."""
        if value.is_atomic:
            return value
        found = self.names.fresh(wanted)
        self.statements.append(assign(found, value.node))
        return Expression(ast.Name(found, ast.Load()), value.shape, value.live)
