"""The same system under test, driven by MLPerf's LoadGen and by nnpipe: do both see the same?

The system takes a time for each sample that is known beforehand: gamma
distributed around 3 ms, 240 different samples, and it sleeps for that time, so
that other work on the machine does little to it.  Both answer one query at a
time.  LoadGen (``pip install mlcommons-loadgen``) and nnpipe take turns; of
each figure the median over the rounds is compared.

Goal: median and rate within 5 %, p90 within 7 %, p99 within 10 %.  In the server scenario
the two draw other arrivals and a queue multiplies what differs: there 10 % for
the median and the rate, 15 % for p90 and 25 % for p99, four standard deviations
of the median of three rounds each.

Run ``python benchmarks/against_loadgen.py`` (about 2 min) or with ``--quick`` (about 45 s).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import _loadgen
import numpy as np
from _table import EPYC, report, skip

from nnpipe.measuring.load import Load, Until
from nnpipe.measuring.load_generator import run_load
from nnpipe.testing.fakes import FakeSession

# Not 200: p99 would lie just between the second and the third longest, and chance would say which.
TIMES_NS = np.random.default_rng(0).gamma(9.0, 3e6 / 9, 240).astype(int).tolist()
RATE = 100.0
TOLERANCE = {"p50": 0.05, "p90": 0.07, "p99": 0.1, "rate": 0.05}
OF_A_QUEUE = {"p50": 0.1, "p90": 0.15, "p99": 0.25, "rate": 0.1}
QUERIES = {"single-stream": 500, "multi-stream": 150, "server": 500, "offline": 600}
PER_QUERY = 4


def work(numbers: Iterable[int]) -> None:
    """Take the time of these samples."""
    time.sleep(sum(TIMES_NS[number] for number in numbers) / 1e9)


class System(FakeSession):
    """Spends what each sample in the batch takes."""

    def _run(self) -> None:
        work(self._inputs[0][:, 0].astype(int).tolist())
        super()._run()


def theirs(scenario: str, queries: int, seed: int) -> dict[str, float]:
    return _loadgen.drive(
        scenario,
        work,
        len(TIMES_NS),
        queries=queries,
        rate=RATE,
        samples_per_query=PER_QUERY,
        seed=seed,
    )


def ours(scenario: Any, queries: int, seed: int) -> dict[str, float]:
    size = {"multi-stream": PER_QUERY, "offline": len(TIMES_NS)}.get(scenario, 1)
    numbers = np.random.default_rng(seed).permutation(len(TIMES_NS)).reshape(-1, size)
    asked = [[{"x": np.repeat(row[:, None], 4, axis=1).astype(np.float32)}] for row in numbers]
    load = Load(scenario=scenario, rate=RATE if scenario == "server" else None, seed=seed)
    count = max(queries // len(TIMES_NS), 1) if scenario == "offline" else queries
    found = run_load(System(), asked, load, Until(queries=count))
    p50, p90, p99 = np.percentile(found.series["latency_ns"], [50, 90, 99])
    rate = found.sample_rate if scenario == "offline" else found.rate
    return {"p50": p50, "p90": p90, "p99": p99, "rate": rate}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 9
    if not _loadgen.installed():
        skip("LoadGen is not installed: pip install mlcommons-loadgen")
    sides = {"LoadGen": theirs, "nnpipe": ours}
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    order = random.Random(0)
    for number in range(rounds):
        for scenario in _loadgen.SCENARIOS:
            for name in order.sample(list(sides), 2):
                found.setdefault((scenario, name), []).append(
                    sides[name](scenario, QUERIES[scenario], number)
                )
    rows, parts = [], []
    for scenario in _loadgen.SCENARIOS:
        for figure in ("rate",) if scenario == "offline" else TOLERANCE:
            reference, value = (
                median(each[figure] for each in found[scenario, name]) for name in sides
            )
            if scenario == "offline":  # LoadGen asks for all samples in one query
                reference = median(each["sample_rate"] for each in found[scenario, "LoadGen"])
            allowed = (OF_A_QUEUE if scenario == "server" else TOLERANCE)[figure]
            unit = "1/s" if figure == "rate" else "ns"
            value, ratio = float(value), float(value / reference)
            holds = abs(ratio - 1) <= allowed
            rows.append(
                {
                    "scenario": scenario,
                    "figure": figure,
                    "LoadGen": reference,
                    "nnpipe": value,
                    "ratio": ratio,
                    "within": allowed,
                    "holds": holds,
                }
            )
            parts.append(
                {
                    "name": f"{scenario} {figure}",
                    "value": value,
                    "unit": unit,
                    "reference": reference,
                    "ratio": ratio,
                    "goal": f"within {allowed:.0%}",
                    "holds": holds,
                    "seen_on": EPYC,
                }
            )
    worst = max(parts, key=lambda part: abs(part["ratio"] - 1))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {rounds} rounds")
    return report(
        rows,
        "against LoadGen",
        worst["value"],
        worst["unit"],
        worst["reference"],
        worst["ratio"],
        "the same figures from the same system, each within its tolerance",
        all(part["holds"] for part in parts),
        parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
