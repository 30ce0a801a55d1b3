"""How often the interval of a metric, and of the difference of two models, holds the truth: two models of every task.

Both models are judged on the same made-up samples, of which most are judged alike (``_paired_models.py``).  The truth
is the metric of very many samples.  Of each metric, 1,000 samples are drawn and the 95 % intervals are computed:

* of the difference: it should hold the true difference in 95 % of the simulations, and the goal is 93 %,
* of the metric of the first model alone, for comparison.

Forecasts and anomalies in series are judged on 40 stretches and 50 series here, of which some ten differ; their goal
is 91 %.

Run ``python benchmarks/interval_coverage.py`` (about 10 min) or with ``--quick`` (150 simulations each).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from _paired_models import POPULATIONS, Population
from _table import EPYC, report

from nnpipe.analysis.quality_intervals import quality_difference, quality_estimate
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import task_named

GOAL, LOW_GOALS = 0.93, {"forecast": 0.91, "series_anomaly": 0.91}
SEED = 11


def coverage(population: Population, metric: QualityMetric, times: int, seed: int = SEED) -> dict[str, float]:
    """Return the shares of simulations whose intervals hold the truth: of the difference, and of one model alone."""
    random = np.random.default_rng(seed)
    many = [population.draw(random, population.many) for _ in range(population.parts)]
    alone = float(np.mean([metric.of(one) for one, _ in many]))
    truth = float(np.mean([metric.of(other) - metric.of(one) for one, other in many]))
    pairs = (population.draw(random, population.samples) for _ in range(times))
    found = [(quality_difference(metric, *pair), quality_estimate(metric, pair[0])) for pair in pairs]
    return {
        "truth": truth,
        "difference": float(np.mean([each.low <= truth <= each.high for each, _ in found])),
        "too_low": float(np.mean([each.high < truth for each, _ in found])),
        "width": float(np.median([each.high - each.low for each, _ in found])),
        "alone": float(np.mean([each.low <= alone <= each.high for _, each in found])),
    }


def judged(population: Population, name: str, times: int) -> dict[str, Any]:
    """Return what became of one metric, with its goal."""
    task = population.task.split()[0]
    found = coverage(population, task_named(task).metric(name), times)
    goal = LOW_GOALS.get(task, GOAL)
    rounding = 2 * (goal * (1 - goal) / times) ** 0.5 if times < 1000 else 0.0
    return {
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="150 simulations instead of 1,000")
    parser.add_argument("--only", metavar="TASK", default="", help="the populations whose names begin so")
    options = parser.parse_args()
    times = 150 if options.quick else 1000
    chosen = [each for each in POPULATIONS if each.task.startswith(options.only)]
    parts = [judged(each, name, times) for each in chosen for name in each.metrics]
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
    fields = {key: worst[key] for key in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")}
    return report(rows, **fields, holds=all(part["holds"] for part in parts), parts=parts)


if __name__ == "__main__":
    sys.exit(main())
