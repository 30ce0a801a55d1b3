"""What the page of many results costs: its size, and what a browser needs to show it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from _growth import growth
from _table import EPYC

from report import MANY_GOALS, many_results

_UNITS = {"MB": "MB", "nodes": "", "load, s": "s"}


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge the page of 300 results against that of 50; without a browser, its size alone."""
    found = {}
    for number in (50, 300):
        with tempfile.TemporaryDirectory() as folder:
            found[number] = many_results(Path(folder), number, 500 if quick else 2000)
    return [
        growth(
            f"page of results: {name}",
            _UNITS[name],
            list(found),
            [each[name] for each in found.values()],
            goal,
            seen_on=EPYC,
        )
        for name, goal in MANY_GOALS.items()
        if all(each[name] is not None for each in found.values())
    ]
