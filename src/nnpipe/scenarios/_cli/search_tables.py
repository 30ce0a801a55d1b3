"""What ``nnpipe runs show`` says about a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.query import TRIAL_STATES
from nnpipe.experiment.database.searches import SearchRecord
from nnpipe.report.document import Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.terminal import to_text

_SHOWN = 5  # trials
_LONGEST = 24


def search_details(database: RunDatabase, search: SearchRecord) -> list[str]:
    """Return parts of text on a search: its trials by state, its best values, and its best trials in a table."""
    counts = ", ".join(f"{search.counts[state]:,} {state}" for state in TRIAL_STATES if search.counts.get(state))
    taken = f" ({search.taken_over:,} taken over)" if search.taken_over else ""
    lines = [f"search:\n  trials: {counts or 'none'}{taken}"]
    for name, way in search.objectives.items():
        best = f"{search.best[name]:.6g}" if name in search.best else "-"
        lines.append(f"  {clean(name)}, to {way}: best {best}")
    return ["\n".join(lines), *_best(database, search)]


def _best(database: RunDatabase, search: SearchRecord) -> list[str]:
    first, way = next(iter(search.objectives.items()))
    trials = [
        trial
        for trial in database.searches.trials(search.run.id).since(0)[1]
        if trial["state"] == "finished" and first in trial["values"]
    ]
    sign = -1.0 if way == "maximize" else 1.0
    order = sorted(trials, key=lambda trial: (sign * trial["values"][first], trial["number"]))[:_SHOWN]
    if not order:
        return []
    names = list(dict.fromkeys(name for trial in order for name in trial["configuration"] or {}))
    rows = tuple(_row(trial, search.objectives, names) for trial in order)
    table = to_text(Table(("trial", *map(clean, search.objectives), *map(clean, names)), rows))
    return [f"best trials by {clean(first)}:\n{table}"]


def _row(trial: Mapping[str, Any], objectives: Mapping[str, str], names: list[str]) -> tuple[str, ...]:
    values = (_text(trial["values"].get(name)) for name in objectives)
    return (str(trial["number"]), *values, *(_text((trial["configuration"] or {}).get(name)) for name in names))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else clean(str(value), _LONGEST)
