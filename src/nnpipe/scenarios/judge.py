"""Judge stored predictions: compute the metrics of predictions that a data set reads from files.

  nnpipe judge AnomalyScoresDataset --dataset-root anomaly_score_ToyCar_id_01.csv
  nnpipe judge SeriesScoresDataset --dataset-root results/numenta --windows combined_windows.json
  nnpipe judge COCOResultsDataset --dataset-root results.json.gz --truth instances_val2017.json

The data set's inputs are taken as predictions, and its task names the metrics.
With --output they are also written as JSON, with every digit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.dataset import SPLITS, Dataset
from nnpipe.core.files import write_text
from nnpipe.scenarios._cli.command import Role, execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.judging import evaluate_predictions

ROLES = (Role("DATASET", Dataset, "the stored predictions: dotted path or name of a Dataset"),)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe judge DATASET ...``."""
    return execute(_evaluate_predictions, argv, "judge")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split", choices=SPLITS, default="test", help="the samples to judge (default: test)"
    )
    parser.add_argument(
        "--output", type=output_file, metavar="OUT.json", help="also write the metrics here"
    )


def _evaluate_predictions(argv: Sequence[str] | None) -> None:
    parsed = parse(argv, "judge", __doc__ or "", ROLES, _add_options)
    found = evaluate_predictions(cast(Dataset, parsed.make("DATASET")), parsed.options.split)
    print(found)
    if parsed.options.output is not None:
        write_text(
            parsed.options.output, json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n"
        )


if __name__ == "__main__":
    sys.exit(main())
