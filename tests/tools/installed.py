"""Skips tests of what is not installed, without importing it: that costs seconds, where only a
worker needs it.

Every worker imports every test module, and what it imports, before the first test: a framework that
a module imports at once costs each worker its seconds, even one that is handed no test of it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


def needs(*packages: str) -> None:
    """Skip the test, or the module, that calls this unless all packages are installed."""
    for package in packages:
        if not _is_installed(package):
            pytest.skip(f"{package} is not installed", allow_module_level=True)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    # which `find_spec("iree.compiler")` raises where there is no `iree`
    except ModuleNotFoundError:
        return False


class ImportedWhenUsed:
    """Stands for a module of a package: skips the tests where that is missing, is imported at
    its first use.
    """

    def __init__(self, module: str) -> None:
        # to look for a module inside a package would import the package
        needs(module.partition(".")[0])
        self._module = module

    def __getattr__(self, name: str) -> Any:
        # pytest asks everything in a module whether it is a fixture or a mock
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)
