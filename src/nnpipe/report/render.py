"""The assembly of a report, as data, from runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.measuring.run import Run
from nnpipe.report.document import Document, Section
from nnpipe.report.formatting import clean
from nnpipe.report.inputs.candidate import Candidate, candidates_of
from nnpipe.report.sections.classification import classification
from nnpipe.report.sections.outcome import Failure, failure_warnings
from nnpipe.report.sections.performance import performance
from nnpipe.report.sections.provenance import provenance
from nnpipe.report.sections.summary import summary

# For each type: the function that returns the section, whether a candidate has data for it, and the name of the data.
_TYPES: dict[str, tuple[Callable[[Sequence[Candidate]], Section], Callable[[Candidate], bool], str]] = {
    "performance": (performance, lambda candidate: candidate.latency is not None, "inference times"),
    "classification": (classification, lambda candidate: candidate.quality is not None, "predictions of classes"),
}
REPORT_TYPES = tuple(_TYPES)


def render(
    runs: Sequence[Run],
    title: str,
    report_types: Sequence[str] | None = None,
    sources: Sequence[object] = (),
    failures: Sequence[Failure] = (),
) -> Document:
    """Return a report on runs.

    Parameters
    ----------
    runs
        The measurements; others are compared with the first one.
    title, report_types, failures
        As for :func:`report_on`.
    sources
        The sources of the runs, such as paths, for error messages.

    Raises
    ------
    ConfigError
        If there are no runs, a type is unknown, or no run has data for a type.
    NNPipeError
        If a run holds invalid data.
    """
    return report_on(candidates_of(runs, sources), title, report_types, failures)


def report_on(
    candidates: Sequence[Candidate],
    title: str,
    report_types: Sequence[str] | None = None,
    failures: Sequence[Failure] = (),
    before: Sequence[Section] = (),
    measured: int | None = None,
) -> Document:
    """Return a report on candidates.

    Parameters
    ----------
    candidates
        The result of :func:`~nnpipe.report.inputs.candidate.candidates_of`; the others
        are compared with the first one.
    title
        The title of the report.
    report_types
        Sections besides the summary and the provenance:
        ``"performance"`` and ``"classification"``; by default those for which
        some run has data.  A section says which runs have no data for it.
    failures
        Candidates that could not be measured, with reasons.
    before
        Sections that come first: the results of a sweep or a comparison.
    measured
        The number of measured candidates, if only some of them are shown in detail.

    Raises
    ------
    ConfigError
        If there are no candidates, a type is unknown, or no candidate has data for a type.
    """
    if not candidates:
        raise ConfigError("a report needs at least one result file")
    first = summary(candidates, judged=bool(before))
    sections = [*before, replace(first, blocks=(*failure_warnings(failures), *first.blocks))]
    if report_types is None:
        report_types = [name for name, (_, possible, _) in _TYPES.items() if any(map(possible, candidates))]
    for name in dict.fromkeys(report_types):
        if name not in _TYPES:
            raise ConfigError(f"there is no report type {name!r}{nearest(name, _TYPES)}; known: {', '.join(_TYPES)}")
        make, possible, needed = _TYPES[name]
        if not any(map(possible, candidates)):
            raise ConfigError(f"report type {name!r} needs {needed}, and no result file given has any; leave it out")
        sections.append(make(candidates))
    sections.append(provenance(candidates))
    return Document(clean(title, 200) or "Report", tuple(sections), _subtitle([c.run for c in candidates], measured))


def _subtitle(runs: Sequence[Run], measured: int | None) -> str:
    dates = sorted({clean(run.created[:10], 10) for run in runs if run.created})
    what = "one candidate" if len(runs) == 1 else f"{len(runs)} candidates"
    if measured is not None and measured > len(runs):
        what = f"{measured:,} candidates, of which {len(runs):,} are shown one by one"
    when = f", measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
    return f"{what}{when}"
