"""A language model of impossible sizes is refused."""

from __future__ import annotations

from typing import Any

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.network import CharacterNetwork


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": 0}, "heads is 0; the least is 1"),
        ({"length": -1}, "length is -1; the least is 1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"width": 6}, "the width 6 is no multiple of the 4 heads"),
    ],
)
def test_sizes_that_make_no_network_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"LetterNetwork: {message}"):
        CharacterNetwork(5, **wrong)
