"""Take the models of frameworks through ONNX and back, and render what works as a table.

Each model is exported in each operator set, checked by onnx, run by ONNX
Runtime, compared with what the framework gives, imported and compared again.
Frameworks work in processes of their own with a time limit: a crash or a hang
costs one row, and the row says what happened.

The exit status is 1 if a file computes something else than its model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError
from nnpipe.core.files import write_text
from nnpipe.core.kinds import Kind
from nnpipe.core.onnxconversion import ONNXConversion
from nnpipe.core.registry import components, find
from nnpipe.measure.host import framework_versions
from nnpipe.report.document import Block, Cell, Document, Paragraph, Section, Table
from nnpipe.report.writers.html import write_html
from nnpipe.report.writers.rst import write_rst
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file, output_folder
from nnpipe.workflows.isolation.subprocess_worker import Died, Unforeseen, Worker
from nnpipe.workflows.progress import bar
from nnpipe.workflows.verification.onnx_roundtrip import Row

_OPSETS = (17, 18, 21)
_TOLD = {"none": "no importer"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe onnx_conversion OUTDIR OUT.rst [--converters-list CLASS ...]``."""
    return execute(_run, argv, "onnx_conversion")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=output_folder, metavar="OUTDIR", help="where the ONNX files are put")
    parser.add_argument("output", type=output_file, metavar="OUT.rst", help="the table; an HTML page is put beside it")
    parser.add_argument(
        "--converters-list", nargs="+", default=[], metavar="CLASS",
        help="ONNXConversion classes to try (default: all whose frameworks are installed)",
    )  # fmt: skip
    parser.add_argument(
        "--opsets", nargs="+", type=Kind(int, minimum=1), default=list(_OPSETS), metavar="N",
        help=f"operator sets to export in (default: {' '.join(map(str, _OPSETS))})",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit",
        type=Kind(float, minimum=0.1),
        default=180.0,
        metavar="S",
        help="seconds that one model may take (default: 180)",
    )
    parser.add_argument("--results", type=output_file, metavar="OUT.json", help="write the rows as JSON, too")


def _run(argv: Sequence[str] | None) -> int:
    options = parse(argv, "onnx_conversion", __doc__ or "", (), _options).options
    if options.output.suffix != ".rst":
        raise ConfigError(f"the table's file must end in .rst, not {options.output.name!r}")
    given = [find(name, ONNXConversion) for name in options.converters_list]
    for cls in given:
        cls.check_installed()
    chosen = given or [cls for cls in components(ONNXConversion) if not cls.missing()]
    absent = [] if given else [cls for cls in components(ONNXConversion) if cls.missing()]
    if not chosen:
        raise MissingDependency("no framework that writes ONNX is installed; nnpipe list onnxconverters shows them")
    options.folder.mkdir(parents=True, exist_ok=True)
    opsets = tuple(dict.fromkeys(options.opsets))
    rows = {cls: list(_rows(cls, opsets, options.folder, options.time_limit)) for cls in chosen}
    every = [row for found in rows.values() for row in found]
    _print(every, opsets)
    if options.results:
        told = {"frameworks": framework_versions(), "rows": [row.to_json() for row in every]}
        write_text(options.results, json.dumps(told, indent=1) + "\n")
    document = _document(rows, absent, opsets)
    write_rst(document, options.output)
    write_html(document, options.output.with_suffix(".html"))
    print(f"\ntable: {options.output.with_suffix('.html')} and {options.output}")
    return 1 if any("different" in (row.verdict, row.imported) for row in every) else 0


def _rows(cls: type[ONNXConversion], opsets: Sequence[int], folder: Path, seconds: float) -> Iterator[Row]:
    """Try every model in every operator set; what goes wrong with one is its row."""
    name = cls.dotted_path()
    module = "nnpipe.workflows.verification.onnx_roundtrip"
    try:
        with Worker(f"{module}:names_of") as worker:
            models = worker.call({"conversion": name}, seconds)
    except (NNPipeError, Unforeseen) as error:
        yield Row(name, cls.framework, "(all)", opsets[0], failed="made", cause=_brief(error))
        return
    tries = [(model, opset) for model in models for opset in opsets]
    with Worker(f"{module}:convert") as worker:
        for model, opset in bar(tries, cls.framework, len(tries)):
            path = folder / f"{cls.__name__}-{model}-opset{opset}.onnx"
            task = {"conversion": name, "model": model, "opset": opset, "path": str(path)}
            try:
                yield Row(**worker.call(task, seconds))
            except Died as error:
                yield Row(name, cls.framework, model, opset, failed="crashed", cause=str(error))
            except (NNPipeError, Unforeseen) as error:
                yield Row(name, cls.framework, model, opset, failed="made", cause=_brief(error))


