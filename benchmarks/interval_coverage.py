"""How often the interval of a metric, and of the difference of two models, holds the truth: two
models of every task.

Both models are judged on the same made-up samples, of which most are judged alike
(``_paired_models.py``).  The truth is the metric of very many samples.  Of each metric, 1,000
samples are drawn and the 95 % intervals are computed:

* of the difference: it should hold the true difference in 95 % of the simulations, and the goal is
  93 %,
* of the metric of the first model alone, for comparison.

Where a few samples out of many decide, there are simulations without any of them, and no interval
can know of them: two detectors of anomalies that differ in some three of 50 series show that, and
their goal is 88 %.

Run ``python benchmarks/interval_coverage.py`` (about half an hour) or with ``--quick`` (a minute).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from _paired_models import POPULATIONS, Population
from _table import EPYC, report

from nnpipe.analysis.quality_intervals import (
    QualityDifference,
    QualityEstimate,
    compute_quality_difference,
    compute_quality_estimate,
)
from nnpipe.core.task import get_task

SEED = 11


def coverage(
    population: Population, times: int, parts: int | None = None
) -> dict[str, dict[str, float]]:
    """Return the shares of simulations whose intervals hold the truth, by metric: of the
    difference, and of one model.

    ``parts`` are those that the truth is computed from, all by default.
    """
    random = np.random.default_rng(SEED)
    metrics = [
        get_task(population.task.replace(",", "").split()[0]).metric(name)
        for name in population.metrics
    ]
    truths = []
    for _ in range(parts or population.parts):
        one, other = population.draw(random, population.many)
        truths.append([(metric.compute(one), metric.compute(other)) for metric in metrics])
    alone, others = np.mean(truths, axis=0).T
    found: list[list[tuple[QualityDifference, QualityEstimate]]] = []
    for _ in range(times):
        pair = population.draw(random, population.samples)
        found.append(
            [
                (
                    compute_quality_difference(metric, *pair),
                    compute_quality_estimate(metric, pair[0]),
                )
                for metric in metrics
            ]
        )
    return {
        metric.name: _shares(
            [each[place] for each in found], others[place] - alone[place], alone[place]
        )
        for place, metric in enumerate(metrics)
    }


def _shares(
    found: Sequence[tuple[QualityDifference, QualityEstimate]], truth: float, alone: float
) -> dict[str, float]:
    return {
        "truth": float(truth),
        "difference": float(np.mean([each.low <= truth <= each.high for each, _ in found])),
        "too_low": float(np.mean([each.high < truth for each, _ in found])),
        "width": float(np.median([each.high - each.low for each, _ in found])),
        "alone": float(np.mean([each.low <= alone <= each.high for _, each in found])),
    }


def judged(
    population: Population, times: int = 1000, parts: int | None = None
) -> list[dict[str, Any]]:
    """Return what became of each metric, with its goal."""
    goal = population.goal
    rounding = 2 * (goal * (1 - goal) / times) ** 0.5 if times < 1000 else 0.0
    return [
        {
            "name": f"{population.task}: {name}",
            "value": found["difference"],
            "unit": "share of intervals",
            "reference": 0.95,
            "ratio": found["difference"] / 0.95,
            "goal": f"at least {goal:.2f}",
            "holds": found["difference"] >= goal - rounding,
            "seen_on": EPYC,
            **{key: found[key] for key in ("alone", "too_low", "width", "truth")},
        }
        for name, found in coverage(population, times, parts).items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="15 to 60 simulations instead of 1,000, within a minute",
    )
    parser.add_argument(
        "--only", metavar="TASK", default="", help="the populations whose names begin so"
    )
    options = parser.parse_args()
    chosen = [each for each in POPULATIONS if each.task.startswith(options.only)]
    parts = [
        part
        for each in chosen
        for part in (judged(each, each.quick, 1) if options.quick else judged(each))
    ]
    rows = [
        {
            "metric": part["name"],
            "difference held": part["value"],
            "missed below": part["too_low"],
            "median width": part["width"],
            "alone held": part["alone"],
            "goal": part["goal"],
        }
        for part in parts
    ]
    worst = min(parts, key=lambda part: part["value"] - float(part["goal"].rpartition(" ")[2]))
    fields = {
        key: worst[key]
        for key in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(rows, **fields, holds=all(part["holds"] for part in parts), parts=parts)


if __name__ == "__main__":
    sys.exit(main())
