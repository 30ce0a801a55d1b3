"""What a conversion claims to preserve: the same numbers, coarser numbers, or weights changed on purpose.

A compiler declares it (:meth:`nnpipe.core.compiler.ModelCompiler.claims`), the artifact's description
carries it, and whoever holds the artifact against its source judges by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest

Claim = Literal["float", "float16", "bfloat16", "int8-weights", "int8", "pruned", "clustered", "fine-tuned"]

NUMBERS: tuple[Claim, ...] = ("float", "float16", "bfloat16", "int8-weights", "int8")
"""Claims about the numbers that a model computes with, coarser ones later."""

CHANGES: tuple[Claim, ...] = ("pruned", "clustered", "fine-tuned")
"""Claims about weights that were changed on purpose."""


def checked(words: Iterable[str]) -> tuple[Claim, ...]:
    """Return claims in order, each once; "float" only where nothing coarser is claimed.

    Raises
    ------
    ConfigError
        If a word is no claim.
    """
    given, known = set(), get_args(Claim)
    for word in words:
        if word not in known:
            raise ConfigError(f"{word!r} is no claim: there are {', '.join(known)}{nearest(word, known)}")
        given.add(word)
    numbers = [claim for claim in NUMBERS if claim in given]
    return (*(numbers[-1:] or ["float"]), *(claim for claim in CHANGES if claim in given))


def numbers_of(claims: Iterable[Claim]) -> Claim:
    """Return the coarsest numbers that are claimed."""
    return checked(claims)[0]


def changes_of(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return what was changed on purpose."""
    return checked(claims)[1:]
