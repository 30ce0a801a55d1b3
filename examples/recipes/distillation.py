"""Distillation (Hinton et al., 2015): a small network learns digits from a larger one's outputs.

    python examples/recipes/distillation.py runs/distillation

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys
from pathlib import Path

import torch

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput, DistillationOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 10),
        )

    def forward(self, batch):
        return {"digit": ClassificationOutput(self.layers(batch["image"] / 16), batch["label"])}


class Learning:
    """A step that learns from a teacher."""

    def __init__(self, teacher):
        self.teacher = teacher

    def __call__(self, fit, batch):
        with torch.no_grad():
            said = self.teacher.layers(batch["image"] / 16)
        output = DistillationOutput(
            fit.model.layers(batch["image"] / 16), batch["label"], teacher=said
        )
        fit.backward(output.loss())
        fit.update()
        return {"digit": output}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    splits = {
        split: DatasetSequence(DigitsDataset(), split, batch=64, shuffle=True)
        for split in ("train", "test")
    }
    trainer = Trainer(TrainerOptions(num_epochs=20, checkpoint_every=10), [EpochSummary()])
    how = {"optimiser": AdamW(rate=1e-2), "schedule": Cosine()}
    teacher, student = trainer.build(Net, 128), trainer.build(Net, 8)
    trainer.fit(teacher, splits, folder=folder / "teacher", **how)
    history = trainer.fit(student, splits, folder=folder / "student", step=Learning(teacher), **how)
    print(f"accuracy of the student: {history.last['data/test/digit/accuracy']:.1%}")
