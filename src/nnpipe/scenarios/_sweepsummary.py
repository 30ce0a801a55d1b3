"""What a sweep found, as a table and as JSON for other tools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nnpipe.measure.constraints import Figure, Metric
from nnpipe.report.document import Cell, Table
from nnpipe.report.plain import to_text
from nnpipe.report.sweepfile import KIND, SCHEMA
from nnpipe.scenarios._choosing import Judged, shown
from nnpipe.scenarios._confirming import Confirmed
from nnpipe.scenarios._sweepfile import Sweep
from nnpipe.scenarios._sweeping import Done

_ROWS = 40


def table(sweep: Sweep, judged: Sequence[Judged]) -> str:
    """Give the candidates as a text, those most surely on the front first; at most forty of them."""
    metrics = _metrics(sweep)
    rows = sorted(judged, key=lambda one: (not one.qualifies, -one.front_share, one.title))[:_ROWS]
    columns = [("Candidate", [Cell(one.title) for one in rows])]
    columns += [(m.name, [_cell(m, one.figures[m.name]) for one in rows]) for m in metrics]
    columns.append(("front", [Cell(f"{100 * one.front_share:.0f} %", one.front_share) for one in rows]))
    if sweep.constraints:
        columns.append(("verdict", [Cell(_verdict(one)) for one in rows]))
    text = to_text(Table(tuple(head for head, _ in columns), tuple(zip(*(cells for _, cells in columns), strict=True))))
    hidden = len(judged) - len(rows)
    return f"{text}\n{hidden} more in sweep.json" if hidden else text


def summary(sweep: Sweep, done: Sequence[Done], judged: Sequence[Judged], found: Confirmed) -> dict[str, Any]:
    """Give everything that was found, as JSON can hold it; times in seconds, sizes in bytes, shares from 0 to 1."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "title": sweep.title,
        "confidence": sweep.confidence,
        "constraints": [constraint.text for constraint in sweep.constraints],
        "objectives": [metric.name for metric in sweep.objectives],
        "choose": sweep.choose.name,
        "chosen": found.chosen.title if found.chosen else None,
        "refuted": dict(found.refuted),
        "points": [_point(sweep, one) for one in judged],
        "failed": [{"title": d.point.title, "reason": d.outcome.reason} for d in done if d.outcome.run is None],
        "impossible": dict(sweep.impossible),
    }


def _point(sweep: Sweep, one: Judged) -> dict[str, Any]:
    return {
        "title": one.title,
        "result": f"results/{one.done.key}.json",
        "model": f"models/{one.done.artifact.name}" if one.done.artifact else None,
        "figures": {name: _figure(known) for name, known in one.figures.items()},
        "claims": {claim.constraint.text: claim.holds for claim in one.claims},
        "qualifies": one.qualifies,
        "on_front": one.on_front,
        "front_share": one.front_share,
    }


def _figure(known: Figure) -> dict[str, Any]:
    if known.value is None:
        return {"value": None, "reason": known.reason}
    low, high = (end if math.isfinite(end) else None for end in (known.low, known.high))
    return {"value": known.value, "low": low, "high": high, "count": known.count}


def _metrics(sweep: Sweep) -> list[Metric]:
    wanted = (*sweep.objectives, sweep.choose, *(constraint.metric for constraint in sweep.constraints))
    return list({metric.name: metric for metric in wanted}.values())


def _cell(metric: Metric, known: Figure) -> Cell:
    return Cell("–" if known.value is None else shown(metric, known.value), known.value)


def _verdict(one: Judged) -> str:
    if one.qualifies:
        return "qualifies"
    if one.killed_by:
        return "fails " + ", ".join(claim.constraint.metric.name for claim in one.killed_by)
    return "undecided: " + ", ".join(claim.constraint.metric.name for claim in one.claims if not claim.holds)
