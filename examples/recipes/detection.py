"""A detection head: red and green squares in noisy pictures, by a box for each cell (as YOLOX, Ge
et al., 2021).

    python examples/recipes/detection.py runs/detection

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys

import torch

from nnpipe.datasets.synthetic_pictures import SyntheticDetectionDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.detection import DetectionOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


def halving(given, found):
    return torch.nn.Sequential(
        torch.nn.Conv2d(given, found, 3, 2, 1), torch.nn.BatchNorm2d(found), torch.nn.ReLU()
    )


class Net(torch.nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        # a cell is 8 x 8 pixels
        self.body = torch.nn.Sequential(halving(3, 16), halving(16, 32), halving(32, 64))
        self.head = torch.nn.Sequential(
            torch.nn.Conv2d(64, 64, 5, padding=2),
            torch.nn.ReLU(),
            torch.nn.Conv2d(64, 5 + classes, 1),
        )

    def cells(self, images):
        return self.head(self.body(images.permute(0, 3, 1, 2) / 255)).flatten(2).transpose(1, 2)

    def forward(self, batch):
        found, size = self.cells(batch["image"]), tuple(batch["image"].shape[1:3])
        return {
            "squares": DetectionOutput(
                found, batch["boxes"], classes=batch["class"], size=size, strides=(8,)
            )
        }


if __name__ == "__main__":
    data = SyntheticDetectionDataset()
    trainer = Trainer(
        TrainerOptions(num_epochs=12, checkpoint_every=10, ema_decay=0.95), [EpochSummary()]
    )
    splits = {
        split: DatasetSequence(data, split, batch=32, shuffle=True) for split in ("train", "test")
    }
    history = trainer.fit(
        trainer.build(Net),
        splits,
        folder=sys.argv[1],
        optimiser=AdamW(rate=5e-3),
        schedule=Cosine(),
        metrics={"squares": ["map", "ap50"]},
    )
    print(f"mean average precision: {history.last['data/test/squares/map']:.1%}")
