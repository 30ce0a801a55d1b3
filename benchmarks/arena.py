"""Which arenas nnpipe plans for buffers that are hard to place, beside first-fit by falling size.

The cases are the challenging ones of minimalloc (Moffitt, ASPLOS 2023), ``A.1048576.csv`` to
``K.1048576.csv``: 154 to 454 buffers that are known to fit into 1,048,576 bytes.  First-fit by
falling size, as TensorFlow Lite Micro plans, needs a quarter to two fifths more.  The goal is that
all fit, each within 60 seconds of processor time.

Run ``python benchmarks/arena.py FOLDER`` with the folder that holds the cases (half a minute of
processor time), or with ``--quick`` for those that take less than a second each.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
from pathlib import Path

from _table import DATA, EPYC, existing, report

from nnpipe.analysis.arena import Buffer, plan_arena

CAPACITY, LIMIT_S = 1 << 20, 60
CASES = DATA / "memory" / "minimalloc"
HARD = ("B", "E")


def buffers_of(path: Path) -> list[Buffer]:
    """Return the buffers of a case."""
    with open(path, newline="") as file:
        return [
            Buffer(int(row["lower"]), int(row["upper"]), int(row["size"]))
            for row in csv.DictReader(file)
        ]


def overlapping(buffers: list[Buffer], offsets: tuple[int, ...]) -> bool:
    """Return whether two buffers share memory at the same time."""
    placed = list(zip(offsets, buffers, strict=True))
    return any(
        a < b + other.size
        and b < a + one.size
        and one.lower < other.upper
        and other.lower < one.upper
        for n, (a, one) in enumerate(placed)
        for b, other in placed[:n]
    )


def seconds() -> float:
    """Return the processor time of this process and those that it has started."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(time.ru_utime + time.ru_stime for time in times)


def main() -> int:
    """Plan all cases and print what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=CASES, help=f"that of the cases (default: {CASES})"
    )
    parser.add_argument("--quick", action="store_true", help=f"leave out {' and '.join(HARD)}")
    options = parser.parse_args()
    rows, worst, fit, wrong = [], 0.0, 0, 0
    cases = [
        path
        for path in sorted(existing(options.folder).glob("*.1048576.csv"))
        if not (options.quick and path.name[0] in HARD)
    ]
    if not cases:
        parser.error(
            f"{options.folder} holds no cases; they are minimalloc's files NAME.{CAPACITY}.csv"
        )
    for path in cases:
        buffers = buffers_of(path)
        first = plan_arena(buffers, seconds=0)
        began = seconds()
        plan = plan_arena(buffers, capacity=CAPACITY, seconds=LIMIT_S)
        took = seconds() - began
        worst, fit = max(worst, took), fit + (plan.size <= CAPACITY)
        wrong += overlapping(buffers, plan.offsets)
        rows.append(
            {
                "case": path.name[0],
                "buffers": len(buffers),
                "first-fit": f"{first.size / CAPACITY:.3f}",
                "planned": f"{plan.size / CAPACITY:.3f}",
                "CPU s": f"{took:.2f}",
            }
        )
    holds = fit == len(cases) and not wrong and worst < LIMIT_S
    print(f"{fit} of {len(cases)} fit into {CAPACITY:,} bytes, {wrong} with an overlap")
    return report(
        rows,
        "arena: slowest case",
        worst,
        "s",
        LIMIT_S,
        worst / LIMIT_S,
        "all fit, each in less than 60 s of processor time",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
