"""Whether differentiable architecture search (DARTS) finds good cells on digits, and says so when
it collapses.

The task are the worn digits that come with nnpipe, in 12 x 12 pixels, 900 to train with and 897 to
judge.  The cells are those of NAS-Bench-201: three nodes, six edges, five operations.  For each
seed, DARTS searches on halves of the training samples; then the cell is trained anew, like twenty
random cells.  The goals: in 8 of 10 seeds the accuracy is above the median of the random cells, and
none of these searches is called collapsed.

The planted space has skip connections, average pooling, and convolutions whose result is divided by
twenty: while all operations are mixed, these hardly matter, so that operations without weights win.
The goals: every search there is called collapsed, and its cell is worse than the median random cell
of the other space.

With ``--what supernet``, a supernet is trained by the sandwich rule, and the accuracies of twelve
networks with its weights are set against those of trainings of their own.  There is no goal but
that the order is not random.

Run ``python benchmarks/darts.py``; five to ten minutes of one idle core.  ``--order 2`` takes the
second order. ``--quick`` takes one seed and four random cells, which does not prove the goal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from _table import EPYC, report

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.darts import DartsResult, darts
from nnpipe.architectures.supernet import train_supernet
from nnpipe.architectures.training import Features, TrainingRecipe, train_network
from nnpipe.datasets.digits import WornDigitsDataset
from nnpipe.workflows.progress import show_progress

SEEDS, RANDOM_CELLS, LEAST = 10, 20, 8
PLANTED_SEEDS = 3
TRAIN = 900
RECIPE = TrainingRecipe(epochs=10, batch=64)
RATE = 0.01  # of the architecture: there are only 70 steps
NETWORK = {"input": [12, 12, 1], "classes": 10, "channels": 8, "cells": 1, "stages": 2}
SPACE = ArchitectureSpace.from_json(
    {
        "cell": {
            "operations": ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
        },
        **NETWORK,
    }
)
FAINT = {
    "name": "faint_conv_3x3",
    "layers": [
        {"class": "ReLU"},
        {
            "class": "Conv2d",
            "filters": "channels",
            "kernel_size": 3,
            "padding": "same",
            "use_bias": False,
        },
        {"class": "BatchNorm", "momentum": 0.9},
        {"class": "Rescaling", "scale": 0.05},
    ],
}
PLANTED = ArchitectureSpace.from_json(
    {"cell": {"operations": ["skip_connect", FAINT, "avg_pool_3x3"]}, **NETWORK}
)
ELASTIC = ArchitectureSpace.from_json(
    {
        **NETWORK,
        "cell": {"operations": ["skip_connect", "nor_conv_1x1", "nor_conv_3x3"], "nodes": 2},
        "channels": [4, 8],
        "cells": [1, 2],
    }
)
NETWORKS = 12

Row = dict[str, Any]


def digits() -> tuple[Features, Features]:
    """Return the samples to train with, and those that judge."""
    samples = WornDigitsDataset().load()
    images = (np.asarray(samples.inputs["image"]) / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    data = {"image": images[order], "label": np.asarray(samples.targets["label"])[order]}
    return part(data, 0, TRAIN), part(data, TRAIN, len(images))


def part(data: Features, begin: int, end: int) -> Features:
    """Return some of the samples."""
    return {name: values[begin:end] for name, values in data.items()}


def alone(
    space: ArchitectureSpace,
    configuration: Mapping[str, Any],
    seed: int,
    data: tuple[Features, Features],
) -> float:
    """Return the accuracy of a network that is trained by itself."""
    return train_network(
        space.network(configuration), data[0], replace(RECIPE, seed=seed)
    ).accuracy(data[1])


def found_by_darts(space: ArchitectureSpace, seed: int, order: int, train: Features) -> DartsResult:
    """Search on halves of the training samples."""
    halves = part(train, 0, TRAIN // 2), part(train, TRAIN // 2, TRAIN)
    return darts(
        space,
        *halves,
        order=2 if order == 2 else 1,
        recipe=replace(RECIPE, seed=seed),
        architecture_rate=RATE,
    )


def row_of(space: str, seed: int, accuracy: float, reference: float, found: DartsResult) -> Row:
    """Return a row of the table, and say it at once: all of them take minutes."""
    signs = found.signs
    print(
        f"\n{space}, seed {seed}: {accuracy:.3f} against {reference:.3f}, {signs}",
        file=sys.stderr,
        flush=True,
    )
    return {
        "space": space,
        "seed": seed,
        "accuracy": accuracy,
        "reference": reference,
        "above": accuracy > reference,
        "collapsed": signs.collapsed,
        "verdict": str(signs),
    }


def of_darts(seeds: int, random_cells: int, planted: int, order: int, quick: bool) -> int:
    """Compare cells of DARTS with random ones, and search the planted space."""
    data = digits()
    random = np.random.default_rng(1)
    cells = [SPACE.sample(random) for _ in range(random_cells)]
    others = [
        alone(SPACE, cell, seed, data)
        for seed, cell in show_progress(list(enumerate(cells)), "random cells", len(cells))
    ]
    median = float(np.median(others))
    rows = []
    for seed in show_progress(range(seeds), "searches", seeds):
        found = found_by_darts(SPACE, seed, order, data[0])
        rows.append(
            row_of("digits", seed, alone(SPACE, found.configuration, seed, data), median, found)
        )
    for seed in show_progress(range(planted), "planted searches", planted):
        found = found_by_darts(PLANTED, seed, order, data[0])
        rows.append(
            row_of("planted", seed, alone(PLANTED, found.configuration, seed, data), median, found)
        )
    ours, there = (
        [row for row in rows if row["space"] == space] for space in ("digits", "planted")
    )
    above = sum(row["above"] for row in ours)
    # Told beside the median, because a single random cell is as likely above it as below.
    print(f"random cells: median {median:.3f}, best {max(others):.3f}, worst {min(others):.3f}")
    goals = {
        "seeds above the median random cell": (
            above,
            seeds,
            LEAST / SEEDS,
            above >= seeds * LEAST / SEEDS,
        ),
        "searches on digits called collapsed": (
            sum(row["collapsed"] for row in ours),
            seeds,
            0.0,
            not any(row["collapsed"] for row in ours),
        ),
        "planted searches called collapsed": (
            sum(row["collapsed"] for row in there),
            planted,
            1.0,
            all(row["collapsed"] for row in there),
        ),
        "planted searches worse than the median random cell": (
            sum(not row["above"] for row in there),
            planted,
            1.0,
            not any(row["above"] for row in there),
        ),
    }
    parts = [
        {
            "name": name,
            "value": value,
            "unit": "searches",
            "reference": count,
            "ratio": value / count,
            "goal": f"{share:.0%} of {count}",
            "holds": bool(holds),
            "seen_on": EPYC,
        }
        for name, (value, count, share, holds) in goals.items()
    ]
    return report(
        rows,
        f"DARTS of order {order} on digits, {next(iter(goals))}",
        above,
        "searches",
        seeds,
        above / seeds,
        f"at least {LEAST} of {SEEDS}, none of them called collapsed, all of the planted ones "
        f"called collapsed" + " (one seed does not prove it)" * quick,
        all(part["holds"] for part in parts),
        parts,
        seen_on=EPYC,
    )


def of_supernet(networks: int, epochs: int) -> int:
    """Set the accuracies with shared weights against those of trainings of their own."""
    train, judging = digits()
    recipe = replace(RECIPE, epochs=epochs)
    supernet = train_supernet(
        ELASTIC, train, recipe=replace(recipe, batch=32), progress=show_progress
    )
    random = np.random.default_rng(2)
    chosen = [
        ELASTIC.get_extreme(0),
        ELASTIC.get_extreme(-1),
        *(ELASTIC.sample(random) for _ in range(networks - 2)),
    ]
    ranking = supernet.measure_ranking(
        chosen, train, judging, replace(recipe, epochs=RECIPE.epochs), progress=show_progress
    )
    rows = [
        {"channels": each["channels"], "cells": each["cells"], "shared": shared, "alone": own}
        for each, shared, own in zip(chosen, ranking.inherited, ranking.alone, strict=True)
    ]
    print(ranking)
    return report(
        rows,
        f"rank correlation of {networks} networks of a supernet",
        ranking.kendall,
        "Kendall's tau",
        1.0,
        ranking.kendall,
        "above 0",
        ranking.kendall > 0,
        seen_on=EPYC,
    )


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--what", choices=["darts", "supernet"], default="darts")
    parser.add_argument("--order", type=int, choices=[1, 2], default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    if options.what == "supernet":
        return of_supernet(4 if options.quick else NETWORKS, 5 if options.quick else 30)
    run = partial(of_darts, order=options.order, quick=options.quick)
    return run(1, 4, 1) if options.quick else run(SEEDS, RANDOM_CELLS, PLANTED_SEEDS)


if __name__ == "__main__":
    sys.exit(main())
