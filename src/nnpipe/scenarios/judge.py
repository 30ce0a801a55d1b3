"""Judge stored predictions: compute the metrics of scores that a data set reads from files.

    nnpipe judge AnomalyScoresDataset --dataset-root anomaly_score_ToyCar_id_01.csv

The data set's inputs are taken as predictions.  With --output the metrics are also written as JSON, with every digit.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.analysis.quality_intervals import quality_estimate
from nnpipe.core.dataset import SPLITS, Dataset
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.files import write_text
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.scenarios._cli.command import Role, execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.candidates.stages import prepared

ROLES = (Role("DATASET", Dataset, "the stored predictions: dotted path or name of a Dataset"),)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe judge DATASET ...``."""
    return execute(_judge, argv, "judge")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", choices=SPLITS, default="test", help="the samples to judge (default: test)")
    parser.add_argument("--output", type=output_file, metavar="OUT.json", help="file for the metrics")


def _judge(argv: Sequence[str] | None) -> None:
    parsed = parse(argv, "judge", __doc__ or "", ROLES, _options)
    dataset, options = prepared(cast(Dataset, parsed.make("DATASET"))), parsed.options
    indices = dataset.split(options.split)
    if not len(indices):
        raise ConfigError(f"{type(dataset).__name__}: its split {options.split!r} is empty")
    predictions, truth = dataset.read(indices)
    try:
        found = dataset.evaluate(dataset.postprocess(predictions), truth)
    except SpecMismatch as error:
        raise ConfigError(f"{type(dataset).__name__} holds no predictions that can be judged: {error}") from None
    print(f"{len(found):,} samples")
    values: dict[str, dict[str, float | None]] = {}
    for metric in dataset.task.metrics:
        estimate = quality_estimate(metric, found)
        if math.isnan(estimate.value):
            continue
        ends = estimate.low, estimate.high
        known = all(map(math.isfinite, ends))
        values[metric.name] = dict(
            zip(("value", "low", "high"), (estimate.value, *(ends if known else (None, None))), strict=True)
        )
        interval = f"  95 %: {_shown(metric, ends[0])} to {_shown(metric, ends[1])}" if known else ""
        print(f"{metric.title:<36} {_shown(metric, estimate.value):>12}{interval}")
    if options.output is not None:
        content = {"dataset": dataset.describe(), "split": options.split, "samples": len(found), "metrics": values}
        write_text(options.output, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _shown(metric: QualityMetric, value: float) -> str:
    return f"{100 * value:.2f} %" if metric.kind == "share" else f"{value:.6g}"


if __name__ == "__main__":
    sys.exit(main())
