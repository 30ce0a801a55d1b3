"""Run the test vectors of ONNX and TensorFlow Lite through every runtime and compiler here.

VECTORS are folders or archives with models, inputs and exact outputs, as ONNX
publishes them for its backends, or layers in TensorFlow Lite with their
numbers in CSV.  Each case runs in a process that may crash or hang without
harm.  A case passes if every output has the right element type, shape and
values; integers, texts and whatever is in TensorFlow Lite must be exact.

The exit status is 1 if any way computed something wrong, failed in a way that
nobody foresaw, or crashed; models that are refused by name are no such thing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.core.kinds import Kind
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.datasets._extract import extract
from nnpipe.measure.host import framework_versions
from nnpipe.report.document import Block, Cell, Document, Paragraph, Section, Table
from nnpipe.report.formatting import shortened
from nnpipe.report.writers.html import write_html
from nnpipe.report.writers.rst import write_rst
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.progress import bar
from nnpipe.workflows.verification.conformance import (
    CRASHED,
    FAILED,
    PASSED,
    STATUSES,
    WRONG,
    Result,
    Way,
    by_cause,
    counted,
    results,
    ways,
)
from nnpipe.workflows.verification.test_vectors import Case, find_cases

_TITLES = {"onnx": "ONNX operators", "tflite": "TensorFlow Lite layers"}
_MOST_BYTES = 4 << 30

Found = dict[str, list[tuple[Way, list[Result]]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe conformance VECTORS [VECTORS ...] [--output OUT.rst]``."""
    return execute(_run, argv, "conformance")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vectors", type=Path, nargs="+", metavar="VECTORS", help="folders, or tar or zip archives")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CLASS", help="runtimes and compilers to try (default: all there are)"
    )
    parser.add_argument(
        "--output", type=output_file, metavar="OUT.rst", help="write a report; an HTML page is put beside it"
    )
    parser.add_argument("--results", type=output_file, metavar="OUT.json", help="write what came of each case")
    parser.add_argument(
        "--rtol", type=Kind(float, minimum=0), default=1e-3, metavar="X", help="of floats in ONNX (default: 0.001)"
    )
    parser.add_argument(
        "--atol", type=Kind(float, minimum=0), default=1e-5, metavar="X", help="of floats in ONNX (default: 0.00001)"
    )
    parser.add_argument(
        "--time-limit",
        type=Kind(float, minimum=0.1),
        default=60.0,
        metavar="S",
        help="seconds that one case may take (default: 60)",
    )
    parser.add_argument(
        "--jobs", type=Kind(int, minimum=1), default=1, metavar="N", help="cases to run at a time (default: 1)"
    )


def _run(argv: Sequence[str] | None) -> int:
    options = parse(argv, "conformance", __doc__ or "", (), _options).options
    if options.output is not None and options.output.suffix != ".rst":
        raise ConfigError(f"the report's file must end in .rst, not {options.output.name!r}")
    with ExitStack() as stack:
        folders = [stack.enter_context(_unpacked(path)) for path in options.vectors]
        cases = [case for folder in folders for case in find_cases(folder)]
        found: Found = {}
        for format in dict.fromkeys(case.format for case in cases):
            mine = [case for case in cases if case.format == format]
            found[format] = [(way, _through(way, mine, options)) for way in _ways(format, options.only)]
    if not any(found.values()):
        raise ConfigError("no runtime that reads these vectors is installed; nnpipe list runtimes shows what is needed")
    _print(found)
    if options.results:
        write_text(options.results, json.dumps(_as_json(found), indent=1) + "\n")
    if options.output:
        document = _document(found)
        write_rst(document, options.output)
        write_html(document, options.output.with_suffix(".html"))
        print(f"report: {options.output.with_suffix('.html')} and {options.output}")
    every = [result for groups in found.values() for _, members in groups for result in members]
    return 1 if any(result.status in (WRONG, FAILED, CRASHED) for result in every) else 0


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ConfigError(f"{path}: no such folder or archive")
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        yield extract(path, Path(folder, "vectors"), max_bytes=_MOST_BYTES, progress=False)


def _ways(format: str, only: Sequence[str]) -> list[Way]:
    further, names = [], set()
    for name in only:
        names.add(name.rpartition(".")[2])
        if "." in name and not name.startswith("nnpipe."):
            further.append(find(name, Runtime))
    found = ways(format, further)
    if not only:
        return found
    chosen = [way for way in found if {type(part).__name__ for part in (*way.compilers, way.runtime)} & names]
    known = {type(part).__name__ for way in ways("onnx") + ways("tflite") for part in (*way.compilers, way.runtime)}
    known |= {cls.__name__ for cls in further}
    for name in names - known:
        raise ConfigError(f"--only {name}: no such way here; there are {', '.join(sorted(known))}")
    return chosen


def _through(way: Way, cases: Sequence[Case], options: argparse.Namespace) -> list[Result]:
    exact = way.format == "tflite"
    start = time.monotonic()
    ended = results(
        cases, way, 0.0 if exact else options.rtol, 0.0 if exact else options.atol, options.time_limit, options.jobs
    )
    done = {result.case: result for result in bar(ended, way.title, len(cases))}
    print(f"{way.title}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return [done[case] for case in cases]


def _print(found: Found) -> None:
    for format, groups in found.items():
        print(f"\n{_TITLES[format]}\n")
        print("| way | cases | " + " | ".join(STATUSES) + " |")
        print("| --- |" + " ---: |" * (len(STATUSES) + 1))
        for way, members in groups:
            counts = counted(members)
            print(f"| {way.title} | {len(members)} | " + " | ".join(str(counts[status]) for status in STATUSES) + " |")
        for way, members in groups:
            for status, _, like in by_cause(members):
                names = ", ".join(result.case.name for result in like[:3]) + (" ..." if len(like) > 3 else "")
                print(f"\n{way.title}: {len(like)} {status}: {shortened(like[0].told, 240)}\n    ({names})")


def _as_json(found: Found) -> dict[str, object]:
    def told(members: Sequence[Result]) -> Mapping[str, object]:
        return {
            r.case.name: {"status": r.status, "reason": r.told} if r.reason else {"status": r.status} for r in members
        }

    return {
        "frameworks": framework_versions(),
        "results": {format: {way.title: told(members) for way, members in groups} for format, groups in found.items()},
    }


def _document(found: Found) -> Document:
    sections = [_section(format, groups) for format, groups in found.items()]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(framework_versions().items()))
    return Document("Conformance", (*sections, Section("Versions", (Paragraph(versions),))))


def _section(format: str, groups: Sequence[tuple[Way, list[Result]]]) -> Section:
    rows = []
    for way, members in groups:
        counts = counted(members)
        rows.append((Cell(way.title), *(Cell(str(counts[status]), float(counts[status])) for status in STATUSES)))
    blocks: list[Block] = [Table(("Way", *STATUSES), tuple(rows), caption="Cases by what came of them.")]
    for way, members in groups:
        causes = by_cause(members)
        if causes:
            table = Table(
                ("Status", "Cases", "Cause", "Which"),
                tuple(
                    (
                        status,
                        Cell(str(len(like)), float(len(like))),
                        like[0].told,
                        ", ".join(r.case.name for r in like),
                    )
                    for status, _, like in causes
                ),
                caption=f"What did not pass on {way.title}; of like causes one is shown.",
            )
            blocks.append(Section(way.title, (table,)))
        elif any(result.status == PASSED for result in members):
            blocks.append(Section(way.title, (Paragraph("Everything passed."),)))
    return Section(_TITLES[format], tuple(blocks))


if __name__ == "__main__":
    sys.exit(main())
