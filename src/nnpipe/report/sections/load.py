"""The tables of the load of a run and the results of its audits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.max_rate import LatencyBound, describe
from nnpipe.measuring.punctuality import LATE_NS, Punctuality
from nnpipe.report.document import Block, Cell, Paragraph, Table
from nnpipe.report.formatting import clean, count, digits, duration, share
from nnpipe.report.inputs.candidate import Candidate

_VERDICTS = {"kept": "kept, at 99\u00a0% confidence", "broken": "broken", "open": "not shown: too few queries"}


def load_blocks(candidate: Candidate) -> list[Block]:
    """Return a table of the load and its schedule, and the audits; an empty list without a load and audits."""
    load = candidate.run.timing.get("load")
    blocks = [_table(candidate, load)] if isinstance(load, Mapping) and len(candidate.inference) else []
    return [*blocks, *_audits(candidate)]


def _table(candidate: Candidate, load: Mapping[str, Any]) -> Block:
    inference = candidate.inference
    busy_ns = _number(load.get("busy_ns"))
    rate = len(inference) / (busy_ns / 1e9) if busy_ns else None
    rows = [
        ("scenario", clean(load.get("scenario", ""), 40)),
        ("samples in a query", _whole(load.get("samples_per_query"))),
        ("queries a second asked for", digits(_number(load.get("rate")), 4)),
        ("queries a second answered", digits(rate, 4)),
        ("ended by", clean(load.get("ended", ""), 40)),
        ("due and not sent when it ended", _whole(load.get("unanswered"))),
    ]
    punctuality = Punctuality.of(inference)
    if punctuality is not None:
        rows += [
            ("had to wait for others", share(punctuality.queued / punctuality.queries, 1)),
            (
                f"sent more than {duration(LATE_NS)} late",
                f"{count(punctuality.late)} ({share(punctuality.late / punctuality.queries, 1)})",
            ),
            ("lateness: median, p99, worst", ", ".join(map(duration, _lateness(punctuality)))),
        ]
    rows += _bound(candidate, load)
    cells = tuple((name, Cell(value, 0.0)) for name, value in rows if value not in ("", "–"))
    caption = "The load; a latency lasts from when its query was " + ("due" if punctuality is not None else "sent")
    if load.get("scenario") == "offline":
        caption = "The load; a time lasts from the answer before"
    return Table(("Quantity", "Value"), cells, caption=caption)


def _lateness(found: Punctuality) -> tuple[float, ...]:
    return found.median_ns, found.p99_ns, found.worst_ns


def _bound(candidate: Candidate, load: Mapping[str, Any]) -> list[tuple[str, str]]:
    search = load.get("search")
    found = [("highest rate", clean(search.get("reason", ""), 200))] if isinstance(search, Mapping) else []
    text = load.get("max_latency")
    if not isinstance(text, str):
        return found
    try:
        bound = LatencyBound.parse(text[:40])
    except ConfigError:
        return found
    verdict = _VERDICTS[bound.judge(candidate.inference["latency_ns"])]
    return [*found, (clean(describe(bound), 60), verdict)]


def _audits(candidate: Candidate) -> list[Block]:
    found: list[Block] = []
    for name, audit in candidate.run.audits.items():
        if not isinstance(audit, Mapping):
            continue
        verdict, reason = clean(audit.get("verdict", ""), 40), clean(audit.get("reason", ""), 300)
        text = f"Audit of {clean(name, 40)}: {verdict}. {reason}."
        found.append(Paragraph(text, "warning" if verdict == "failed" else "note"))
    return found


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e18:
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _whole(value: object) -> str:
    return count(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else ""
