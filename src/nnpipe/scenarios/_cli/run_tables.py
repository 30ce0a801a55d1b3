"""Formatting of recorded runs as text and as JSON."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.query import TRIAL_STATES, QueryField, parse_field
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.database.searches import SearchRecord
from nnpipe.experiment.settings import iterate_leaves
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.tables import to_text

_LONGEST = 40  # characters of a value


def describe_run_differences(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return for each run what tells it from the others of its experiment, by identity.

    These are few of its settings, and its host and versions of packages only where settings do not
    suffice.  The text is empty if there is nothing, or the run is the only one of its experiment.
    """
    experiments: dict[str, list[RunRecord]] = {}
    for run in runs:
        experiments.setdefault(run.experiment, []).append(run)
    found = {}
    for alike in experiments.values():
        facts = [_collect_facts(run) for run in alike]
        names = _select_distinguishing_names(facts)
        for run, own in zip(alike, facts, strict=True):
            found[run.id] = ", ".join(_iter_distinguishing_texts(own, facts, names))
    return found


def _collect_facts(run: RunRecord) -> dict[str, str]:
    settings = dict(iterate_leaves(run.configuration))
    packages = run.environment.get("packages")
    settings["host"] = run.host
    if isinstance(packages, dict):
        settings |= {f"packages.{name}": version for name, version in packages.items()}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
        if value not in ([], {})  # as if it were not there
    }


def _iter_distinguishing_texts(
    own: Mapping[str, str], facts: Sequence[Mapping[str, str]], names: Sequence[str]
) -> Iterator[str]:
    """Yield the facts of a run until no other run has the same."""
    others = [other for other in facts if other is not own]
    for name in names:
        if name in own and others:
            yield _format_setting(name, own[name], names)
        others = [other for other in others if other.get(name) == own.get(name)]


