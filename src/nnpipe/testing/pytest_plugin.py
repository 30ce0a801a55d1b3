"""A plugin of pytest: tests of components that need a program which is not on this machine are skipped, and say why.

Import both hooks into a ``conftest.py``, or run ``pytest -p nnpipe.testing.pytest_plugin``.  A test needs no mark:
what it calls raises :class:`~nnpipe.core.errors.MissingTool`, in a fixture or in the test.  Where the program is on the
machine, and only the test hides it, the error is an error like any other.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator

import pytest

from nnpipe.core.errors import MissingTool

# As it was before any test changed it.
_PATH = os.environ.get("PATH")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skip a test whose fixtures need a program that this machine lacks."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip a test that needs a program which this machine lacks."""
    return (yield from _skipping())


def _skipping() -> Generator[None, None, None]:
    try:
        return (yield)
    except MissingTool as error:
        if not any(shutil.which(command, path=_PATH) for command in error.commands):
            pytest.skip(str(error))
        raise
