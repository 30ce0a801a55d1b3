"""Bring what ``nnpipe run examples/breadth.yaml`` has measured into ``docs/breadth.md``.

    python docs/measured.py build/breadth        (the folder with the result files)

Each model gets a table, in the order of the result files; what stands around
them in the page stays.  Result files say where, when and with which versions
they were measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nnpipe.measuring.run import Run
from nnpipe.report.inputs.candidate import Candidate, create_candidates
from nnpipe.report.sections.verdict import build_outcome_table

PAGE = Path(__file__).resolve().parent / "breadth.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end of what was measured -->"


def measured(runs: Sequence[Run]) -> str:
    """Give the conditions and the tables as Markdown."""
    groups = [(model, list(group)) for model, group in groupby(create_candidates(runs), model_of)]
    return "\n".join(
        [conditions(runs), *(f"\n### {model}\n\n{table(model, group)}" for model, group in groups)]
    )


def model_of(candidate: Candidate) -> str:
    """Give the title of the model, which candidates of a pipeline with several bear before their
    own.
    """
    return candidate.name.partition(": ")[0]


def table(model: str, candidates: Sequence[Candidate]) -> str:
    """Write the outcome of a model's candidates."""
    found = build_outcome_table(candidates)
    lines = [
        row(("way", *found.header[1:])),
        row(["---", *["---:"] * (len(found.header) - 2), "---"]),
    ]
    for cells in found.cells():
        title, *rest = [cell.text for cell in cells]
        lines.append(row([title.removeprefix(f"{model}: "), *rest]))
    return "\n".join(lines) + "\n"


def row(cells: Iterable[str]) -> str:
    """Write a row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def conditions(runs: Sequence[Run]) -> str:
    """Say in one paragraph where, when, and with what the runs were measured."""
    host, dates = runs[0].host, sorted(run.created[:10] for run in runs)
    loads = sorted(run.host["before"]["load_average"][0] for run in runs)
    cpu = host["cpu"]
    pairs = [pair for run in runs for pair in (*run.frameworks.items(), *made_with(run.artifact))]
    versions = {name: version for name, version in pairs if name in _NAMED}
    machine = (
        f"{cpu['model']}, {cpu['logical_cores']} cores ({', '.join(cpu['instructions'])})"
        f"{', a virtual machine' if host['hypervisor'] else ''}; "
        f"{host['system']['distribution']}, {host['python']}"
    )
    return (
        "\n".join(
            [
                f"- Machine: {machine}",
                f"- Date: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}",
                f"- Load of the machine when a candidate was measured: {loads[0]:.1f} to "
                f"{loads[-1]:.1f}, {loads[len(loads) // 2]:.1f} in the middle",
                f"- Versions: {', '.join(f'{name} {versions[name]}' for name in sorted(versions))}",
            ]
        )
        + "\n"
    )


def made_with(artifact: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Give the packages that had a part in a model file, and in those that it was made from."""
    while artifact:
        yield from (tuple(pair) for pair in artifact.get("frameworks", ()))
        artifact = artifact.get("parent")


_NAMED = (
    "torch", "tensorflow-cpu", "keras", "onnx", "onnxruntime", "ai-edge-litert", "apache-tvm", "openvino", "nncf",
    "iree-base-compiler", "iree-base-runtime", "executorch", "torchao",
)  # fmt: skip


def main() -> int:
    """Rewrite the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the result files are")
    folder = parser.parse_args().folder
    # Descriptions of model files (model.onnx.json) lie beside the result files.
    paths = sorted(path for path in folder.glob("[0-9]*-*.json") if len(path.suffixes) == 1)
    if not paths:
        sys.stderr.write(f"{folder}: no result files; run nnpipe run examples/breadth.yaml\n")
        return 2
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(
        f"{before}{BEGIN}{measured([Run.read(path) for path in paths])}{END}{rest.partition(END)[2]}",
        "utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