def _select_distinguishing_names(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of facts that together divide runs into as many groups as all of them,
    the best first.
    """
    names = dict.fromkeys(name for own in facts for name in own)
    columns = {name: [own.get(name, "") for own in facts] for name in names}
    columns = {name: values for name, values in columns.items() if len(set(values)) > 1}
    groups = len(set(zip(*columns.values(), strict=True)))
    parts: list[tuple[str, ...]] = [()] * len(facts)
    chosen: list[str] = []
    while len(set(parts)) < groups:
        best = min(
            columns,
            key=lambda name: (
                -_count_groups(parts, columns[name]),
                *_rank_fact(name, columns[name]),
            ),
        )
        parts = [(*part, value) for part, value in zip(parts, columns.pop(best), strict=True)]
        chosen.append(best)
    return chosen


def _count_groups(parts: Sequence[tuple[str, ...]], values: Sequence[str]) -> int:
    return len(set(zip(parts, values, strict=True)))


def _rank_fact(name: str, values: Sequence[str]) -> tuple[bool, bool, int]:
    """Return what is compared of facts that divide runs equally well; the least is what a reader
    knows best.
    """
    last = name.rpartition(".")[2]
    around = name == "host" or name.startswith("packages.")
    return around, last not in ("title", "class"), max(map(len, values))


def _format_setting(name: str, value: str, names: Sequence[str]) -> str:
    first, _, last = name.rpartition(".")
    value = clean(value, _LONGEST)
    if name in ("title", "host"):
        return value
    if last == "class":
        return value.rpartition(".")[2]
    again = [other for other in names if other.rpartition(".")[2] == last]
    return f"{clean(last if len(again) == 1 else f'{first}.{last}')}={value}"


_SHOWN = 5  # trials
_LONGEST_VALUE = 24


def search_details(database: RunDatabase, search: SearchRecord) -> list[str]:
    """Return parts of text on a search: its trials by state, its best values, and its best
    trials in a table.
    """
    counts = ", ".join(
        f"{search.counts[state]:,} {state}" for state in TRIAL_STATES if search.counts.get(state)
    )
    taken = f" ({search.taken_over:,} taken over)" if search.taken_over else ""
    lines = [f"search:\n  trials: {counts or 'none'}{taken}"]
    for name, way in search.objectives.items():
        best = f"{search.best[name]:.6g}" if name in search.best else "-"
        lines.append(f"  {clean(name)}, to {way}: best {best}")
    return ["\n".join(lines), *_format_best_trials(database, search)]


def _format_best_trials(database: RunDatabase, search: SearchRecord) -> list[str]:
    first, way = next(iter(search.objectives.items()))
    trials = [
        trial
        for trial in database.searches.trials(search.run.id).read_changes(0)[1]
        if trial["state"] == "finished" and first in trial["values"]
    ]
    sign = -1.0 if way == "maximize" else 1.0
    order = sorted(trials, key=lambda trial: (sign * trial["values"][first], trial["number"]))[
        :_SHOWN
    ]
    if not order:
        return []
    names = list(dict.fromkeys(name for trial in order for name in trial["configuration"] or {}))
    rows = tuple(_format_trial_row(trial, search.objectives, names) for trial in order)
    table = to_text(Table(("trial", *map(clean, search.objectives), *map(clean, names)), rows))
    return [f"best trials by {clean(first)}:\n{table}"]


def _format_trial_row(
    trial: Mapping[str, Any], objectives: Mapping[str, str], names: list[str]
) -> tuple[str, ...]:
    values = (_format_trial_value(trial["values"].get(name)) for name in objectives)
    return (
        str(trial["number"]),
        *values,
        *(_format_trial_value((trial["configuration"] or {}).get(name)) for name in names),
    )


def _format_trial_value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else clean(str(value), _LONGEST_VALUE)


def format_runs_table(
    runs: Sequence[RunRecord], fields: Sequence[str], searches: Mapping[str, SearchRecord]
) -> str:
    """Return a table of runs, with the given fields, or with the figures that most of the runs
    have.

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
    columns = [parse_field(name) for name in fields] or _select_common_fields(runs, searches)
    table = [
        ("run", [run.id[:12] for run in runs]),
        ("experiment", [clean(run.experiment) for run in runs]),
    ]
    differing = describe_run_differences(runs)
    if any(differing.values()):
        table.append(("differs by", [differing[run.id] or "-" for run in runs]))
    table += [
        ("status", [run.status for run in runs]),
        ("began (UTC)", [_format_time(run.started or run.created) for run in runs]),
        ("took", [_format_run_duration(run) for run in runs]),
    ]
    for column in columns:
        table.append(
            (
                _format_field_name(column),
                [_format_value(_get_field(run, column, searches.get(run.id))) for run in runs],
            )
        )
    header, cells = zip(*table, strict=True)
    rows = list(zip(*cells, strict=True))
    return _format_table(header, rows)


def format_run_details(database: RunDatabase, identity: str) -> str:
    """Return everything about a run as text."""
    run = database.runs.get(identity)
    of = f" of {run.total}" if run.total else ""
    facts = [
        ("run", run.id),
        ("experiment", clean(run.experiment)),
        ("status", f"{run.status}{': ' + clean(run.reason) if run.reason else ''}"),
        ("steps", f"{run.done}{of}"),
        ("created", _format_time(run.created)),
        ("began", _format_time(run.started)),
        (
            "ended",
            f"{_format_time(run.ended)} (after {_format_run_duration(run)})" if run.ended else "-",
        ),
        ("host", clean(run.host) + (f", process {run.process}" if run.process else "")),
        ("parents", ", ".join(parent[:12] for parent in run.parents) or "-"),
        ("children", ", ".join(child.id[:12] for child in database.runs.children(run.id)) or "-"),
    ]
    parts = ["\n".join(f"{name:<11}{value}" for name, value in facts)]
    search = database.searches.select_searches([run.id]).get(run.id)
    if search is not None:
        parts += search_details(database, search)
    settings = [
        f"  {clean(path)} = {clean(_format_plain(value))}"
        for path, value in iterate_leaves(run.configuration)
    ]
    parts.append(_format_section("configuration", settings))
    statistics = database.figures.statistics(run.id)
    if statistics:
        rows = [
            (
                clean(n),
                _format_value(s.mean),
                _format_value(s.deviation),
                _format_value(s.least),
                _format_value(s.greatest),
                str(s.count),
            )
            for n, s in statistics.items()
        ]
        parts.append(
            _format_table(("statistic", "mean", "deviation", "least", "greatest", "count"), rows)
        )
    histories = [
        f"  {clean(name)}: {rows:,} rows"
        for name, rows in database.figures.histories(run.id).items()
    ]
    parts.append(_format_section("histories", histories))
    artifacts = [
        f"  {clean(a.name)}: {a.kind}, {a.size:,} bytes" for a in database.artifacts.list(run.id)
    ]
    parts.append(_format_section("artifacts", artifacts))
    parts.append(
        _format_section(
            "code", [f"  {clean(o.path)}: {clean(o.told)}" for o in database.origins(run.id)]
        )
    )
    return "\n\n".join(part for part in parts if part)


def format_run_comparison(database: RunDatabase, identities: Sequence[str]) -> str:
    """Return a table of the settings, code and packages in which runs differ, and of all their
    statistics.
    """
    runs = [database.runs.get(identity) for identity in identities]
    rows: list[tuple[str, ...]] = [("experiment", *(clean(run.experiment) for run in runs))]
    rows.append(("status", *(run.status for run in runs)))
    settings = [
        {path: _format_plain(value) for path, value in iterate_leaves(run.configuration)}
        for run in runs
    ]
    code = [{f"code {o.path}": o.told for o in database.origins(run.id)} for run in runs]
    packages = [{f"package {n}": str(v) for n, v in _get_packages(run).items()} for run in runs]
    for facts in (settings, code, packages):
        for name in dict.fromkeys(name for fact in facts for name in fact):
            values = [fact.get(name, "-") for fact in facts]
            if len(set(values)) > 1:
                rows.append((clean(name), *map(clean, values)))
    for name in dict.fromkeys(name for run in runs for name in run.statistics):
        rows.append(
            (
                f"statistics {clean(name)}",
                *(_format_value(run.statistics.get(name)) for run in runs),
            )
        )
    return _format_table(("", *(run.id[:12] for run in runs)), rows)


def to_json(database: RunDatabase, identity: str) -> dict[str, Any]:
    """Return everything about a run as values for JSON; NaN and infinity become strings."""
    run = database.runs.get(identity)
    names = (
        "id",
        "experiment",
        "status",
        "reason",
        "done",
        "total",
        "created",
        "started",
        "ended",
        "host",
    )
    found = {name: getattr(run, name) for name in names}
    return {
        **found,
        "parents": list(run.parents),
        **_search_json(database, run.id),
        "environment": run.environment,
        "configuration": _replace_not_finite(run.configuration),
        "statistics": {
            name: {field: _replace_not_finite(value) for field, value in vars(statistic).items()}
            for name, statistic in database.figures.statistics(identity).items()
        },
        "histories": {
            name: [
                _replace_not_finite(row) for row in database.figures.history(identity, name).rows()
            ]
            for name in database.figures.histories(identity)
        },
        "artifacts": [vars(artifact) for artifact in database.artifacts.list(identity)],
        "origins": [origin.to_json() for origin in database.origins(identity)],
    }


def _search_json(database: RunDatabase, identity: str) -> dict[str, Any]:
    search = database.searches.select_searches([identity]).get(identity)
    if search is None:
        return {}
    names = (
        "number",
        "state",
        "configuration",
        "values",
        "reports",
        "seconds",
        "message",
        "worker",
        "origin",
    )
    trials = database.searches.trials(identity).read_changes(0)[1]
    return {
        "search": {
            "objectives": dict(search.objectives),
            "best": dict(search.best),
            "trials": [
                {
                    name: _replace_not_finite(
                        list(map(list, trial[name])) if name == "reports" else trial[name]
                    )
                    for name in names
                }
                for trial in sorted(trials, key=lambda trial: trial["number"])
            ],
        }
    }


def _get_packages(run: RunRecord) -> dict[str, Any]:
    found = run.environment.get("packages")
    return found if isinstance(found, dict) else {}


def _select_common_fields(
    runs: Sequence[RunRecord], searches: Mapping[str, SearchRecord]
) -> list[QueryField]:
    counts: dict[QueryField, int] = {}
    for run in runs:
        best = searches[run.id].best if run.id in searches else {}
        fields = [QueryField("statistics", name) for name in run.statistics]
        for field in (*fields, *(QueryField("best", name) for name in best)):
            counts[field] = counts.get(field, 0) + 1
    found = sorted(counts, key=lambda field: -counts[field])[:_SHOWN]
    return [*([QueryField("trials", "finished")] if searches else []), *found]


def _get_field(run: RunRecord, field: QueryField, search: SearchRecord | None = None) -> Any:
    if field.group in ("best", "trials"):
        of = {} if search is None else search.best if field.group == "best" else search.counts
        return of.get(field.name, 0 if field.group == "trials" and search else None)
    if field.group == "statistics":
        return run.statistics.get(field.name)
    if field.group == "configuration":
        return dict(iterate_leaves(run.configuration)).get(field.name)
    if field.group == "parent":
        return ", ".join(parent[:12] for parent in run.parents)
    value = getattr(run, field.group)
    return _format_time(value) if field.group in ("created", "started", "ended") else value


def _format_field_name(field: QueryField) -> str:
    if field.group in ("best", "trials"):
        return clean(f"best {field.name}" if field.group == "best" else f"trials {field.name}")
    return clean(field.name or field.group)


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else clean(str(value))


def _format_plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _replace_not_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replace_not_finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_not_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _format_time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(
        "%Y-%m-%d %H:%M:%S"
    )


def _format_run_duration(run: RunRecord) -> str:
    if run.duration is None:
        return "-"
    return (
        f"{run.duration:.1f} s"
        if run.duration < 600
        else str(datetime.timedelta(seconds=round(run.duration)))
    )


def _format_section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"{title}:", *lines)) if lines else ""


