"""What tells recorded runs of one name apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.settings import leaves
from nnpipe.report.formatting import clean

_LONGEST = 40  # characters of a value


def differences(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return for each run what tells it from the others of its experiment, by identity.

    These are few of its settings, and its host and versions of packages only where settings do not suffice.  The
    text is empty if there is nothing, or the run is the only one of its experiment.
    """
    experiments: dict[str, list[RunRecord]] = {}
    for run in runs:
        experiments.setdefault(run.experiment, []).append(run)
    found = {}
    for alike in experiments.values():
        facts = [_facts(run) for run in alike]
        names = _telling(facts)
        for run, own in zip(alike, facts, strict=True):
            found[run.id] = ", ".join(_words(own, facts, names))
    return found


def _facts(run: RunRecord) -> dict[str, str]:
    settings = dict(leaves(run.configuration))
    packages = run.environment.get("packages")
    settings["host"] = run.host
    if isinstance(packages, dict):
        settings |= {f"packages.{name}": version for name, version in packages.items()}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
        if value not in ([], {})  # as if it were not there
    }


def _words(own: Mapping[str, str], facts: Sequence[Mapping[str, str]], names: Sequence[str]) -> Iterator[str]:
    """Yield the facts of a run until no other run has the same."""
    others = [other for other in facts if other is not own]
    for name in names:
        if name in own and others:
            yield _worded(name, own[name], names)
        others = [other for other in others if other.get(name) == own.get(name)]


def _telling(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of facts that together divide runs into as many groups as all of them, the best first."""
    names = dict.fromkeys(name for own in facts for name in own)
    columns = {name: [own.get(name, "") for own in facts] for name in names}
    columns = {name: values for name, values in columns.items() if len(set(values)) > 1}
    groups = len(set(zip(*columns.values(), strict=True)))
    parts: list[tuple[str, ...]] = [()] * len(facts)
    chosen: list[str] = []
    while len(set(parts)) < groups:
        best = min(columns, key=lambda name: (-_divided(parts, columns[name]), *_cost(name, columns[name])))
        parts = [(*part, value) for part, value in zip(parts, columns.pop(best), strict=True)]
        chosen.append(best)
    return chosen


def _divided(parts: Sequence[tuple[str, ...]], values: Sequence[str]) -> int:
    return len(set(zip(parts, values, strict=True)))


def _cost(name: str, values: Sequence[str]) -> tuple[bool, bool, int]:
    """Return what is compared of facts that divide runs equally well; the least is what a reader knows best."""
    last = name.rpartition(".")[2]
    around = name == "host" or name.startswith("packages.")
    return around, last not in ("title", "class"), max(map(len, values))


def _worded(name: str, value: str, names: Sequence[str]) -> str:
    first, _, last = name.rpartition(".")
    value = clean(value, _LONGEST)
    if name in ("title", "host"):
        return value
    if last == "class":
        return value.rpartition(".")[2]
    again = [other for other in names if other.rpartition(".")[2] == last]
    return f"{clean(last if len(again) == 1 else f'{first}.{last}')}={value}"
