"""How good searches are, on tables of trainings that have been done: no training, one command,
under a minute.

NAS-Bench-201 (Dong and Yang 2020) has 15,625 cells.  Each sampler searches it for 100 trials with
20 seeds; the figure is the mean of the best validation accuracies in percent.  The goals on
CIFAR-10: random 90.9 within 0.2, regularised evolution at least 91.2, TPE at least 91.3; on
ImageNet16: TPE at least 46.2; and no cell twice.

With ``--what curves``, Hyperband is to reach the median best accuracy of random searches of 60
whole trainings with a third of their epochs, on three quarters of the 34 data sets of LCBench; on
some, the first epochs mislead.  With ``--what time``, the engine's time is measured over 10,000
trials with each sampler, apart from what those of Optuna compute: at most 20 ms a trial.

Run ``python benchmarks/search_tables.py``.  ``--quick`` takes 3 seeds and 1,000 trials.

``--table FILE.npz`` searches other tables with all samplers.  One of cells, as NAS-Bench-201, has
the arrays ``valid_accuracy`` (cells, repetitions), ``operations`` and ``edges`` (edges, 2), and
optionally ``key``, which cell each row is.  Any other has an array ``values`` with an axis for each
parameter and optionally a last one for repetitions, and beside it, or named with ``--axes``, a file
``tables.json``: ``{"FILE.npz": {"axes": {"rate": [0.1, 0.01], ...}, "direction": "maximize"}}``.
``read_table`` in ``benchmarks/_search_tables.py`` says more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _sampler_time import SamplerTime
from _search_tables import EPOCHS, CurveSurrogate, Table, TableError, curve_tasks, read_table
from _table import DATA, EPYC, existing, report

import nnpipe as nnp
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.samplers import parse_sampler
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import MemoryTrials, build_configuration_key

TABLES = DATA / "search"
TRIALS, SEEDS = 100, 20
SAMPLERS = ("random", "evolution", "nsga2", "tpe")
GOALS: dict[tuple[str, str], tuple[float, float]] = {
    ("nasbench201_cifar10", "random"): (90.7, 91.1),
    ("nasbench201_cifar10", "evolution"): (91.2, 100.0),
    ("nasbench201_cifar10", "tpe"): (91.3, 100.0),
    ("nasbench201_imagenet", "tpe"): (46.2, 100.0),
}
LEAST_TASKS = 0.75
WHOLE, SHARE = 60, 1 / 3
MOST_TRIALS, MOST_MS = 10_000, 20.0

Rows = list[dict[str, Any]]


def searched(table: Table, sampler: str, seeds: int) -> tuple[list[float], int]:
    """Return the best value of each seed, and how many configurations were tried twice."""
    best, twice = [], 0
    for seed in range(seeds):
        found = nnp.search(
            lambda **configuration: table.value(configuration),
            table.space,
            objectives={"value": table.direction},
            sampler=sampler,
            trials=TRIALS,
            seed=seed,
        )
        best.append(found.best.values["value"])
        twice += len(found.trials) - len(
            {build_configuration_key(trial.configuration or {}) for trial in found.trials}
        )
    return best, twice


def of_tables(tables: Sequence[Table], seeds: int) -> Rows:
    """Search tables with all samplers."""
    rows: Rows = []
    for table in tables:
        for sampler in SAMPLERS:
            begin = time.perf_counter()
            best, twice = searched(table, sampler, seeds)
            mean, spread = float(np.mean(best)), float(np.std(best, ddof=1))
            low, high = GOALS.get((table.name, sampler), (-np.inf, np.inf))
            goal = (
                ""
                if high == np.inf
                else f"{low:g} to {high:g}"
                if high < 100
                else f"at least {low:g}"
            )
            rows.append(
                {
                    "search": table.name,
                    "by": sampler,
                    "figure": mean,
                    "spread": spread,
                    "reference": table.best,
                    "goal": f"no configuration twice{goal and ', '}{goal}",
                    "holds": not twice and low <= mean <= high,
                    "seconds": time.perf_counter() - begin,
                }
            )
    return rows


def halved(surrogate: CurveSurrogate, seed: int, epochs: int) -> float:
    """Return the best last accuracy of a Hyperband search that ends when it has used up its
    epochs.
    """
    spent, best = 0, 0.0

    def trained(report: Callable[[int, float], None], **configuration: Any) -> float:
        nonlocal spent, best
        last = 0.0
        for epoch, accuracy in enumerate(surrogate.curve(configuration).tolist(), 1):
            if spent >= epochs:
                break
            last = accuracy
            spent, best = spent + 1, max(best, last)
            report(epoch, last)
        return last

    store = MemoryTrials()
    trials = 0
    while spent < epochs:
        trials += 10
        nnp.search(
            trained,
            surrogate.space,
            objectives={"accuracy": "maximize"},
            sampler="random",
            trials=trials,
            seed=seed,
            pruner={"kind": "hyperband", "most": EPOCHS},
            store=store,
        )
    return best


def of_curves(folder: Path, seeds: int, most: int | None = None) -> Rows:
    """Compare Hyperband with random searches of whole trainings, on each data set."""
    rows: Rows = []
    epochs = int(WHOLE * EPOCHS * SHARE)
    for task in curve_tasks(folder)[:most]:
        begin = time.perf_counter()
        surrogate = CurveSurrogate(folder, task)
        whole = [_whole(surrogate, 1000 + seed) for seed in range(seeds)]
        found = [halved(surrogate, seed, epochs) for seed in range(seeds)]
        median, reached = float(np.median(whole)), float(np.median(found))
        rows.append(
            {
                "search": f"LCBench {task}, {epochs} epochs",
                "by": "hyperband",
                "figure": reached,
                "spread": float(np.std(found, ddof=1)),
                "reference": median,
                "goal": f"the median of {WHOLE * EPOCHS} epochs",
                "holds": reached >= median,
                "seconds": time.perf_counter() - begin,
            }
        )
    return rows


def _whole(surrogate: CurveSurrogate, seed: int) -> float:
    """Return the best accuracy of a random search of whole trainings."""
    found = nnp.search(
        lambda **configuration: surrogate.curve(configuration)[-1],
        surrogate.space,
        objectives={"accuracy": "maximize"},
        sampler="random",
        trials=WHOLE,
        seed=seed,
    )
    return found.best.values["accuracy"]


def of_time(trials: int) -> Rows:
    """Measure the time per trial of the engine with its samplers."""
    space = SearchSpace.from_json(
        {
            **{f"x{i}": {"kind": "uniform", "low": 0, "high": 1} for i in range(3)},
            "rate": {"kind": "power", "low": -5, "high": -1},
            "units": {"kind": "int", "low": 1, "high": 512},
            "kind": {"kind": "discrete", "values": ["a", "b", "c"]},
        }
    )
    rows: Rows = []
    in_optuna = SamplerTime()
    for sampler in ("random", "evolution", "cmaes", "nsga2", "tpe"):
        store = MemoryTrials()
        engine = SearchEngine(
            space, Objectives({"loss": "minimize"}), store, parse_sampler(sampler)
        )
        begin, cpu, before = time.perf_counter(), time.process_time(), in_optuna.seconds
        while lease := store.lease("worker", engine.propose, trials):
            configuration: Any = lease.trial.configuration
            store.finish(
                lease,
                {
                    "loss": sum(configuration[f"x{i}"] ** 2 for i in range(3))
                    + configuration["rate"]
                },
            )
        theirs = (in_optuna.seconds - before) / trials * 1000
        each = (time.process_time() - cpu) / trials * 1000 - theirs
        rows.append(
            {
                "search": f"{trials:,} trials, CPU ms of each, our own",
                "by": sampler,
                "figure": each,
                "in Optuna's sampler": theirs,
                "spread": 0.0,
                "reference": MOST_MS,
                "goal": "at most 20 ms",
                "holds": each <= MOST_MS,
                "seconds": time.perf_counter() - begin,
            }
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=TABLES, help="the folder with the tables and yahpo_lcbench"
    )
    parser.add_argument(
        "--table", type=Path, nargs="+", help="search these tables (.npz), without goals"
    )
    parser.add_argument(
        "--axes", type=Path, help="the JSON file about them; by default tables.json beside each"
    )
    parser.add_argument("--what", choices=["tables", "curves", "time"], default="tables")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    seeds = 3 if options.quick else SEEDS
    if options.table:
        try:
            tables = [read_table(path, options.axes) for path in options.table]
        except TableError as error:
            parser.error(str(error))
        rows = of_tables(tables, seeds)
    elif options.what == "tables":
        names = ("nasbench201_cifar10", "nasbench201_imagenet")
        rows = of_tables(
            [read_table(existing(options.data / f"{name}.npz")) for name in names], seeds
        )
    elif options.what == "curves":
        rows = of_curves(
            existing(options.data / "yahpo_lcbench"), seeds, most=4 if options.quick else None
        )
    else:
        rows = of_time(MOST_TRIALS // 10 if options.quick else MOST_TRIALS)
    parts = [
        {
            "name": f"{row['search']}, {row['by']}",
            "value": row["figure"],
            "unit": "",
            "reference": row["reference"],
            "ratio": row["figure"] / (row["reference"] or 1.0),
            "goal": row["goal"],
            "holds": row["holds"],
            "seen_on": EPYC,
        }
        for row in rows
    ]
    first = parts[0]
    return report(
        rows,
        str(first["name"]),
        first["value"],
        "",
        first["reference"],
        first["ratio"],
        "random 90.7 to 91.1, evolution 91.2 and TPE 91.3 on CIFAR-10, TPE 46.2 on ImageNet16, no "
        "configuration twice, Hyperband as good with a third of the epochs, 20 ms a trial",
        float(np.mean([row["holds"] for row in rows]))
        >= (LEAST_TASKS if options.what == "curves" else 1.0),
        parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