def _format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return to_text(Table(tuple(header), tuple(tuple(Cell(text) for text in row) for row in rows)))


_FIGURES = 3  # of a run


def find_related_runs(runs: Sequence[RunRecord], chosen: Sequence[str]) -> list[RunRecord]:
    """Return the runs that are related to some, the oldest first; without any, all that have a
    parent or a child.

    Parameters
    ----------
    runs
        All runs of a database.
    chosen
        Identities of runs.
    """
    links: dict[str, set[str]] = {run.id: set() for run in runs}
    for run in runs:
        for parent in run.parents:
            links[run.id].add(parent)
            links.setdefault(parent, set()).add(run.id)
    if chosen:
        waiting, found = list(chosen), set[str]()
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += links.get(one, ())
    else:
        found = {name for name, others in links.items() if others}
    return sorted((run for run in runs if run.id in found), key=lambda run: (run.created, run.id))


def format_run_tree(runs: Sequence[RunRecord]) -> str:
    """Return runs below their parents.

    One with several parents is below each, with its children below the first.
    """
    known = {run.id: run for run in runs}
    children: dict[str, list[RunRecord]] = {}
    for run in runs:
        for parent in run.parents:
            children.setdefault(parent, []).append(run)
    lines: list[str] = []
    shown: set[str] = set()
    names = _format_run_names(runs)
    for run in runs:
        if not any(parent in known for parent in run.parents):
            _add(run, "", "", names, children, lines, shown)
    return "\n".join(lines)


