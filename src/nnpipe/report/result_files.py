"""The reader of the result files that a report is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.result_json import COMPARISON, read_json
from nnpipe.measuring.run import Run
from nnpipe.report.document import Paragraph, Section
from nnpipe.report.inputs.search_file import KIND as SEARCH
from nnpipe.report.inputs.search_file import SearchFile
from nnpipe.report.inputs.sweep_file import KIND, SweepFile
from nnpipe.report.sections.comparison import build_comparison_section
from nnpipe.report.sections.sweep import build_sweep_section, select_sweep_candidates
from nnpipe.report.sections.sweep_devices import build_devices_section
from nnpipe.report.sections.verdict import CandidateFailure

SHOWN = 12
"""Greatest number of candidates of a sweep that are shown one by one."""


@dataclass(frozen=True, eq=False)
class ReportSubject:
    """The runs of a report with their files, failed candidates, sections that compare them, and
    the number measured.
    """

    runs: tuple[Run, ...]
    sources: tuple[Path, ...]
    failures: tuple[CandidateFailure, ...] = ()
    sections: tuple[Section, ...] = ()
    measured: int | None = None


def read_report_subject(paths: Sequence[Path]) -> ReportSubject:
    """Return the content of result files: any number of single runs, or one comparison, or one
    sweep.

    Raises
    ------
    ArtifactError
        If a file is missing or damaged, or is not a result; the message names it.
    ConfigError
        If the file of a comparison or a sweep is given together with other files.
    """
    found = [_read(path) for path in paths]
    for path, each in zip(paths, found, strict=True):
        if isinstance(each, Run):
            continue
        if len(paths) > 1:
            what = "a comparison" if isinstance(each, Comparison) else "a sweep"
            raise ConfigError(
                f"{path} is the result of {what}, which makes a report by itself; leave out the "
                f"others"
            )
        return (
            _create_comparison_subject(each, path)
            if isinstance(each, Comparison)
            else _create_sweep_subject(each, path)
        )
    return ReportSubject(tuple(each for each in found if isinstance(each, Run)), tuple(paths))


def read_search_file(path: Path) -> SearchFile:
    """Return the content of the file of a search.

    Raises
    ------
    ArtifactError
        If it is missing or damaged, or is not the result of a search; the message names it.
    """
    try:
        return SearchFile.from_json(read_json(path))
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def is_search_file(path: Path) -> bool:
    """Return whether a file says that it is the result of a search."""
    try:
        data = read_json(path)
    except ArtifactError:
        return False
    return isinstance(data, dict) and data.get("kind") == SEARCH


def _read(path: Path) -> Run | Comparison | SweepFile:
    try:
        data = read_json(path)
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind == SEARCH:
            raise ArtifactError(
                "the result of a search makes a report by itself; leave out the others"
            )
        if kind == COMPARISON:
            return Comparison.from_json(data)
        return SweepFile.from_json(data) if kind == KIND else Run.from_json(data)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def _create_comparison_subject(comparison: Comparison, path: Path) -> ReportSubject:
    if not comparison.runs:
        raise ArtifactError(f"{path}: no candidate ran in this comparison")
    ran = {run.title for run in comparison.runs}
    failures = tuple(
        CandidateFailure(len(ran) + place, title, reason)
        for place, (title, reason) in enumerate(comparison.failures.items())
        if title not in ran
    )
    return ReportSubject(
        comparison.runs,
        (path,) * len(comparison.runs),
        failures,
        (build_comparison_section(comparison),),
    )


def _create_sweep_subject(found: SweepFile, path: Path) -> ReportSubject:
    """Return the runs of the most important candidates of a sweep, and the section on the sweep."""
    if not found.points:
        raise ArtifactError(f"{path}: nothing was measured in this sweep")
    sources = tuple(path.parent / point.result for point in select_sweep_candidates(found, SHOWN))
    section = build_sweep_section(found)
    if len(found.points) > SHOWN:
        note = Paragraph(
            f"The following sections show {SHOWN} of the {len(found.points):,}: the first ones of "
            f"the table above."
        )
        section = replace(section, blocks=(*section.blocks, note))
    sections = (section, *([build_devices_section(found)] if found.devices else []))
    return ReportSubject(
        tuple(Run.read(path) for path in sources), sources, (), sections, len(found.points)
    )
