"""Contrastive learning (SimCLR: Chen et al., 2020): embeddings of digits without labels, judged by
search.

    python examples/recipes/contrastive.py runs/contrastive

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys

import torch

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.embedding import ContrastiveOutput, EmbeddingOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


def varied(images):
    """Shift each picture by a pixel at most, and change its brightness and some pixels."""
    rows, columns = torch.randint(-1, 2, (2, len(images)))
    places = torch.arange(8)
    rows, columns = (places + rows[:, None]) % 8, (places + columns[:, None]) % 8
    moved = images[torch.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved * (0.7 + 0.6 * torch.rand(len(images), 1, 1)) + 0.1 * torch.randn(images.shape)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU()
        )
        self.features = torch.nn.Linear(128, 32)
        self.head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(32, 32))

    def forward(self, batch):
        images = batch["image"][..., 0] / 16
        if not self.training:
            return {"features": EmbeddingOutput(self.features(self.body(images)), batch["label"])}
        one, other = (self.head(self.features(self.body(varied(images)))) for _ in range(2))
        return {"views": ContrastiveOutput(one, other=other, temperature=0.2)}


if __name__ == "__main__":
    trainer = Trainer(TrainerOptions(num_epochs=8, checkpoint_every=10), [EpochSummary()])
    splits = {
        split: DatasetSequence(DigitsDataset(), split, batch=128, shuffle=True)
        for split in ("train", "test")
    }
    history = trainer.fit(
        trainer.build(Net),
        splits,
        folder=sys.argv[1],
        optimiser=AdamW(rate=3e-3),
        schedule=Cosine(),
        metrics={"features": ["recall_at_1"]},
    )
    print(
        f"digits whose nearest one is the same digit: "
        f"{history.last['data/test/features/recall_at_1']:.1%}"
    )
