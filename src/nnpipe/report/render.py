"""The assembly of a report, as data, from runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.core.task import list_tasks
from nnpipe.measuring.run import Run
from nnpipe.report.document import Document, Section
from nnpipe.report.formatting import clean, format_count
from nnpipe.report.inputs.candidate import Candidate, create_candidates
from nnpipe.report.inputs.search_file import SearchFile, SearchView
from nnpipe.report.sections.layers import build_layers_section
from nnpipe.report.sections.performance import build_board_section, build_performance_section
from nnpipe.report.sections.provenance import build_provenance_section
from nnpipe.report.sections.search_outcome import (
    build_search_method_section,
    build_search_outcome_section,
    build_search_trials_section,
)
from nnpipe.report.sections.search_space import build_importance_section, build_search_space_section
from nnpipe.report.sections.summary import build_summary_section
from nnpipe.report.sections.verdict import CandidateFailure, build_failure_warnings
from nnpipe.report.task_section import build_task_section

PERFORMANCE, LAYERS = "performance", "layers"


def list_report_types() -> tuple[str, ...]:
    """Return the names of all sections that a report can be limited to: of times, of layers, and
    of each task.
    """
    return (PERFORMANCE, LAYERS, *(task.name for task in list_tasks()))


def render(
    runs: Sequence[Run],
    title: str,
    report_types: Sequence[str] | None = None,
    sources: Sequence[object] = (),
    failures: Sequence[CandidateFailure] = (),
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
    return report_on(create_candidates(runs, sources), title, report_types, failures)


def report_on(
    candidates: Sequence[Candidate],
    title: str,
    report_types: Sequence[str] | None = None,
    failures: Sequence[CandidateFailure] = (),
    before: Sequence[Section] = (),
    measured: int | None = None,
) -> Document:
    """Return a report on candidates.

    Parameters
    ----------
    candidates
        The result of :func:`~nnpipe.report.inputs.candidate.create_candidates`; the others
        are compared with the first one.
    title
        The title of the report.
    report_types
        Sections besides the summary and the provenance:
        ``"performance"``, ``"layers"``, and the names of tasks; by default those for which
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
    first = build_summary_section(candidates, judged=bool(before))
    sections = [*before, replace(first, blocks=(*build_failure_warnings(failures), *first.blocks))]
    if (board := build_board_section(candidates)) is not None:
        sections.append(board)
    tasks = {c.quality.task.name: c.quality.task for c in candidates if c.quality is not None}
    timed = any(c.latency is not None for c in candidates)
    profiled = any(c.profile is not None or c.no_profile for c in candidates)
    possible = [*([PERFORMANCE] if timed else []), *([LAYERS] if profiled else []), *tasks]
    makers = {PERFORMANCE: build_performance_section, LAYERS: build_layers_section}
    for name in dict.fromkeys(possible if report_types is None else report_types):
        if name not in possible:
            raise _create_report_type_error(name)
        sections.append(
            makers[name](candidates)
            if name in makers
            else build_task_section(tasks[name], candidates)
        )
    sections.append(build_provenance_section(candidates))
    return Document(
        clean(title, 200) or "Report",
        tuple(sections),
        _format_subtitle([c.run for c in candidates], measured),
    )


def _create_report_type_error(name: str) -> ConfigError:
    known = list_report_types()
    if name not in known:
        return ConfigError(
            f"there is no report type {name!r}{suggest_name(name, known)}; known: "
            f"{', '.join(known)}"
        )
    told = {PERFORMANCE: "inference times", LAYERS: "times of layers (measure with --profile)"}
    needed = told.get(name, "judged predictions of that task")
    return ConfigError(
        f"report type {name!r} needs {needed}, and no result file given has any; leave it out"
    )


def _format_subtitle(runs: Sequence[Run], measured: int | None) -> str:
    dates = sorted({clean(run.created[:10], 10) for run in runs if run.created})
    what = "one candidate" if len(runs) == 1 else f"{len(runs)} candidates"
    if measured is not None and measured > len(runs):
        what = f"{measured:,} candidates, of which {len(runs):,} are shown one by one"
    when = f", measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
    return f"{what}{when}"


def build_search_page(found: SearchFile, title: str = "") -> Document:
    """Return a report on a search.

    Parameters
    ----------
    found
        The content of the search's file.
    title
        The title of the report; by default that of the search.
    """
    view = SearchView(found)
    sections: list[Section | None] = [
        build_search_outcome_section(view),
        build_importance_section(found),
        build_search_space_section(view),
        build_search_trials_section(view),
        build_search_method_section(view),
    ]
    ways = ", ".join(f"{name} to {way}" for name, way in found.objectives.items())
    subtitle = (
        f"Search of {format_count(len(found.axes))} parameters in "
        f"{format_count(len(found.trials))} trials: {clean(ways, 200)}"
    )
    return Document(
        clean(title, 200) or found.title or "Search",
        tuple(each for each in sections if each is not None),
        subtitle,
    )
