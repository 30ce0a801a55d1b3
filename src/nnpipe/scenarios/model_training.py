"""Train a model on a data set and save its weights.

  nnpipe model_training PyTorchDigitsCNN DigitsDataset --model-path digits.pt nnpipe model_training
  PyTorchDigitsCNN DigitsDataset --model-path digits.pt --run-folder runs/digits nnpipe
  model_training TensorFlowDigitsCNN DigitsDataset --model-path digits.keras --run-folder runs/keras
  \\
      --num-epochs 20 --callbacks default NanWatch --database runs.sqlite

With --run-folder the training writes a folder of results: open its index.html
for curves, the worst samples, confusions and more; --callbacks chooses them.
Repeat the command to continue a training that was stopped or killed (--resume,
the default); --no-resume begins a new one.  --database records the run: nnpipe
runs list.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.training import TrainingOptions
from nnpipe.scenarios._cli.command import Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.recording import add_recording_options, record_to_database
from nnpipe.workflows.candidates.stages import train_and_save
from nnpipe.workflows.progress import create_job_progress

ROLES = (
    Role("WRAPPER", ModelWrapper, "the model: dotted path or name of a ModelWrapper"),
    Role("DATASET", Dataset, "the data: dotted path or name of a Dataset"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe model_training WRAPPER DATASET --model-path PATH ...``."""
    return execute(_train, argv, "model_training")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model_path(parser, "where to save the weights")
    add_recording_options(parser)


def _train(argv: Sequence[str] | None) -> None:
    parsed = parse(
        argv, "model_training", __doc__ or "", ROLES, _add_options, fixed=(TrainingOptions,)
    )
    dataset = cast(Dataset, parsed.make("DATASET"))
    wrapper = cast(ModelWrapper, parsed.make("WRAPPER"))
    options = TrainingOptions.from_argparse(parsed.options)
    path = parsed.options.model_path
    wrapper.check_saving(path)  # before a run is recorded
    with record_to_database(parsed.options, wrapper, dataset, options) as recording:
        artifact, history = train_and_save(
            wrapper, dataset, options, path, create_job_progress(os.environ)
        )
        if recording is not None:
            recording.store_results(history, artifact.path, options.run_folder)
    print(f"weights: {artifact.path} ({artifact.size:,} bytes): {history}")
    if options.run_folder is not None and (options.run_folder / "index.html").exists():
        print(f"run page: {options.run_folder / 'index.html'}")
    if recording is not None:
        print(f"recorded: run {recording.run[:12]} in {parsed.options.database}")


if __name__ == "__main__":
    sys.exit(main())
