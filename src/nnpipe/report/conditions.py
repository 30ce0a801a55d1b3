"""What may have spoilt a measurement, said before anybody trusts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.report.candidate import Candidate, known
from nnpipe.report.comparison import on_the_same_samples
from nnpipe.report.document import Paragraph
from nnpipe.report.wording import clean, digits

_BUSY = 0.3  # cores that others may use before it is worth a word
# What should be the same for times to be comparable: where it stands in the host's facts, and what it is called.
_FACTS = {
    ("cpu", "model"): "CPU",
    ("cpu", "governor"): "CPU governor",
    ("cpu", "affinity"): "CPU cores allowed",
    ("cpu", "turbo"): "turbo mode",
    ("system", "machine"): "architecture",
    ("environment",): "environment variables",
    ("limits",): "limits of the container",
}
_CHANGING = ("powersave", "ondemand", "conservative", "schedutil")


def doubts(candidates: Sequence[Candidate]) -> list[Paragraph]:
    """Say why figures may be wrong, or not comparable; nothing if there is no reason known."""
    found = [_different_hosts(candidates), _different_samples(candidates), _busy(candidates), _governed(candidates)]
    return [Paragraph(text, "warning") for text in found if text]


def _different_hosts(candidates: Sequence[Candidate]) -> str:
    names = [name for path, name in _FACTS.items() if len({clean(_at(c.run.host, path)) for c in candidates}) > 1]
    if not names:
        return ""
    return (
        f"The candidates were not measured under the same conditions ({', '.join(names)} differ), "
        "so their times differ for more reasons than the candidates themselves."
    )


def _different_samples(candidates: Sequence[Candidate]) -> str:
    if on_the_same_samples(candidates):
        return ""
    return "The candidates were not all judged on the same samples, so their accuracies cannot be compared."


def _busy(candidates: Sequence[Candidate]) -> str:
    found = [(c.name, others) for c in candidates if (others := _others(c)) is not None and others > _BUSY]
    if not found:
        return ""
    name, most = max(found, key=lambda pair: pair[1])
    who = f"{name} was" if len(found) == 1 else f"{len(found)} candidates, most of all {name}, were"
    return (
        f"While {who} measured, other processes kept {digits(most, 2)} cores busy; "
        "times may be longer and scatter more than on a quiet machine."
    )


def _others(candidate: Candidate) -> float | None:
    """Give how many cores others kept busy on average, if that is known."""
    cores = _at(candidate.run.host, ("cpu", "logical_cores"))
    machine, own = (known(candidate.resources, name)[1] for name in ("machine_cpu_percent", "cpu_percent"))
    if isinstance(cores, bool) or not isinstance(cores, int) or not 0 < cores < 1 << 20 or not len(machine):
        return None
    return (float(np.mean(machine)) * cores - (float(np.mean(own)) if len(own) else 0.0)) / 100


def _governed(candidates: Sequence[Candidate]) -> str:
    governors = [_at(c.run.host, ("cpu", "governor")) for c in candidates]
    names = sorted({g for g in governors if isinstance(g, str) and g in _CHANGING})
    if not names:
        return ""
    return (
        f"The CPU governor was {' or '.join(names)}, which changes the clock rate as it sees fit; "
        "with 'performance' times scatter less."
    )


def _at(host: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = host
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
