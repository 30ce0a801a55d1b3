"""What benchmarks share: timing candidates against each other, and saying what came out.

A benchmark prints a table for people and, as its last line, one JSON object
for programs; it exits with status 0 if its goal holds and 1 otherwise.  The
object names the processor of the run, and the one on which the goal was seen.
Where a program, a package or data that it needs are missing, it says so in one
line and exits with status 77.
"""

from __future__ import annotations

import gc
import json
import random
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NoReturn

from nnpipe.measuring.host import read_host_facts

EPYC = "AMD EPYC (Zen 4), 2 cores, a virtual machine (KVM)"
"""A processor on which goals were seen to hold; each goal names its own.

What a ratio is depends on the processor: one on which waking another core is
dear shows less of a protocol's speed, one with wider vectors more of a
kernel's.
"""

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Real data sets and models, which lie beside some checkouts."""

_SKIPPED = 77  # as GNU Automake has it for tests that cannot be run


def skip(reason: str) -> NoReturn:
    """End a benchmark that lacks what it needs here: it has no result, and has not failed."""
    print(f"skipped: {reason}", file=sys.stderr)
    raise SystemExit(_SKIPPED)


def skip_without(*programs: str) -> None:
    """Skip a benchmark that needs programs of which some are not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        skip(f"not installed: {', '.join(missing)}")


def existing(path: Path) -> Path:
    """Return a file or folder that a benchmark needs; skip the benchmark if it is not there."""
    if not path.exists():
        skip(f"{path} does not exist")
    return path


def processors(seen_on: str) -> dict[str, str]:
    """Return this run's processor and the one on which the goal was seen to hold, for the
    closing JSON object.
    """
    facts = read_host_facts()
    cores = facts["cpu"]["logical_cores"]
    virtual = ", a virtual machine" if facts.get("hypervisor") else ""
    return {
        "processor": f"{facts['cpu']['model']}, {cores} cores{virtual}",
        "goal_seen_on": seen_on,
    }


def interleave(
    candidates: Mapping[str, Callable[[], Any]], rounds: int, seed: int = 0
) -> dict[str, list[float]]:
    """Time every candidate once a round, each round in another random order.

    So a machine that slows down or speeds up meanwhile does it to all alike.
    Garbage is collected before, not during, the timing.  Call each candidate
    once beforehand if its first call is not of interest.

    Parameters
    ----------
    candidates
        Functions without arguments, by name.
    rounds
        How often each is called.
    seed
        Of the order.

    Returns
    -------
    dict
        Seconds of each call, by name, in the order of the rounds.
    """
    order, shuffle = list(candidates), random.Random(seed).shuffle
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffle(order)
            for name in order:
                call = candidates[name]
                start = perf_counter_ns()
                call()
                seconds[name].append((perf_counter_ns() - start) / 1e9)
    finally:
        if collecting:
            gc.enable()
    return seconds


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table; the first row's keys are the columns.  Numbers are shown with four
    digits.
    """
    if not rows:
        return
    cells = [list(rows[0]), *([_cell(row.get(column, "")) for column in rows[0]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        all(isinstance(row.get(column, 0), (int, float)) for row in rows) for column in rows[0]
    ]
    for line in cells:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(padded).rstrip())


def report(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    value: float | None,
    unit: str,
    reference: float | None,
    ratio: float | None,
    goal: str,
    holds: bool,
    parts: Sequence[Mapping[str, Any]] = (),
    *,
    seen_on: str,
) -> int:
    """Print the table and the closing JSON object.

    Parameters
    ----------
    rows
        The table, see :func:`show`.
    name
        What was measured.
    value, reference, unit
        The figure for nnpipe, the one it is set against, and the unit of both; ``None`` where there
        is no figure.
    ratio
        How the two compare; ``goal`` says which way.
    goal
        What must hold, in words and numbers.
    holds
        Whether it does.
    parts
        With several goals: an object with the same fields for each, where the
        others describe the one with the least margin.  Each names the processor
        on which it was seen to hold as ``seen_on``.
    seen_on
        The processor on which the goal was seen to hold.

    Returns
    -------
    int
        The exit status: 0 if the goal holds, else 1.
    """
    show(rows)
    found: dict[str, Any] = {
        "name": name,
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": ratio,
        "goal": goal,
        "holds": bool(holds),
    }
    if parts:
        silent = [part["name"] for part in parts if not part.get("seen_on")]
        if silent:
            raise ValueError(
                f"no processor is named on which these goals were seen to hold: {', '.join(silent)}"
            )
        found["parts"] = [dict(part) for part in parts]
    print(json.dumps(found | processors(seen_on)))
    return 0 if holds else 1


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def at_most(name: str, value: float, limit: float, holds: bool, seen_on: str) -> dict[str, Any]:
    """Return one of several goals, a limit from above, for the ``parts`` of :func:`report`."""
    return {
        "name": name,
        "value": value,
        "unit": "",
        "reference": limit,
        "ratio": value / limit,
        "goal": f"<= {limit:g}",
        "holds": bool(holds),
        "seen_on": seen_on,
    }
