"""What a conversion claims about its result: the same precision, a lower one, or weights changed on purpose.

A compiler declares it (:meth:`nnpipe.core.compiler.ModelCompiler.claims`), the artifact's description
carries it, and whoever holds the artifact against its source judges by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest

Claim = Literal[
    "float", "float16", "bfloat16", "int8-weights", "int8", "int4-weights", "pruned", "clustered", "fine-tuned"
]

NUMBERS: tuple[Claim, ...] = ("float", "float16", "bfloat16", "int8-weights", "int8", "int4-weights")
"""Claims about the number format that a model computes with, from the most precise to the least."""

INTEGERS: tuple[Claim, ...] = ("int8-weights", "int8", "int4-weights")
"""Those of them by which weights are integers with a scale."""

WEIGHTS_ONLY: tuple[Claim, ...] = ("int8-weights", "int4-weights")
"""Those of them by which nothing but products with weights is computed with integers."""

CHANGES: tuple[Claim, ...] = ("pruned", "clustered", "fine-tuned")
"""Claims about weights that were changed on purpose."""


def checked(words: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims in order, without repetitions; ``"float"`` only if no lower precision is claimed.

    Raises
    ------
    ConfigError
        If a word is not a claim.
    """
    given, known = set(), get_args(Claim)
    for word in words:
        if word not in known:
            raise ConfigError(f"{word!r} is no claim: there are {', '.join(known)}{nearest(word, known)}")
        given.add(word)
    numbers = [claim for claim in NUMBERS if claim in given]
    return (*(numbers[-1:] or ["float"]), *(claim for claim in CHANGES if claim in given))


def numbers_of(claims: Iterable[Claim]) -> Claim:
    """Return the lowest precision that is claimed."""
    return checked(claims)[0]


def changes_of(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return the claims about weights that were changed on purpose."""
    return checked(claims)[1:]
