"""``nnpipe info CLASS`` says each argument once."""

from __future__ import annotations

import pytest

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import find
from nnpipe.scenarios.info import describe


@pytest.mark.parametrize(
    "name",
    ["nnpipe.layers.vocabulary.dense.Dense", "nnpipe.layers.vocabulary.reshaping.Concatenate"],
)
def test_arguments_are_listed_once(name: str) -> None:
    text = describe(find(name, Discoverable))
    assert "arguments:" in text
    assert "----" not in text
