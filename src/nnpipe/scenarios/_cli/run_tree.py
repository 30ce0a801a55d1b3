"""Which runs are based on which, as a tree of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnpipe.experiment.database.records import RunRecord
from nnpipe.report.formatting import clean
from nnpipe.scenarios._cli.run_differences import differences

_FIGURES = 3  # of a run


def family(runs: Sequence[RunRecord], chosen: Sequence[str]) -> list[RunRecord]:
    """Return the runs that are related to some, the oldest first; without any, all that have a parent or a child.

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


def tree(runs: Sequence[RunRecord]) -> str:
    """Return runs below their parents.  One with several parents is below each, with its children below the first."""
    known = {run.id: run for run in runs}
    children: dict[str, list[RunRecord]] = {}
    for run in runs:
        for parent in run.parents:
            children.setdefault(parent, []).append(run)
    lines: list[str] = []
    shown: set[str] = set()
    names = _names(runs)
    for run in runs:
        if not any(parent in known for parent in run.parents):
            _add(run, "", "", names, children, lines, shown)
    return "\n".join(lines)


def _names(runs: Sequence[RunRecord]) -> dict[str, str]:
    differing = differences(runs)
    return {run.id: clean(run.experiment) + (f" ({differing[run.id]})" if differing[run.id] else "") for run in runs}


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
    figures = "  ".join(f"{clean(name)} {value:.4g}" for name, value in _figures(run))
    lines.append(f"{first}{names[run.id]}  {run.id[:12]}  {run.status}" + (f"  {figures}" if figures else ""))
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


def _figures(run: RunRecord) -> list[tuple[str, float]]:
    """Return some figures of a run: those of data that it did not learn, without losses, come first."""
    ranked = sorted(run.statistics.items(), key=lambda item: ("/train/" in item[0], item[0].endswith("loss"), item[0]))
    return ranked[:_FIGURES]
