"""Lets the tests of this folder import its toys and the trainer's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


@pytest.fixture(scope="module")
def sketched() -> Iterator[None]:
    """Save figures without rendering them, for tests of which pictures come when; others look at
    real ones.
    """
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    from sketches import sketching

    with sketching():
        yield
