"""Formatting of recorded runs as text and as JSON."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.query import QueryField, parse_field
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.database.searches import SearchRecord
from nnpipe.experiment.settings import leaves
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.terminal import to_text
from nnpipe.scenarios._cli.run_differences import differences
from nnpipe.scenarios._cli.search_tables import search_details

_SHOWN = 5  # statistics in a list


def listing(runs: Sequence[RunRecord], fields: Sequence[str], searches: Mapping[str, SearchRecord]) -> str:
    """Return a table of runs, with the given fields, or with the figures that most of the runs have.

    Beside the names of runs of one experiment stands what tells them apart.

    Parameters
    ----------
    runs
        The runs.
    fields
        The names of fields; by default statistics, and the best values of searches.
    searches
        Those of the runs that are searches, by identity.
    """
    columns = [parse_field(name) for name in fields] or _common(runs, searches)
    table = [("run", [run.id[:12] for run in runs]), ("experiment", [clean(run.experiment) for run in runs])]
    differing = differences(runs)
    if any(differing.values()):
        table.append(("differs by", [differing[run.id] or "-" for run in runs]))
    table += [
        ("status", [run.status for run in runs]),
        ("began (UTC)", [_when(run.started or run.created) for run in runs]),
        ("took", [_took(run) for run in runs]),
    ]
    for column in columns:
        table.append((_name(column), [_value(_of(run, column, searches.get(run.id))) for run in runs]))
    header, cells = zip(*table, strict=True)
    rows = list(zip(*cells, strict=True))
    return _table(header, rows)


def details(database: RunDatabase, identity: str) -> str:
    """Return everything about a run as text."""
    run = database.runs.get(identity)
    of = f" of {run.total}" if run.total else ""
    facts = [
        ("run", run.id),
        ("experiment", clean(run.experiment)),
        ("status", f"{run.status}{': ' + clean(run.reason) if run.reason else ''}"),
        ("steps", f"{run.done}{of}"),
        ("created", _when(run.created)),
        ("began", _when(run.started)),
        ("ended", f"{_when(run.ended)} (after {_took(run)})" if run.ended else "-"),
        ("host", clean(run.host) + (f", process {run.process}" if run.process else "")),
        ("parents", ", ".join(parent[:12] for parent in run.parents) or "-"),
        ("children", ", ".join(child.id[:12] for child in database.runs.children(run.id)) or "-"),
    ]
    parts = ["\n".join(f"{name:<11}{value}" for name, value in facts)]
    search = database.searches.among([run.id]).get(run.id)
    if search is not None:
        parts += search_details(database, search)
    settings = [f"  {clean(path)} = {clean(_plain(value))}" for path, value in leaves(run.configuration)]
    parts.append(_section("configuration", settings))
    statistics = database.figures.statistics(run.id)
    if statistics:
        rows = [
            (clean(n), _value(s.mean), _value(s.deviation), _value(s.least), _value(s.greatest), str(s.count))
            for n, s in statistics.items()
        ]
        parts.append(_table(("statistic", "mean", "deviation", "least", "greatest", "count"), rows))
    histories = [f"  {clean(name)}: {rows:,} rows" for name, rows in database.figures.histories(run.id).items()]
    parts.append(_section("histories", histories))
    artifacts = [f"  {clean(a.name)}: {a.kind}, {a.size:,} bytes" for a in database.artifacts.list(run.id)]
    parts.append(_section("artifacts", artifacts))
    parts.append(_section("code", [f"  {clean(o.path)}: {clean(o.told)}" for o in database.origins(run.id)]))
    return "\n\n".join(part for part in parts if part)


def comparison(database: RunDatabase, identities: Sequence[str]) -> str:
    """Return a table of the settings, code and packages in which runs differ, and of all their statistics."""
    runs = [database.runs.get(identity) for identity in identities]
    rows: list[tuple[str, ...]] = [("experiment", *(clean(run.experiment) for run in runs))]
    rows.append(("status", *(run.status for run in runs)))
    settings = [{path: _plain(value) for path, value in leaves(run.configuration)} for run in runs]
    code = [{f"code {o.path}": o.told for o in database.origins(run.id)} for run in runs]
    packages = [{f"package {n}": str(v) for n, v in _packages(run).items()} for run in runs]
    for facts in (settings, code, packages):
        for name in dict.fromkeys(name for fact in facts for name in fact):
            values = [fact.get(name, "-") for fact in facts]
            if len(set(values)) > 1:
                rows.append((clean(name), *map(clean, values)))
    for name in dict.fromkeys(name for run in runs for name in run.statistics):
        rows.append((f"statistics {clean(name)}", *(_value(run.statistics.get(name)) for run in runs)))
    return _table(("", *(run.id[:12] for run in runs)), rows)


def to_json(database: RunDatabase, identity: str) -> dict[str, Any]:
    """Return everything about a run as values for JSON; NaN and infinity become strings."""
    run = database.runs.get(identity)
    names = ("id", "experiment", "status", "reason", "done", "total", "created", "started", "ended", "host")
    found = {name: getattr(run, name) for name in names}
    return {
        **found,
        "parents": list(run.parents),
        **_search_json(database, run.id),
        "environment": run.environment,
        "configuration": _finite(run.configuration),
        "statistics": {
            name: {field: _finite(value) for field, value in vars(statistic).items()}
            for name, statistic in database.figures.statistics(identity).items()
        },
        "histories": {
            name: [_finite(row) for row in database.figures.history(identity, name).rows()]
            for name in database.figures.histories(identity)
        },
        "artifacts": [vars(artifact) for artifact in database.artifacts.list(identity)],
        "origins": [origin.to_json() for origin in database.origins(identity)],
    }


def _search_json(database: RunDatabase, identity: str) -> dict[str, Any]:
    search = database.searches.among([identity]).get(identity)
    if search is None:
        return {}
    names = ("number", "state", "configuration", "values", "reports", "seconds", "message", "worker", "origin")
    trials = database.searches.trials(identity).since(0)[1]
    return {
        "search": {
            "objectives": dict(search.objectives),
            "best": dict(search.best),
            "trials": [
                {name: _finite(list(map(list, trial[name])) if name == "reports" else trial[name]) for name in names}
                for trial in sorted(trials, key=lambda trial: trial["number"])
            ],
        }
    }


def _packages(run: RunRecord) -> dict[str, Any]:
    found = run.environment.get("packages")
    return found if isinstance(found, dict) else {}


def _common(runs: Sequence[RunRecord], searches: Mapping[str, SearchRecord]) -> list[QueryField]:
    counts: dict[QueryField, int] = {}
    for run in runs:
        best = searches[run.id].best if run.id in searches else {}
        fields = [QueryField("statistics", name) for name in run.statistics]
        for field in (*fields, *(QueryField("best", name) for name in best)):
            counts[field] = counts.get(field, 0) + 1
    found = sorted(counts, key=lambda field: -counts[field])[:_SHOWN]
    return [*([QueryField("trials", "finished")] if searches else []), *found]


def _of(run: RunRecord, field: QueryField, search: SearchRecord | None = None) -> Any:
    if field.group in ("best", "trials"):
        of = {} if search is None else search.best if field.group == "best" else search.counts
        return of.get(field.name, 0 if field.group == "trials" and search else None)
    if field.group == "statistics":
        return run.statistics.get(field.name)
    if field.group == "configuration":
        return dict(leaves(run.configuration)).get(field.name)
    if field.group == "parent":
        return ", ".join(parent[:12] for parent in run.parents)
    value = getattr(run, field.group)
    return _when(value) if field.group in ("created", "started", "ended") else value


def _name(field: QueryField) -> str:
    if field.group in ("best", "trials"):
        return clean(f"best {field.name}" if field.group == "best" else f"trials {field.name}")
    return clean(field.name or field.group)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else clean(str(value))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _when(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _took(run: RunRecord) -> str:
    if run.duration is None:
        return "-"
    return f"{run.duration:.1f} s" if run.duration < 600 else str(datetime.timedelta(seconds=round(run.duration)))


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"{title}:", *lines)) if lines else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return to_text(Table(tuple(header), tuple(tuple(Cell(text) for text in row) for row in rows)))
