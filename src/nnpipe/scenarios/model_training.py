"""Train a model on a data set and save its weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.training import TrainingOptions
from nnpipe.scenarios._command import Role, add_model_path, execute, parse
from nnpipe.scenarios._pipeline import fit

ROLES = (
    Role("WRAPPER", ModelWrapper, "the model: dotted path or name of a ModelWrapper"),
    Role("DATASET", Dataset, "the data: dotted path or name of a Dataset"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe model_training WRAPPER DATASET --model-path PATH ...``."""
    return execute(_train, argv, "model_training")


def _options(parser: argparse.ArgumentParser) -> None:
    add_model_path(parser, "where to save the weights")


def _train(argv: Sequence[str] | None) -> None:
    parsed = parse(argv, "model_training", __doc__ or "", ROLES, _options, fixed=(TrainingOptions,))
    dataset = cast(Dataset, parsed.make("DATASET"))
    wrapper = cast(ModelWrapper, parsed.make("WRAPPER"))
    artifact = fit(wrapper, dataset, TrainingOptions.from_argparse(parsed.options), parsed.options.model_path)
    print(f"weights: {artifact.path} ({artifact.size:,} bytes)")


if __name__ == "__main__":
    sys.exit(main())