def _format_run_names(runs: Sequence[RunRecord]) -> dict[str, str]:
    differing = describe_run_differences(runs)
    return {
        run.id: clean(run.experiment) + (f" ({differing[run.id]})" if differing[run.id] else "")
        for run in runs
    }


def _add(
    run: RunRecord,
    first: str,
    rest: str,
    names: Mapping[str, str],
    children: Mapping[str, Sequence[RunRecord]],
    lines: list[str],
    shown: set[str],
) -> None:
    again = run.id in shown
    figures = "  ".join(f"{clean(name)} {value:.4g}" for name, value in _select_statistics(run))
    lines.append(
        f"{first}{names[run.id]}  {run.id[:12]}  {run.status}" + (f"  {figures}" if figures else "")
    )
    below = list(children.get(run.id, ()))
    if again:
        if below:
            lines[-1] += "  (its children are above)"
        return
    shown.add(run.id)
    for number, child in enumerate(below, 1):
        last = number == len(below)
        _add(
            child,
            f"{rest}{'└─ ' if last else '├─ '}",
            f"{rest}{'   ' if last else '│  '}",
            names,
            children,
            lines,
            shown,
        )


def _select_statistics(run: RunRecord) -> list[tuple[str, float]]:
    """Return some figures of a run: those of data that it did not learn, without losses, come
    first.
    """
    ranked = sorted(
        run.statistics.items(),
        key=lambda item: ("/train/" in item[0], item[0].endswith("loss"), item[0]),
    )
    return ranked[:_FIGURES]
