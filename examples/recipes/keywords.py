"""Keyword spotting: a network of separable convolutions (Zhang et al., 2017) tells sounds by their
mel coefficients.

    python examples/recipes/keywords.py runs/keywords [SPEECH_COMMANDS]

Without a folder of Speech Commands, the words are tones in noise.  Kill it and start it again: it
goes on where it was.
"""

import sys
from pathlib import Path

import torch

from nnpipe.datasets.speech_commands import SpeechCommandsDataset
from nnpipe.datasets.synthetic import SyntheticSoundsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer
from nnpipe.transforms.log_mel import MFCC

FEATURES = MFCC(num_coefficients=10, lower_hz=20, upper_hz=4000, normalise="maximum")


def separable(width):
    deep = torch.nn.Conv2d(width, width, 3, padding=1, groups=width)
    return torch.nn.Sequential(
        deep, torch.nn.Conv2d(width, width, 1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()
    )


class Net(torch.nn.Module):
    def __init__(self, words, width=32):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.BatchNorm2d(1),
            torch.nn.Conv2d(1, width, (10, 4), stride=2),
            torch.nn.ReLU(),
            separable(width),
            separable(width),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(width, words),
        )

    def forward(self, batch):
        scores = self.layers(batch["sound"][:, None])
        return {"word": ClassificationOutput(scores, batch["label"], label_smoothing=0.05)}


def coefficients(inputs):
    return {"sound": FEATURES.apply(inputs["sound"])}


if __name__ == "__main__":
    files = sys.argv[2:]
    data = SpeechCommandsDataset(dataset_root=Path(files[0])) if files else SyntheticSoundsDataset()
    splits = {
        s: DatasetSequence(data, s, batch=32, shuffle=True, prepare=coefficients)
        for s in ("train", "test")
    }
    trainer = Trainer(TrainerOptions(num_epochs=4, checkpoint_every=10), [EpochSummary()])
    model = trainer.build(Net, len(data.spec.class_names))
    history = trainer.fit(
        model, splits, folder=sys.argv[1], optimiser=AdamW(rate=1e-2), schedule=Cosine()
    )
    print(f"accuracy: {history.last['data/test/word/accuracy']:.1%}")
