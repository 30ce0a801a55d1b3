"""Functions of PyTorch that are named before it is imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class LateFunctions:
    """Functions of a module that is imported at the first call of one of them.

    The table of operators is also read to tell which ones are not translated, for which
    PyTorch (1 s) is not needed.

    Parameters
    ----------
    module
        The name of the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: getattr(importlib.import_module(self._module), name)(*arguments, **options)
