"""Running published test vectors through every installed runtime and compiler, in one call."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.foreign_text import show_text
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.progress import Progress
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.datasets.extract import extract
from nnpipe.measuring.host import get_framework_versions
from nnpipe.report.document import Block, Cell, Document, Paragraph, Section, Table
from nnpipe.report.formatting import shorten
from nnpipe.report.writers.html import write_html
from nnpipe.report.writers.rst import write_rst
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.recipes import Recipe
from nnpipe.workflows.verification.conformance_cases import (
    CRASHED,
    FAILED,
    PASSED,
    STATUSES,
    WRONG,
    Result,
    count_results,
    group_by_cause,
    list_recipes,
    run_cases,
)
from nnpipe.workflows.verification.test_vectors import Case, find_cases

Found = Mapping[str, Mapping[str, Sequence[Result]]]
"""Results by format and title of the way."""

_TITLES = {"onnx": "ONNX operators", "tflite": "TensorFlow Lite layers"}


def format_conformance(found: Found) -> str:
    """Return a Markdown table of each format, and the causes of cases that did not pass."""
    return "\n".join(line for format, ways in found.items() for line in _format_lines(format, ways))


def _format_lines(format: str, ways: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    yield f"\n{_TITLES[format]}\n"
    yield "| way | cases | " + " | ".join(STATUSES) + " |"
    yield "| --- |" + " ---: |" * (len(STATUSES) + 1)
    for title, members in ways.items():
        counts = count_results(members)
        yield (
            f"| {title} | {len(members)} | "
            + " | ".join(str(counts[status]) for status in STATUSES)
            + " |"
        )
    for title, members in ways.items():
        for status, _, like in group_by_cause(members):
            names = ", ".join(result.case.name for result in like[:3]) + (
                " ..." if len(like) > 3 else ""
            )
            yield f"\n{title}: {len(like)} {status}: {shorten(like[0].told, 240)}\n    ({names})"


def build_conformance_document(found: Found, frameworks: Mapping[str, str]) -> Document:
    """Return a document with a section for each format and one with the versions."""
    sections = [_build_section(format, ways) for format, ways in found.items()]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(frameworks.items()))
    return Document("Conformance", (*sections, Section("Versions", (Paragraph(versions),))))


def _build_section(format: str, ways: Mapping[str, Sequence[Result]]) -> Section:
    rows = []
    for title, members in ways.items():
        counts = count_results(members)
        rows.append((Cell(title), *(_build_number_cell(counts[status]) for status in STATUSES)))
    blocks: list[Block] = [
        Table(("Way", *STATUSES), tuple(rows), caption="Cases by what came of them.")
    ]
    for title, members in ways.items():
        causes = group_by_cause(members)
        if causes:
            blocks.append(Section(title, (_build_cause_table(title, causes),)))
        elif any(result.status == PASSED for result in members):
            blocks.append(Section(title, (Paragraph("Everything passed."),)))
    return Section(_TITLES[format], tuple(blocks))


def _build_cause_table(title: str, causes: Sequence[tuple[str, str, Sequence[Result]]]) -> Table:
    rows = tuple(
        (
            status,
            _build_number_cell(len(like)),
            like[0].told,
            ", ".join(result.case.name for result in like),
        )
        for status, _, like in causes
    )
    caption = f"What did not pass on {title}; of like causes one is shown."
    return Table(("Status", "Cases", "Cause", "Which"), rows, caption=caption)


def _build_number_cell(count: int) -> Cell:
    return Cell(str(count), float(count))


log = logging.getLogger("nnpipe")
_MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class ConformanceResult:
    """The result of each test vector for each way from a model file to outputs.

    Parameters
    ----------
    found
        Results by format (``onnx``, ``tflite``) and title of the way, one for each case.
    frameworks
        Versions of the packages that were used.

    Examples
    --------
    Of the example of :func:`nnpipe.conformance`:


    >>> found.passed
    True
    >>> found.save_report("conformance.rst").name
    'conformance.html'
    """

    found: Found
    frameworks: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether no case computed wrong values, failed unexpectedly, or crashed."""
        every = [
            each for ways in self.found.values() for members in ways.values() for each in members
        ]
        return not any(each.status in (WRONG, FAILED, CRASHED) for each in every)

    def show(self) -> None:
        """Print a table of each format, and the causes of cases that did not pass."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return a Markdown table of each format, and the causes of cases that did not pass."""
        return format_conformance(self.found)

    def to_json(self) -> dict[str, Any]:
        """Return the status of each case, and the reason if it did not pass, as JSON can hold
        it.
        """
        return {
            "frameworks": dict(self.frameworks),
            "results": {
                format: {
                    title: {each.case.name: each.to_json() for each in members}
                    for title, members in ways.items()
                }
                for format, ways in self.found.items()
            },
        }

    def save_report(self, path: str | Path) -> Path:
        """Write a report as reStructuredText with an HTML page beside it, and return the path of
        the page.
        """
        document = build_conformance_document(self.found, self.frameworks)
        write_rst(document, path)
        page = Path(path).with_suffix(".html")
        write_html(document, page)
        return page


