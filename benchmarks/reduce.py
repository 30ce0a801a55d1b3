"""To how many nodes ``reduce`` cuts graphs of 100 nodes with a planted fault, and how long that
takes.

Twenty faults are planted in a compiler: operands swapped, an attribute changed, an operator
dropped, a result scaled or made NaN, an error, a crash, a hang.  Each goes wrong on one node, or
where two or three operators follow each other, of a network of convolutions, of attention, or with
branches.  A reproducer counts as small with at most three nodes.

Run ``python benchmarks/reduce.py`` (half an hour on two cores), or with ``--quick`` (three faults,
under 2 min).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _planted_faults import FAULTS, PlantedFault, write_graph
from _table import EPYC, report

from nnpipe.core.errors import NNPipeError
from nnpipe.core.progress import silent
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.workflows.recipes import Recipe
from nnpipe.workflows.reduction.reduce import reduce

MOST_NODES, MOST_SECONDS, GOAL = 3, 600.0, 0.9
QUICK = (0, 10, 18)


def row(number: int, folder: Path) -> dict[str, Any]:
    structure, fault, pattern, node = FAULTS[number]
    model = write_graph(folder / f"{number}.onnx", structure)
    compiler = PlantedFault(fault=fault, node=node, pattern=pattern)
    found: dict[str, Any] = {"graph": structure, "fault": fault, "on": node or pattern}
    try:
        way = Recipe("planted", (compiler,), find("ONNXRuntime", Runtime)())
        result = reduce(model, way, to=folder / f"reduced{number}", progress=silent)
    except NNPipeError as error:
        return {
            **found,
            "symptom": str(error)[:60],
            "nodes": -1,
            "tries": 0,
            "seconds": 0.0,
            "small": False,
        }
    small = len(result.nodes) <= MOST_NODES and result.seconds <= MOST_SECONDS
    return {
        **found,
        "symptom": result.symptom.kind,
        "nodes": len(result.nodes),
        "tries": result.tries,
        "seconds": round(result.seconds, 1),
        "small": small,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three faults only")
    quick = parser.parse_args(argv).quick
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(number, Path(folder)) for number in (QUICK if quick else range(len(FAULTS)))]
    small = sum(found["small"] for found in rows)
    return report(
        rows,
        "reproducers of at most three nodes",
        small,
        "faults",
        len(rows),
        small / len(rows),
        f">= {GOAL:.0%} of faults, each within {MOST_SECONDS:.0f} s",
        small >= GOAL * len(rows),
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
