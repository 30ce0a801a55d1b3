"""The scope in which expressions are evaluated."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from nnpipe.codegen.torch_code.code_blocks import CodeBlock, Script
from nnpipe.codegen.torch_code.sources import Closure
from nnpipe.codegen.torch_code.values import Untranslatable

Inline: TypeAlias = "Callable[[Closure, list[Any], Mapping[str, Any], Scope], Any]"


@dataclass(frozen=True)
class Scope:
    """The scope in which an expression is evaluated.

    ``block`` receives statements that must come before the expression.  It is
    ``None`` where no statement is possible, such as in a branch of an expression.
    ``inline`` returns the result of a call of a Python function.
    """

    local: Mapping[str, Any]
    closure: Closure
    script: Script
    block: CodeBlock | None
    inline: Inline

    def value(self, name: str) -> Any:
        """Return the value of a name; raise :class:`Untranslatable` if it is not known."""
        for values in (self.local, self.closure.around, self.closure.globals, vars(builtins)):
            if name in values:
                return values[name]
        raise Untranslatable(f"{name} is not known")

    def inner(self, local: Mapping[str, Any]) -> Scope:
        """Return the scope with further local names, in which no statements can be added."""
        return replace(self, local={**self.local, **local}, block=None)
