"""Makes the toy components and the helpers beside a test importable by name, in subprocesses
too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TOYS = Path(__file__).resolve().parents[1] / "scenarios"


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.syspath_prepend(str(request.path.parent))
