"""What searches cost as they grow: many workers on one PostgreSQL server, and many trials in one
study.

Goals: 64 workers that ask for trials at once lose none, do none twice, and wait less than 100 ms in
the median; 10,000 trials in one study by the command, with importance and page, take at most 60 CPU
seconds and 500 MB; and where TPE computes each of them, at most 20 ms a trial of our own, all else
than Optuna's sampler: the start, the engine, the run database, importance and page.

    python benchmarks/search_scale.py [--quick] [--only asking|sqlite|postgresql]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _postgresql import postgresql
from _sampler_time import VARIABLE, told_at_the_end
from _table import EPYC, report

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import Proposal, TrialLease

WORKERS = 64
MOST_WAIT_MS, MOST_CPU, MOST_MB, MOST_MS = 100.0, 60.0, 500.0, 20.0
SPACE = {
    "rate": {"kind": "power", "low": -5, "high": -1},
    "units": {"kind": "int", "low": 1, "high": 512},
    "momentum": {"kind": "uniform", "low": 0, "high": 1},
    "kind": {"kind": "discrete", "values": ["a", "b", "c"]},
}
SAMPLERS = ("random", "tpe")
CASES = ("asking", "sqlite", "postgresql")

Rows = list[dict[str, Any]]

told_at_the_end()  # in the process of the search, which imports this module


def trained(rate: float, units: int, momentum: float, kind: str) -> float:
    """Return the value of a trial, at no cost."""
    return abs(rate - 0.01) + abs(units - 100) / 500 + momentum / 10 + "abc".index(kind) / 5


def worker(address: str, number: int, trials: int, start: Any, found: Any) -> None:
    """Ask for trials, and end each at once; put the seconds that each question took."""
    with RunDatabase(address) as database:
        store = DatabaseTrials(database, "asking")
        start.wait()
        waits: list[float] = []
        while True:
            begin = time.perf_counter()
            lease = store.lease(f"worker {number}", _proposal, trials)
            waits.append(time.perf_counter() - begin)
            if lease is None:
                break
            _end(store, lease)
        found.put(waits)


def _proposal(number: int) -> Proposal:
    return Proposal({"x": number})


def _end(store: DatabaseTrials, lease: TrialLease) -> None:
    # A training, however short: a worker that asks again at once asks in nobody's place.
    time.sleep(1.0)
    store.finish(lease, {"y": 1.0})


def of_asking(address: str, trials: int) -> Rows:
    """Let many workers ask at the same time."""
    with RunDatabase(address) as database:
        search = database.searches.open("asking", {"y": "minimize"})
        context = multiprocessing.get_context("fork")
        start, found = context.Barrier(WORKERS), context.Queue()
        processes = [
            context.Process(target=worker, args=(address, number, trials, start, found))
            for number in range(WORKERS)
        ]
        for process in processes:
            process.start()
        waits = [wait for _ in processes for wait in found.get()]
        for process in processes:
            process.join()
        done = DatabaseTrials(database, search).trials()
    whole = len(done) == trials and all(
        trial.state == "finished" and trial.fence == 1 for trial in done
    )
    median = 1000 * statistics.median(waits)
    slowest = 1000 * statistics.quantiles(waits, n=100)[98]
    return [
        {
            "search": f"{WORKERS} workers ask, PostgreSQL",
            "trials": trials,
            "figure": median,
            "unit": "ms, median",
            "most": MOST_WAIT_MS,
            "holds": whole and median < MOST_WAIT_MS,
        },
        {
            "search": "  the slowest hundredth",
            "trials": trials,
            "figure": slowest,
            "unit": "ms",
            "most": "",
            "holds": whole,
        },
    ]


def of_study(name: str, address: str, trials: int, sampler: str) -> Rows:
    """Carry out many trials by the command, in a process of its own, and tell its time and memory.

    The sampler ``random`` costs nothing, so that the study itself is measured; ``tpe`` computes for
    each trial.
    """
    with tempfile.TemporaryDirectory() as where:
        content = {
            "title": f"scale {sampler}",
            "function": "search_scale.trained",
            "space": SPACE,
            "trials": trials,
            "sampler": sampler,
        }
        path = Path(where, "search.json")
        path.write_text(json.dumps(content), "utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = subprocess.run(
            [
                sys.executable,
                "-m",
                "nnpipe",
                "search",
                str(path),
                "--database",
                address or f"{where}/runs.sqlite",
                "--report",
                f"{where}/page.html",
            ],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, VARIABLE: f"{where}/sampler"},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        in_optuna = (
            float(Path(where, "sampler").read_text("utf-8")) if told.returncode == 0 else 0.0
        )
    if (
        told.returncode
        or f"{trials} finished" not in told.stdout
        or "importance for value" not in told.stdout
    ):
        raise SystemExit(f"status {told.returncode}: {told.stdout[-500:]} {told.stderr[-2000:]}")
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    megabytes = after.ru_maxrss / 1024  # of the largest child so far
    if sampler == "tpe":
        own = 1000 * (cpu - in_optuna) / trials
        return [
            {
                "search": f"each trial, TPE, {name}, our own",
                "trials": trials,
                "figure": own,
                "unit": "CPU ms",
                "most": MOST_MS,
                "holds": own <= MOST_MS,
            },
            {
                "search": "  Optuna's sampler",
                "trials": trials,
                "figure": 1000 * in_optuna / trials,
                "unit": "CPU ms",
                "most": "",
                "holds": True,
            },
        ]
    return [
        {
            "search": f"one study with importance and page, {name}",
            "trials": trials,
            "figure": cpu,
            "unit": "CPU s",
            "most": MOST_CPU,
            "holds": cpu <= MOST_CPU,
        },
        {
            "search": "  memory",
            "trials": trials,
            "figure": megabytes,
            "unit": "MB",
            "most": MOST_MB,
            "holds": megabytes <= MOST_MB,
        },
    ]


@contextlib.contextmanager
def _server(cases: Sequence[str]) -> Iterator[str | None]:
    if {"asking", "postgresql"} & set(cases):
        with postgresql(connections=400) as address:
            yield address
    else:
        yield None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer trials")
    parser.add_argument("--only", choices=CASES, nargs="+", default=CASES, help="these rows")
    options = parser.parse_args()
    trials = 1000 if options.quick else 10_000
    rows: Rows = []
    with _server(options.only) as address:
        if address is None and set(options.only) != {"sqlite"}:
            print("PostgreSQL is not installed: its rows are left out")
        if "asking" in options.only and address is not None:
            rows += of_asking(address, 256 if options.quick else 1024)
        if "sqlite" in options.only:
            rows += [row for sampler in SAMPLERS for row in of_study("SQLite", "", trials, sampler)]
        if "postgresql" in options.only and address is not None:
            rows += [
                row
                for sampler in SAMPLERS
                for row in of_study("PostgreSQL", address, trials, sampler)
            ]
    judged = [row for row in rows if row["most"] != ""]
    worst = max(judged, key=lambda row: row["figure"] / row["most"])
    return report(
        rows,
        f"{worst['search'].strip()}, {worst['unit']}",
        worst["figure"],
        worst["unit"],
        worst["most"],
        worst["figure"] / worst["most"],
        "none lost and a median wait below 100 ms; 60 CPU s, 500 MB, 20 ms a trial",
        all(row["holds"] for row in rows),
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
