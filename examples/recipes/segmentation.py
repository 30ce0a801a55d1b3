"""Segmentation: which pixels of a noisy picture belong to a digit, by a small U-Net (Ronneberger et
al., 2015).

    python examples/recipes/segmentation.py runs/segmentation

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys

import torch

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.segmentation import SegmentationOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


def convolutions(given, found):
    return torch.nn.Sequential(
        torch.nn.Conv2d(given, found, 3, padding=1), torch.nn.BatchNorm2d(found), torch.nn.ReLU()
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom = convolutions(1, 8), convolutions(8, 16)
        self.up, self.head = convolutions(24, 8), torch.nn.Conv2d(8, 2, 1)

    def forward(self, batch):
        images = batch["image"][..., 0] / 16
        noisy = images + 0.3 * torch.randn(images.shape)
        fine = self.down(noisy[:, None])
        coarse = self.bottom(torch.nn.functional.max_pool2d(fine, 2))
        wide = torch.nn.functional.interpolate(coarse, scale_factor=2)
        scores = self.head(self.up(torch.cat([fine, wide], 1)))
        # Ink covers a quarter of a picture.
        return {
            "ink": SegmentationOutput(
                scores, (images > 0.5).long(), class_weights=(0.7, 1.3), focal=1.0
            )
        }


if __name__ == "__main__":
    trainer = Trainer(
        TrainerOptions(num_epochs=4, checkpoint_every=10, ema_decay=0.98), [EpochSummary()]
    )
    splits = {
        split: DatasetSequence(DigitsDataset(), split, batch=64, shuffle=True)
        for split in ("train", "test")
    }
    history = trainer.fit(
        trainer.build(Net),
        splits,
        folder=sys.argv[1],
        optimiser=AdamW(rate=1e-2),
        schedule=Cosine(),
        metrics={"ink": ["mean_iou"]},
    )
    print(f"mean IoU: {history.last['data/test/ink/mean_iou']:.1%}")
