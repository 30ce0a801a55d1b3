"""Cost that grows: what large sweeps, long trainings, big files and many results cost, and how
steeply that grows.

Each row is measured at two sizes.  The exponent is the slope between them on
logarithmic scales: 1 where cost is proportional to size, 2 where it is
quadratic.  Judged are the cost at the greater size and, where it is said, the
exponent.  Times are the processor's, so that a busy machine changes little.

    python benchmarks/scale.py [--quick]
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from _table import report

MODULES = (
    "_scale_sweep",
    "_scale_database",
    "_scale_report",
    "_scale_files",
    "_scale_checkpoint",
    "_scale_training",
    "_scale_graph",
    "_scale_explain",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes: within a minute")
    parser.add_argument("--only", nargs="+", choices=MODULES, default=MODULES, help="these rows")
    options = parser.parse_args()
    parts: list[dict[str, Any]] = []
    for name in options.only:
        parts += importlib.import_module(name).parts(options.quick)
    rows = [
        {
            "cost that grows": part["name"],
            "from": part["sizes"][0],
            "to": part["sizes"][-1],
            "at first": part["reference"],
            "at last": part["value"],
            "unit": part["unit"],
            "exponent": round(part["exponent"], 2),
            "goal": part["goal"],
            "holds": part["holds"],
        }
        for part in parts
    ]
    worst = max(parts, key=lambda part: (not part["holds"], part["ratio"]))
    fields = {
        name: worst[name]
        for name in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(rows, **fields, holds=all(part["holds"] for part in parts), parts=parts)


if __name__ == "__main__":
    sys.exit(main())
