"""Fine-tuning in two phases: a network that knows the digits 0 to 4 learns 5 to 9, first by a new
head alone.

    python examples/recipes/fine_tune.py runs/fine_tune

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys
from pathlib import Path

import torch

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.checkpoints import load_weights
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.trainer import Trainer


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten()
        )
        self.head = torch.nn.Linear(576, 5)

    def forward(self, batch):
        features = self.body(batch["image"].permute(0, 3, 1, 2) / 16)
        return {"digit": ClassificationOutput(self.head(features), batch["label"] % 5)}


def step(fit, batch):
    """Train the head alone for two epochs, then the body, too."""
    loss, outputs = fit.forward(batch)
    fit.backward(loss)
    fit.update("head")
    fit.update("body") if fit.epoch > 2 else fit.discard("body")
    return outputs


def splits_of(arrays, low):
    chosen = (arrays["label"] >= low) & (arrays["label"] < low + 5)
    cut = {"train": slice(0, 600), "test": slice(600, None)}
    arrays = {name: array[chosen] for name, array in arrays.items()}
    return {
        name: ArraySequence({n: a[part] for n, a in arrays.items()}, batch=32)
        for name, part in cut.items()
    }


if __name__ == "__main__":
    folder, samples = Path(sys.argv[1]), DigitsDataset().load()
    arrays = {"image": samples.inputs["image"].astype("float32"), "label": samples.targets["label"]}
    trainer = Trainer(TrainerOptions(num_epochs=6, checkpoint_every=10), [EpochSummary()])
    trainer.fit(
        trainer.build(Net),
        splits_of(arrays, 0),
        folder=folder / "before",
        optimiser=AdamW(rate=3e-3),
    )
    model = trainer.build(Net)
    load_weights(
        folder / "before" / "checkpoints" / "last.state",
        model.body,
        names={"body.": ""},
        partial=True,
    )
    how = {"optimiser": {"head": AdamW(rate=3e-3), "body": AdamW(rate=3e-4)}, "step": step}
    history = trainer.fit(model, splits_of(arrays, 5), folder=folder / "after", **how)
    print(f"accuracy: {history.last['data/test/digit/accuracy']:.1%}")
