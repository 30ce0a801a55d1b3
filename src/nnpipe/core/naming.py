"""Suggesting the name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Give ``"; did you mean X?"`` for the known name closest to ``name``, or nothing.

    The last part of a dotted name weighs as much as the whole: a class that
    moved to another module is found by its own name.
    """
    candidates = list(known)
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    last = name.rpartition(".")[2]
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in candidates}
    closest_last = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    if closest_last and (not found or closest_last[0] == last):
        found = [by_last[closest_last[0]]]
    return f"; did you mean {found[0]}?" if found else ""
