"""Classification metrics against scikit-learn, in one run, with equal values.

* The confusion matrix and everything in the report's classification section,
  from 1,000,000 predictions of 10 and of 100 classes: at least 50 times as fast.
  scikit-learn is spared what it need not do twice: it gets one call for all
  values per class, and numpy takes their means.
* Top-5 accuracy from 100,000 x 1,000 scores: at least 10 times as fast.

Run ``python benchmarks/metrics.py`` (about 25 s) or with ``--quick`` (about 11 s).
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from _table import EPYC, interleave, report
from sklearn import metrics as sklearn_metrics

from nnpipe.analysis.classification import (
    ClassificationMetrics,
    compute_true_class_rank,
    top_k_accuracy,
)

SECTION_GOAL, TOP_GOAL = 50, 10


def predictions(samples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Truth and predictions of a fairly good model, nine in ten right."""
    random = np.random.default_rng(0)
    truth = random.integers(0, classes, samples)
    predicted = np.where(random.random(samples) < 0.9, truth, random.integers(0, classes, samples))
    return truth, predicted


def by_nnpipe(truth: np.ndarray, predicted: np.ndarray, classes: int) -> dict[str, Any]:
    return ClassificationMetrics.from_predictions(
        truth, predicted, [str(c) for c in range(classes)]
    ).__dict__


def by_sklearn(truth: np.ndarray, predicted: np.ndarray, classes: int) -> dict[str, Any]:
    labels = np.arange(classes)
    precision, sensitivity, f1, support = sklearn_metrics.precision_recall_fscore_support(
        truth, predicted, labels=labels, zero_division=0
    )
    return {
        "confusion_matrix": sklearn_metrics.confusion_matrix(truth, predicted, labels=labels),
        "support": support,
        "precision": precision,
        "sensitivity": sensitivity,
        "f1": f1,
        "accuracy": sklearn_metrics.accuracy_score(truth, predicted),
        "mean_precision": precision.mean(),
        "mean_sensitivity": sklearn_metrics.balanced_accuracy_score(truth, predicted),
        "macro_f1": f1.mean(),
        "g_mean": math.prod(sensitivity) ** (1 / classes),
    }


def section(classes: int, rounds: int) -> dict[str, Any]:
    """Time the whole classification section; the values must agree."""
    truth, predicted = predictions(1_000_000, classes)
    ours, theirs = by_nnpipe(truth, predicted, classes), by_sklearn(truth, predicted, classes)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-12, err_msg=name)
    return compare(
        f"classification metrics, 1,000,000 predictions, {classes} classes",
        lambda: by_nnpipe(truth, predicted, classes),
        lambda: by_sklearn(truth, predicted, classes),
        rounds,
        SECTION_GOAL,
    )


def top_5(rounds: int) -> dict[str, Any]:
    """Time the top-5 accuracy; the values must agree."""
    samples, classes = 100_000, 1000
    random = np.random.default_rng(1)
    scores = random.standard_normal((samples, classes), np.float32)
    truth = random.integers(0, classes, samples)
    # A useful model: the true class is usually near the top.
    scores[np.arange(samples), truth] += random.uniform(0, 6, samples).astype(np.float32)
    values: dict[str, float] = {}

    def ours() -> None:
        values["ours"] = top_k_accuracy(compute_true_class_rank(scores, truth), 5)

    def theirs() -> None:
        values["theirs"] = sklearn_metrics.top_k_accuracy_score(
            truth, scores, k=5, labels=np.arange(classes)
        )

    found = compare("top-5 accuracy, 100,000 x 1,000 scores", ours, theirs, rounds, TOP_GOAL)
    np.testing.assert_equal(values["ours"], values["theirs"])
    return found


def compare(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int, goal: int
) -> dict[str, Any]:
    times = interleave({"ours": ours, "theirs": theirs}, rounds)
    value, reference = 1e3 * median(times["ours"]), 1e3 * median(times["theirs"])
    ratio = reference / value
    return {
        "name": name,
        "value": value,
        "unit": "ms",
        "reference": reference,
        "ratio": ratio,
        "goal": f"at least {goal} times as fast as scikit-learn, with equal values",
        "holds": ratio >= goal,
        "margin": ratio / goal,
        "seen_on": EPYC,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    warnings.simplefilter("error")
    parts = [
        section(10, 5 if quick else 15),
        section(100, 3 if quick else 9),
        top_5(1 if quick else 3),
    ]
    rows = [
        {
            "measure": part["name"],
            "nnpipe, ms": part["value"],
            "scikit-learn, ms": part["reference"],
            "times as fast": part["ratio"],
        }
        for part in parts
    ]
    worst = min(parts, key=lambda part: part["margin"])
    fields = {
        key: worst[key]
        for key in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(rows, **fields, holds=all(part["holds"] for part in parts), parts=parts)


if __name__ == "__main__":
    sys.exit(main())
