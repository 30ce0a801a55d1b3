"""Suggest the nearest known name, list names, and convert them between styles."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_MOST = 20  # names that are listed


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known name closest to ``name``, or an empty string.

    The last part of a dotted name counts as much as the whole, so that a class
    that moved to another module is still found.
    """
    candidates = list(known)
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    last = name.rpartition(".")[2]
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in candidates}
    closest_last = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    if closest_last and (not found or closest_last[0] == last):
        found = [by_last[closest_last[0]]]
    return f"; did you mean {found[0]}?" if found else ""


def list_names(names: Sequence[str]) -> str:
    """Return names separated by commas, the first ones of many."""
    return ", ".join(names[:_MOST]) + (", ..." if len(names) > _MOST else "")


def snake_case(name: str) -> str:
    """Convert a class name to the style of Keras layer names: ``max_pooling2d`` for ``MaxPooling2D``."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
