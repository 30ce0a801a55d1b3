"""Render result files as a report: one HTML page, RST or Markdown with pictures, and a summary for
programs.

With several result files the report compares them; differences are against the first.
IN may also be the one file of a sweep (sweep.json), of a comparison (nnpipe
compare) or of a search (nnpipe search --report, OUT.search.json).
The ending of OUT decides what is written beside OUT.html and OUT.summary.json:
reStructuredText (.rst), Markdown (.md), or nothing (.html).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.report.render import list_report_types
from nnpipe.report.result_files import is_search_file, read_report_subject, read_search_file
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file, output_folder
from nnpipe.workflows.reporting import SUFFIXES, write_report, write_search_report


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe render_report IN.json [IN.json ...] TITLE OUT``."""
    return execute(_render, argv, "render_report")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="IN.json", help="result files to show and compare"
    )
    parser.add_argument("title", metavar="TITLE", help="title of the report")
    parser.add_argument(
        "output", type=output_file, metavar="OUT", help="the report, ending in .rst, .md or .html"
    )
    parser.add_argument(
        "--img-dir",
        type=output_folder,
        metavar="DIR",
        help="where pictures go (default: img beside OUT)",
    )
    parser.add_argument(
        "--root-dir",
        type=Path,
        metavar="DIR",
        help="what picture paths in OUT start from (default: its folder)",
    )
    parser.add_argument(
        "--image-format",
        choices=("svg", "png"),
        default="svg",
        help="of the pictures (default: svg)",
    )
    parser.add_argument(
        "--report-types",
        nargs="+",
        choices=list_report_types(),
        default=None,
        help="sections wanted beside summary and provenance (default: all that the results allow)",
    )


def _render(argv: Sequence[str] | None) -> None:
    options = parse(argv, "render_report", __doc__ or "", (), _add_options).options
    if options.output.suffix not in SUFFIXES:
        raise ConfigError(
            f"the report's file must end in .rst, .md or .html, not {options.output.name!r}: "
            "give IN.json ... TITLE OUT.rst"
        )
    if not options.title.strip() or _is_file(options.title):
        raise ConfigError(
            f"{options.title!r} is no title for a report: give IN.json ... TITLE OUT.rst"
        )
    if len(options.results) == 1 and is_search_file(options.results[0]):
        if options.report_types:
            raise ConfigError("--report-types: the report on a search always has all its sections")
        told = write_search_report(
            read_search_file(options.results[0]),
            options.output,
            options.title,
            image_folder=options.img_dir,
            root_dir=options.root_dir,
            image_format=options.image_format,
        )
        print(told)
        return
    found = read_report_subject(options.results)
    told = write_report(
        found.runs,
        options.title,
        options.output,
        options.report_types,
        image_folder=options.img_dir,
        root_dir=options.root_dir,
        image_format=options.image_format,
        sources=found.sources,
        failures=found.failures,
        before=found.sections,
        measured=found.measured,
    )
    print(told)


def _is_file(text: str) -> bool:
    """Return whether there is a file of this name; a title may be longer than any name can be."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main())
