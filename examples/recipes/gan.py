"""A generative adversarial network (Goodfellow et al., 2014) that draws digits: two optimisers and
a step.

    python examples/recipes/gan.py runs/gan

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys

import torch

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import BinaryOutput
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


class GAN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.nn.Sequential(
            torch.nn.Linear(16, 64),
            torch.nn.BatchNorm1d(64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 64),
        )
        self.critic = torch.nn.Sequential(
            torch.nn.Linear(64, 64),
            torch.nn.LeakyReLU(0.2),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(64, 1),
        )


def step(fit, batch):
    """Teach the critic to tell digits from drawings, then the generator to make that harder."""
    real = batch["image"].flatten(1) / 8 - 1
    drawn = fit.model.generator(torch.randn(len(real), 16)).tanh()
    zeros, ones = torch.zeros(len(real)), torch.ones(len(real))
    seen = BinaryOutput(fit.model.critic(real)[:, 0], ones)
    unmasked = BinaryOutput(fit.model.critic(drawn.detach())[:, 0], zeros)
    fit.backward(seen.loss() + unmasked.loss(), "critic")
    fit.update("critic")
    fooled = BinaryOutput(fit.model.critic(drawn)[:, 0], ones)
    fit.backward(fooled.loss(), "generator")
    fit.update("generator")
    return {"real": seen, "drawn": unmasked}


if __name__ == "__main__":
    trainer = Trainer(
        TrainerOptions(num_epochs=20, checkpoint_every=10, ema_decay=0.99), [EpochSummary()]
    )
    digits = DatasetSequence(DigitsDataset(), "train", batch=64, shuffle=True)
    optimisers = {
        "critic": AdamW(rate=2e-3, betas=(0.5, 0.9)),
        "generator": AdamW(rate=2e-3, betas=(0.5, 0.9)),
    }
    model = trainer.build(GAN)
    history = trainer.fit(
        model, {"train": digits}, folder=sys.argv[1], optimiser=optimisers, step=step
    )
    print(f"drawings that the critic unmasks: {history.last['data/train/drawn/accuracy']:.0%}")
