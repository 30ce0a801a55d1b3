"""A pytest plugin that skips tests of components if a program that they need is not installed.

Import both hooks into a ``conftest.py``, or run ``pytest -p nnpipe.testing.pytest_plugin``.  A test
needs no mark: it is skipped if it or a fixture raises :class:`~nnpipe.core.errors.MissingTool`.  If
the program is installed and only hidden by the test, the error is a normal error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator

import pytest

from nnpipe.core.errors import MissingTool

# The value before any test changes it.
_PATH = os.environ.get("PATH")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skip a test whose fixtures need a program that this machine lacks."""
    return (yield from _skip_missing_tool())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip a test that needs a program that this machine lacks."""
    return (yield from _skip_missing_tool())


def _skip_missing_tool() -> Generator[None, None, None]:
    try:
        return (yield)
    except MissingTool as error:
        if not any(shutil.which(command, path=_PATH) for command in error.commands):
            pytest.skip(str(error))
        raise
