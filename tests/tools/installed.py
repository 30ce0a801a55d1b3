"""Skips tests of what is not installed, without importing it: that costs seconds, where only a worker needs it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*packages: str) -> None:
    """Skip the test that calls this unless all packages are installed."""
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