def _brief(error: Exception) -> str:
    return error.brief if isinstance(error, Unforeseen) else str(error)


def _outcome(row: Row) -> str:
    if row.failed:
        return {"made": "not made", "exported": "not exported", "valid": "invalid", "run": "does not run"}.get(
            row.failed, row.failed
        )
    error = "infinite" if row.error < 0 else f"{row.error:.0e}"
    return f"{row.verdict}, {error}"


def _written(row: Row) -> str:
    return f"needs {row.written}" if row.written and row.written != row.opset else ""


def _import(rows: Sequence[Row]) -> str:
    """Tell in one cell what came of importing the files of one model; which ones, if it differs."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.imported:
            found.setdefault(_TOLD.get(row.imported, row.imported), []).append(row.opset)
    if len(found) > 1:
        return "; ".join(f"{state} ({', '.join(map(str, opsets))})" for state, opsets in found.items())
    return next(iter(found), "–")


def _by_model(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.model, []).append(row)
    return found


def _print(rows: Sequence[Row], opsets: Sequence[int]) -> None:
    print("| framework | model | " + " | ".join(f"opset {opset}" for opset in opsets) + " | import |")
    print("| --- | --- |" + " --- |" * (len(opsets) + 1))
    for framework in dict.fromkeys(row.framework for row in rows):
        for model, mine in _by_model([row for row in rows if row.framework == framework]).items():
            by_opset = {row.opset: row for row in mine}
            cells = []
            for opset in opsets:
                row = by_opset.get(opset)
                cells.append("–" if row is None else ", ".join(filter(None, (_outcome(row), _written(row)))))
            print(f"| {framework} | {model} | " + " | ".join(cells) + f" | {_import(mine)} |")
    for row in rows:
        if row.failed:
            print(f"\n{row.framework}, {row.model}, opset {row.opset}: {_outcome(row)}: {row.cause}")
        elif row.imported == "failed":
            print(f"\n{row.framework}, {row.model}, opset {row.opset}: import failed: {row.import_cause}")


def _document(
    rows: dict[type[ONNXConversion], list[Row]], absent: Sequence[type[ONNXConversion]], opsets: Sequence[int]
) -> Document:
    introduction = (
        "Each model was exported in each operator set, checked by onnx, run by ONNX Runtime and compared with what its "
        "framework gives: same (no relative error above 0.0001), close or different, with the largest relative error. "
        "Where a file needs another operator set than the one asked for, the cell says which."
    )
    sections = [Section("How to read this", (Paragraph(introduction),))]
    sections += [_section(cls, found, opsets) for cls, found in rows.items()]
    if absent:
        needs = tuple((cls.framework, ", ".join(cls.missing()), cls.summary()) for cls in absent)
        table = Table(("Framework", "Missing", "What it would do"), needs)
        sections.append(Section("Not installed here", (table,)))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(framework_versions().items()))
    return Document("ONNX support", (*sections, Section("Versions", (Paragraph(versions),))))


def _section(cls: type[ONNXConversion], rows: Sequence[Row], opsets: Sequence[int]) -> Section:
    lines = []
    for model, mine in _by_model(rows).items():
        by_opset = {row.opset: row for row in mine}
        cells = [
            Cell(_outcome(by_opset[opset]), None, _written(by_opset[opset])) if opset in by_opset else Cell("–")
            for opset in opsets
        ]
        lines.append((Cell(model), *cells, Cell(_import(mine))))
    header = ("Model", *(f"opset {opset}" for opset in opsets), "Import")
    blocks: list[Block] = [Paragraph(cls.summary()), Table(header, tuple(lines))]
    causes = tuple(
        (row.model, str(row.opset), _outcome(row) if row.failed else "import failed", row.cause or row.import_cause)
        for row in rows
        if row.failed or row.imported == "failed"
    )
    if causes:
        blocks.append(Table(("Model", "Opset", "What", "Cause"), causes, caption="What did not work, and why."))
    reasons = dict.fromkeys(row.import_cause for row in rows if row.imported == "none")
    blocks += [Paragraph(f"Import: {reason}.", "note") for reason in reasons]
    return Section(cls.framework, tuple(blocks))


if __name__ == "__main__":
    sys.exit(main())
