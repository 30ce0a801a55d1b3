"""What the ``nnpipe`` command costs before it does anything: CPU time and memory, against a bare
interpreter.

    python benchmarks/startup.py [--quick]

The goal is that of ``nnpipe --help``: within 0.2 s of CPU time and 60 MB.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from pathlib import Path

from _table import EPYC, report

SOURCE = Path(__file__).resolve().parents[1] / "src"
CPU_GOAL = 0.2  # seconds, user and system
MEMORY_GOAL = 60.0  # MB, the greatest resident size
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "nnpipe --help": ["-m", "nnpipe", "--help"],
    "nnpipe model_training -h": ["-m", "nnpipe", "model_training", "-h"],
    "nnpipe list": ["-m", "nnpipe", "list"],
}
REFERENCE, JUDGED = "python -c pass", "nnpipe --help"


def cost(arguments: list[str]) -> tuple[float, float]:
    """Run Python once; give its CPU seconds and its greatest resident size in MB.

    The kernel starts a child's high-water mark at the size of its parent, so
    this process stays small: it imports the standard library only.
    """
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(
        sys.executable, [sys.executable, *arguments], environment, file_actions=nowhere
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(
            f"python {' '.join(arguments)} failed with status {os.waitstatus_to_exitcode(status)}"
        )
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB on Linux
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 21")
    rounds = 5 if parser.parse_args().quick else 21
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for arguments in COMMANDS.values():
        cost(arguments)  # compiles the modules and fills the file cache
    shuffle, order = random.Random(0).shuffle, list(COMMANDS)
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            found[name].append(cost(COMMANDS[name]))
    seconds = {name: statistics.median(cpu for cpu, _ in costs) for name, costs in found.items()}
    memory = {name: max(size for _, size in costs) for name, costs in found.items()}
    rows = [
        {
            "command": name,
            "CPU s (median)": seconds[name],
            "CPU s (worst)": max(cpu for cpu, _ in found[name]),
            "memory MB (worst)": memory[name],
        }
        for name in COMMANDS
    ]
    parts = [
        part("CPU time of nnpipe --help", seconds[JUDGED], "s", seconds[REFERENCE], CPU_GOAL),
        part("memory of nnpipe --help", memory[JUDGED], "MB", memory[REFERENCE], MEMORY_GOAL),
    ]
    closest = max(parts, key=lambda each: each["value"] / each["limit"])
    fields = {
        name: closest[name]
        for name in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(rows, **fields, holds=all(each["holds"] for each in parts), parts=parts)


def part(name: str, value: float, unit: str, reference: float, limit: float) -> dict[str, object]:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": value / reference,
        "limit": limit,
        "goal": f"at most {limit:g} {unit}",
        "holds": value <= limit,
        "seen_on": EPYC,
    }


if __name__ == "__main__":
    sys.exit(main())
