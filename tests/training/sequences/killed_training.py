"""Trains with augmentation, is killed with -9 before given batches and begun again, until it is
through.

Takes a JSON object of folders: for each, the number of worker processes, and the numbers of the
batches, counted in each attempt.  Writes ``result.state`` into each. PyTorch is imported once, here
and not by the workers; each attempt is a forked child.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def train(folder: Path, workers: int, at: int) -> None:
    import numpy as np
    import pipeline_functions as functions
    import torch
    import training_toys as toys

    from nnpipe.experiment.state_file import write_state
    from nnpipe.training.callbacks.callback import Callback
    from nnpipe.training.options import TrainerOptions
    from nnpipe.training.sequences.array import ArraySequence
    from nnpipe.training.sequences.samplers import RandomSampler
    from nnpipe.training.trainer import Trainer

    torch.set_num_threads(1)

    class Killing(Callback):
        def __init__(self):
            self.seen = 0

        def on_batch_begin(self, fit, batch):
            self.seen += 1
            if self.seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sequence = ArraySequence(toys.blobs(90), batch=10, sampler=RandomSampler(), seed=3)
    sequence = sequence.map(functions.shaken, workers=workers, seed=4).rebatch(8)
    with sequence:
        model = toys.fresh()
        trainer = Trainer(TrainerOptions(num_epochs=2, checkpoint_every=1), [Killing()])
        history = trainer.fit(model, {"blobs": {"train": sequence}}, folder=folder)
    weights = {name: np.asarray(value) for name, value in model.state_dict().items()}
    # Times and the like differ between runs.
    figures = [
        {name: value for name, value in row.items() if "loss" in name} for row in history.rows()
    ]
    write_state(folder / "result.state", {"weights": weights, "figures": figures}, kind="result")


def main() -> None:
    # Before forking, so that each attempt need not.  The first step of an optimiser would import
    # the second.
    import torch
    import torch._dynamo  # noqa: F401
    import training_toys  # noqa: F401

    import nnpipe.training.trainer  # noqa: F401

    for folder, (workers, kills) in json.loads(sys.argv[1]).items():
        through(Path(folder), workers, kills)


def through(folder: Path, workers: int, kills: list[int]) -> None:
    for at in [*kills, 0]:
        child = os.fork()
        if child == 0:
            try:
                train(folder, workers, at)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            if status:
                sys.exit("a training failed")
            break
        print("killed", flush=True)  # or the next attempt would have it to say, too


if __name__ == "__main__":
    main()
