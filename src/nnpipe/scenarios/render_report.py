"""Render result files as a report: RST with pictures, and one HTML page.

With several result files the report compares them; differences are against the first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.measure.run import Run
from nnpipe.report.candidate import candidates_of
from nnpipe.report.html import write_html
from nnpipe.report.outcome import Failure, outcome
from nnpipe.report.plain import to_text
from nnpipe.report.plots import Pictures
from nnpipe.report.render import REPORT_TYPES, report_on
from nnpipe.report.rst import write_rst
from nnpipe.scenarios._command import execute, parse


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe render_report IN.json [IN.json ...] TITLE OUT.rst``."""
    return execute(_render, argv, "render_report")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, nargs="+", metavar="IN.json", help="result files to show and compare")
    parser.add_argument("title", metavar="TITLE", help="title of the report")
    parser.add_argument("output", type=Path, metavar="OUT.rst", help="the report; an HTML page is put beside it")
    parser.add_argument("--img-dir", type=Path, metavar="DIR", help="where pictures go (default: img beside OUT.rst)")
    parser.add_argument(
        "--root-dir", type=Path, metavar="DIR", help="what picture paths in OUT.rst start from (default: its folder)"
    )
    parser.add_argument("--image-format", choices=("svg", "png"), default="svg", help="of the pictures (default: svg)")
    parser.add_argument(
        "--report-types",
        nargs="+",
        choices=REPORT_TYPES,
        default=None,
        help="sections wanted beside summary and provenance (default: all that the results allow)",
    )


def _render(argv: Sequence[str] | None) -> None:
    options = parse(argv, "render_report", __doc__ or "", (), _options).options
    if options.output.suffix != ".rst":
        raise ConfigError(
            f"the report's file must end in .rst, not {options.output.name!r}: give IN.json ... TITLE OUT.rst"
        )
    if not options.title.strip() or Path(options.title).is_file():
        raise ConfigError(f"{options.title!r} is no title for a report: give IN.json ... TITLE OUT.rst")
    write_report(
        [Run.read(path) for path in options.results],
        options.title,
        options.output,
        options.report_types,
        image_folder=options.img_dir,
        root_dir=options.root_dir,
        image_format=options.image_format,
        sources=options.results,
    )


def write_report(
    runs: Sequence[Run],
    title: str,
    output: Path,
    report_types: Sequence[str] | None = None,
    *,
    image_folder: Path | None = None,
    root_dir: Path | None = None,
    image_format: Literal["svg", "png"] = "svg",
    sources: Sequence[Path] = (),
    failures: Sequence[Failure] = (),
) -> None:
    """Write a report as ``output`` (RST) and as an HTML page beside it, and say what came out and where it is.

    Arguments are those of :func:`~nnpipe.report.render.render` and :func:`~nnpipe.report.rst.write_rst`.
    """
    candidates = candidates_of(runs, sources)
    document = report_on(candidates, title, report_types, failures)
    pictures, page = Pictures(), output.with_suffix(".html")
    try:
        write_rst(document, output, image_folder, root_dir, image_format=image_format, pictures=pictures)
        write_html(document, page, pictures=pictures)
    except OSError as error:
        raise ConfigError(f"the report cannot be written: {error}") from None
    if len(runs) + len(failures) > 1:
        print(f"\n{to_text(outcome(candidates, failures))}\n")
    print(f"report: {page} (in the browser) and {output}")


if __name__ == "__main__":
    sys.exit(main())
