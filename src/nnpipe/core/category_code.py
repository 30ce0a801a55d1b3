"""Numbers that stand for categories in arrays, the same in every file and for every model."""

from __future__ import annotations

import hashlib

_BYTES = 6  # an integer of 48 bits is exact in float64


def encode_category(text: str) -> float:
    """Return the number that stands for a category: 48 bits of its digest, an integer that float64
    holds exactly.

    A model's encoding knows the categories of its training, and must find them in other files,
    where other categories come first; so their numbers cannot depend on the file.

    Examples
    --------
    >>> encode_category("red") == encode_category("red") != encode_category("blue")
    True
    """
    return float(
        int.from_bytes(
            hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_BYTES).digest(), "big"
        )
    )