def conformance(
    vectors: str | Path | Sequence[str | Path],
    *,
    only: Sequence[str | type[Component]] = (),
    rtol: float = 1e-3,
    atol: float = 1e-5,
    time_limit: float = 60.0,
    jobs: int = 1,
    progress: Progress = show_progress,
) -> ConformanceResult:
    """Run test vectors of ONNX and TensorFlow Lite through every installed runtime and compiler.

    Each case runs in a subprocess, which may crash or hang without harm.

    Parameters
    ----------
    vectors
        Folders or archives with models, inputs and exact outputs: ONNX's published tests of
        backends, or layers of TensorFlow Lite with numbers in CSV.
    only
        Runtimes and compilers to test, by name or as classes; by default all installed ones.
    rtol, atol
        Relative and absolute tolerance of floats in ONNX; values in TensorFlow Lite must be exact.
    time_limit
        The greatest time of one case in seconds, at least 0.1.
    jobs
        Number of cases that run at the same time.
    progress
        Shows the progress.

    Returns
    -------
    ConformanceResult
        The results; ``passed`` summarises them and ``show()`` prints them.

    Raises
    ------
    ConfigError
        If a folder or archive does not exist, or no installed runtime reads these vectors.
    DatasetError
        If an archive is damaged, or contains no vectors.

    Examples
    --------
    Of one runtime, on the folder of vectors ``vectors``:

    >>> found = conformance("vectors", only=["ONNXRuntime"])
    >>> [result.status for result in found.found["onnx"]["ONNXRuntime"]]
    ['passed']
    """
    check_call(conformance, locals())
    for name, value, least in (
        ("rtol", rtol, 0.0),
        ("atol", atol, 0.0),
        ("time_limit", time_limit, 0.1),
    ):
        check_range(f"conformance: {name}", value, least)
    check_range("conformance: jobs", jobs, 1)
    places = (
        [Path(vectors)] if isinstance(vectors, (str, Path)) else [Path(each) for each in vectors]
    )
    with ExitStack() as stack:
        folders = [stack.enter_context(_unpack_vectors(path)) for path in places]
        cases = [case for folder in folders for case in find_cases(folder)]
        found: dict[str, dict[str, Sequence[Result]]] = {}
        for format in dict.fromkeys(case.format for case in cases):
            mine = [case for case in cases if case.format == format]
            off = (0.0, 0.0) if format == "tflite" else (rtol, atol)
            found[format] = {
                way.title: _run_recipe(way, mine, off, time_limit, jobs, progress)
                for way in _select_recipes(format, only)
            }
    if not any(found.values()):
        raise ConfigError(
            "no runtime that reads these vectors is installed; nnpipe list runtimes shows what is "
            "needed"
        )
    return ConformanceResult(found, get_framework_versions())


@contextmanager
def _unpack_vectors(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ConfigError(f"{path}: no such folder or archive")
    with create_temporary_folder() as folder:
        yield extract(path, folder / "vectors", max_bytes=_MOST_BYTES, progress=False)


def _select_recipes(format: str, only: Sequence[str | type[Component]]) -> list[Recipe]:
    further, names = [], set()
    for each in only:
        name = each if isinstance(each, str) else each.get_dotted_path()
        names.add(name.rpartition(".")[2])
        if "." in name and not name.startswith("nnpipe."):
            further.append(find(name, Runtime))
    found = list_recipes(format, further)
    if not only:
        return found
    known = {
        name for way in list_recipes("onnx") + list_recipes("tflite") for name in _list_parts(way)
    }
    known |= {cls.__name__ for cls in further}
    for name in sorted(names - known):
        raise ConfigError(f"--only {name}: no such way here; there are {', '.join(sorted(known))}")
    return [way for way in found if _list_parts(way) & names]


def _list_parts(way: Recipe) -> set[str]:
    return {type(part).__name__ for part in (*way.compilers, way.runtime)}


def _run_recipe(
    way: Recipe,
    cases: Sequence[Case],
    off: tuple[float, float],
    time_limit: float,
    jobs: int,
    progress: Progress,
) -> list[Result]:
    start = time.monotonic()
    ended = run_cases(cases, way, *off, time_limit, jobs)
    done = {result.case: result for result in progress(ended, way.title, len(cases))}
    log.info("%s: %.0f s", way.title, time.monotonic() - start)
    return [done[case] for case in cases]
