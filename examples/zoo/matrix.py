"""Real architectures through every usual way: train each briefly, compile it, and compare it with
its source.

    python examples/zoo/matrix.py                              all of examples/zoo.yaml, in some hours
    python examples/zoo/matrix.py --models bert vit --ways onnx onnx-int8
    python examples/zoo/matrix.py my_zoo.yaml                  models of your own

Each cell runs in a process of its own with a time limit.  Finished cells are kept
in the output folder and not repeated; delete a cell's file to try it again.  The
table is written to ``matrix.md`` there.

"same", "close" and "different" are the verdicts of ``nnpipe verify``; "refused" is an error of
nnpipe that says why, and "unclear" a crash, an error of a framework as it is, or too long a time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import write_text
from zoo.cells import cell
from zoo.matrix_file import MatrixFile, read
from zoo.matrix_table import table

_FILE = Path(__file__).resolve().parents[1] / "zoo.yaml"


def main() -> int:
    """Carry out the cells that have not been done yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, nargs="?", default=_FILE, help="rows and columns (default: zoo.yaml)"
    )
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="some rows only")
    parser.add_argument("--ways", nargs="+", metavar="WAY", help="some columns only")
    parser.add_argument("--output", type=Path, help="another folder than the file's")
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        matrix = read(options.file)
        models, ways = (
            _chosen(kind, names, known)
            for kind, names, known in (
                ("model", options.models, matrix.models),
                ("way", options.ways, matrix.ways),
            )
        )
    except NNPipeError as error:
        parser.error(str(error))
    output = options.output or matrix.output
    for way in ways:
        for model in models:
            path = output / model / f"{way}.json"
            if path.exists():
                continue
            if options.cell:
                found: Any = cell(matrix.models[model], way, output / model, matrix.samples)
            else:
                print(f"{model}, {way} ...", end=" ", flush=True)
                found = _apart(options.file, model, way, output, matrix)
            write_text(path, json.dumps(found, indent=1) + "\n")
            if not options.cell:
                print(found["verdict"], flush=True)
    if not options.cell:
        write_text(output / "matrix.md", table(matrix, output))
        print(f"\n{table(matrix, output)}\n{output / 'matrix.md'}")
    return 0


def _chosen(kind: str, names: list[str] | None, known: Any) -> list[str]:
    for name in names or ():
        if name not in known:
            raise NNPipeError(f"there is no {kind} {name!r}: {', '.join(known)}")
    return names or list(known)


def _apart(file: Path, model: str, way: str, output: Path, matrix: MatrixFile) -> Any:
    """Carry out a cell in a new process, and return what it wrote."""
    path = output / model / f"{way}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        __file__,
        str(file),
        "--cell",
        "--models",
        model,
        "--ways",
        way,
        "--output",
        str(output),
    ]
    try:
        with open(path.with_suffix(".log"), "wb") as log:
            ended = subprocess.run(
                command, timeout=matrix.time_limit, stdout=log, stderr=log, check=False
            )
    except subprocess.TimeoutExpired:
        return {"verdict": "unclear", "reason": f"did not end within {matrix.time_limit:g} s"}
    if ended.returncode or not path.exists():
        return {"verdict": "unclear", "reason": f"its process ended with status {ended.returncode}"}
    return json.loads(path.read_text("utf-8"))


if __name__ == "__main__":
    raise SystemExit(main())
