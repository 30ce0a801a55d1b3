"""How many examples property tests draw: all of them in `make test-all`, a quarter in `make
test`.
"""

from __future__ import annotations

import os

THOROUGH = os.environ.get("NNPIPE_TESTS") == "all"


def examples(number: int) -> int:
    """Return how many of so many examples this run draws."""
    return number if THOROUGH else max(number // 4, 5)
