"""What a report costs: CPU time, memory and bytes, from result files of 100,000 samples each.

The scenario ``render_report`` runs in a process of its own, from reading the
result files to the last picture; the figures are those of the whole process,
with the import of Python's packages.  As a reference the same process only
imports what a report needs (numpy, Jinja2).

Run ``python benchmarks/report.py`` (about 40 s) or with ``--quick`` (about 20 s).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from _table import EPYC, report

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series

CPU_GOAL, MEMORY_GOAL = 3.0, 200.0  # seconds, MB
MANY_GOALS = {"MB": 6.0, "nodes": 60_000.0, "load, s": 2.0}  # of the page of 300 results
SAMPLES, MANY = 100_000, 20
BASELINE = "import jinja2, numpy"
# Measured from outside by the system's own account of a child that has ended.
METER = """
import json, resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


def made_up_run(samples: int, classes: int, seed: int = 0) -> Run:
    """A run with as many inferences and predictions as asked for, sampled every 10 ms."""
    random = np.random.default_rng(seed)
    latency = (40_000 * (0.9 + random.gamma(2, 0.06, samples))).astype(np.int64)
    latency[random.integers(0, samples, samples // 1000)] *= 9
    start = np.cumsum(latency + 2000) - latency
    ticks = np.arange(0, int(start[-1]), 10_000_000, dtype=np.int64)
    # the same samples for all seeds
    truth = np.random.default_rng(classes).integers(0, classes, samples)
    wrong = random.random(samples) > 0.9
    predicted = np.where(wrong, random.integers(0, classes, samples), truth)
    rank = np.where(predicted == truth, 0, random.integers(1, classes, samples)).astype(np.uint16)
    resources = {
        "time_ns": ticks,
        "cpu_percent": random.normal(97, 3, len(ticks)).clip(0),
        "machine_cpu_percent": random.normal(51, 3, len(ticks)).clip(0),
        "process_bytes": random.integers(300_000_000, 310_000_000, len(ticks)),
        "memory_bytes": random.integers(5_000_000_000, 5_100_000_000, len(ticks)),
        "gpu_percent": random.uniform(0, 100, len(ticks)),
        "gpu_bytes": random.integers(1_000_000_000, 1_100_000_000, len(ticks)),
    }
    inference = {"start_ns": start, "latency_ns": latency, "samples": np.ones(samples, np.int64)}
    names = tuple(f"class {number}" for number in range(classes))
    return Run(
        title=f"{classes} classes, made up with seed {seed}",
        artifact={"size": 100_000 + 1000 * seed},
        command=("benchmarks/report.py",),
        components={},
        frameworks={},
        host={},
        timing={"load_ns": 1_000_000, "first_ns": 500_000, "warmup": 10, "batch_size": 1},
        series={"inference": Series(inference), "resources": Series(resources)},
        evaluation=Evaluation(
            "classification", {"truth": truth, "predicted": predicted, "rank": rank}, names
        ),
        created="2026-01-01T00:00:00+00:00",
    )


def many_results(folder: Path, number: int = 300, samples: int = 2000) -> dict[str, float | None]:
    """Cost of the page of many results: its size, and what a browser takes to show it where one is
    installed.

    Returns
    -------
    dict
        ``MB`` of the page, ``CPU, s`` of writing it, and ``nodes``, ``load, s`` and ``px`` (the
        page's height at 1,280 pixels), which are null without Playwright and Chromium.
    """
    paths = []
    for seed in range(number):
        paths.append(str(folder / f"{seed}.json"))
        run = made_up_run(samples, 10, seed)
        # Facts that differ between candidates, as the load of a machine does.
        dataclasses.replace(run, host={"before": {"load_average": [seed / 100, 0.2, 0.1]}}).write(
            paths[-1]
        )
    page = folder / "many.html"
    seconds, _ = metered("-m", "nnpipe.scenarios.render_report", *paths, "Many", str(page))
    return {
        "results": number,
        "MB": page.stat().st_size / 1e6,
        "CPU, s": seconds,
        **in_browser(page),
    }


def in_browser(page: Path) -> dict[str, float | None]:
    unknown: dict[str, float | None] = {"nodes": None, "load, s": None, "px": None}
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return unknown
    if path is None:
        return unknown
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        loads, shown = [], browser.new_page(viewport={"width": 1280, "height": 900})
        for _ in range(3):
            shown.goto("about:blank")
            began = time.perf_counter()
            shown.goto(page.as_uri())
            height = shown.evaluate("document.documentElement.scrollHeight")
            loads.append(time.perf_counter() - began)
        nodes = shown.evaluate("document.querySelectorAll('*').length")
        browser.close()
    return {"nodes": nodes, "load, s": min(loads), "px": height}


def metered(*command: str) -> tuple[float, float]:
    """CPU seconds and greatest memory in MB of a process."""
    # One thread, so that idle threads of a maths library do not count as work.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    meter = [sys.executable, "-c", METER, sys.executable, *command]
    told = subprocess.run(meter, env=environment, check=True, capture_output=True, text=True).stdout
    status, seconds, kilobytes = (float(word) for word in told.strip("[]\n").split(","))
    if status:
        raise SystemExit(f"{command} ended with status {status:g}")
    # Linux counts in units of 1,024 bytes, macOS in bytes.
    return seconds, kilobytes * (1 if sys.platform == "darwin" else 1024) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 2 if parser.parse_args().quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = {"one result, 10 classes": [(10, 0)], "one result, 1,000 classes": [(1000, 0)]}
        cases[f"{MANY} results, 10 classes"] = [(10, seed) for seed in range(MANY)]
        commands: dict[str, list[str]] = {"imports alone": ["-c", BASELINE]}
        for case, made in cases.items():
            place = folder / case.replace(" ", "-")
            place.mkdir()
            paths = []
            for classes, seed in made:
                paths.append(str(place / f"{classes}-{seed}.json"))
                made_up_run(SAMPLES, classes, seed).write(paths[-1])
            commands[case] = [
                "-m",
                "nnpipe.scenarios.render_report",
                *paths,
                "Title",
                str(place / "report.rst"),
            ]
        for command in commands.values():
            metered(*command)  # files come from the disk's cache from now on
        found = {
            case: [metered(*command) for _ in range(rounds)] for case, command in commands.items()
        }
        rows = []
        for case, figures in found.items():
            place = folder / case.replace(" ", "-")
            row = {
                "report": case,
                "CPU, s": median(cpu for cpu, _ in figures),
                "memory, MB": max(m for _, m in figures),
            }
            sizes = {
                "result, kB": "*.json",
                "HTML, kB": "*.html",
                "RST, kB": "*.rst",
                "pictures, kB": "img/*",
            }
            rows.append(row | {what: _kilobytes(place, pattern) for what, pattern in sizes.items()})
        place = folder / "many"
        place.mkdir()
        many = many_results(place)
    baseline, reports = rows[0], rows[1:]
    worst = max(reports, key=lambda row: row["CPU, s"])
    memory = max(row["memory, MB"] for row in reports)
    parts = [
        {
            "name": "CPU time",
            "value": worst["CPU, s"],
            "unit": "s",
            "goal": CPU_GOAL,
            "reference": baseline["CPU, s"],
        },
        {
            "name": "memory",
            "value": memory,
            "unit": "MB",
            "goal": MEMORY_GOAL,
            "reference": baseline["memory, MB"],
        },
    ]
    for name, goal in MANY_GOALS.items():
        if (value := many[name]) is not None:
            parts.append(
                {
                    "name": f"page of 300 results, {name}",
                    "value": value,
                    "unit": "",
                    "goal": goal,
                    "reference": goal,
                }
            )
    for part in parts:
        part["ratio"] = part["value"] / part["reference"]
        part["holds"] = part["value"] < part["goal"]
        part["seen_on"] = EPYC
    return report(
        rows,
        f"CPU time of a report from {SAMPLES:,} samples a result ({worst['report']})",
        worst["CPU, s"],
        "s",
        baseline["CPU, s"],
        worst["CPU, s"] / baseline["CPU, s"],
        f"under {CPU_GOAL:g} s of CPU time and {MEMORY_GOAL:g} MB",
        all(part["holds"] for part in parts),
        parts,
        seen_on=EPYC,
    )


def _kilobytes(folder: Path, pattern: str) -> int:
    return round(sum(path.stat().st_size for path in folder.glob(pattern)) / 1e3)


if __name__ == "__main__":
    sys.exit(main())
