"""What expressions are evaluated in."""

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
    """What an expression is evaluated in.

    ``block`` takes statements that must come before it; where there may be none
    (a branch of an expression, a comprehension) it is ``None``.  ``inline`` puts
    a function in where it is called.
    """

    local: Mapping[str, Any]
    closure: Closure
    script: Script
    block: CodeBlock | None
    inline: Inline

    def value(self, name: str) -> Any:
        """Find the value of a name."""
        for values in (self.local, self.closure.around, self.closure.globals, vars(builtins)):
            if name in values:
                return values[name]
        raise Untranslatable(f"{name} is not known")

    def inner(self, local: Mapping[str, Any]) -> Scope:
        """Return the scope of a branch or a comprehension."""
        return replace(self, local={**self.local, **local}, block=None)
