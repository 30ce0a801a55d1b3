"""Data that are beside a checkout in ``../shared/data``, and not part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared_data(path: str) -> Path:
    """Return a file or folder of the shared data; skip the test that asks if it is not there."""
    found = _DATA / path
    if not found.exists():
        pytest.skip(f"{found} is not there")
    return found
