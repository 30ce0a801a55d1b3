"""A small language model: a transformer that learns the letters of a text.

    python examples/recipes/language_model.py runs/language_model

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys

import numpy as np
import torch

from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.segmentation import SegmentationOutput
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer

TEXT = (
    "the quick brown fox jumps over the lazy dog while five wizards vex a jolly bold pack of "
    "quiet sphinxes. " * 40
)
LETTERS = sorted(set(TEXT))
LENGTH = 32


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = torch.nn.Embedding(len(LETTERS), 32)
        self.places = torch.nn.Embedding(LENGTH, 32)
        self.body = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = torch.nn.Linear(32, len(LETTERS))

    def forward(self, batch):
        given, wanted = batch["text"][:, :-1], batch["text"][:, 1:]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)
        values = self.letters(given) + self.places(torch.arange(LENGTH))
        scores = self.head(self.body(values, src_mask=mask, is_causal=True))
        # A letter at each place: the loss is the mean over places.
        return {"next": SegmentationOutput(scores.transpose(1, 2), wanted)}


if __name__ == "__main__":
    numbers = np.array([LETTERS.index(letter) for letter in TEXT])
    windows = np.lib.stride_tricks.sliding_window_view(numbers, LENGTH + 1)[::3].copy()
    train = ArraySequence({"text": windows[:-200]}, batch=64, sampler=RandomSampler(), seed=1)
    test = ArraySequence({"text": windows[-200:]}, batch=64)
    trainer = Trainer(
        TrainerOptions(num_epochs=8, checkpoint_every=10, clip_norm=1.0), [EpochSummary()]
    )
    history = trainer.fit(
        trainer.build(Net),
        {"train": train, "test": test},
        folder=sys.argv[1],
        optimiser=AdamW(rate=1e-2),
        schedule=Cosine(warmup=10),
    )
    print(f"letters that were foretold: {history.last['data/test/next/accuracy']:.1%}")
