"""How often two planted wrong labels come out as the two worst samples.

1,200 of scikit-learn's digits, of which two random ones get a random wrong
label; a small network is trained, and the samples are ranked by what their losses
and margins were while it learned.  The whole is done anew for each planting.

* ``share``: the mean over the epochs of a sample's loss divided by the epoch's mean
  loss, by which ``WorstSamples`` ranks.
* ``sum``: the sum of losses over the epochs.
* ``margin``: the area under the margin, the mean over the epochs of the logit of the label
  minus the greatest other one (Pleiss et al., 2020).
* ``wrong``: epochs in which the sample was told wrong, ties by the sum of losses; near to
  the forgetting events of Toneva et al. (2019).

Run ``python benchmarks/planted_labels.py`` (some minutes) or with ``--quick`` (under 60 s).
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from _table import EPYC, report
from sklearn.datasets import load_digits

from nnpipe.training.callbacks.sample_losses import normalize_by_mean

SAMPLES, BATCH, EPOCHS, RATE, DROPOUT = 1200, 32, (5, 10, 15, 20), 3e-3, 0.5
GOAL = 0.95


def network() -> torch.nn.Module:
    """Two convolutions and, after dropout, a linear layer."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, 2, 1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(DROPOUT),
        torch.nn.Linear(512, 10),
    )


def trained(seed: int) -> tuple[set[int], np.ndarray, np.ndarray]:
    """Plant two labels and train; give which they are, and losses and margins ``(epochs,
    samples)``.
    """
    rng = np.random.default_rng(seed)
    digits = load_digits()
    images = torch.from_numpy(digits.images[:SAMPLES].astype(np.float32)[:, None] / 16)
    labels = torch.from_numpy(digits.target[:SAMPLES].astype(np.int64))
    wrong = rng.choice(SAMPLES, 2, replace=False).tolist()
    for own in wrong:
        labels[own] = (labels[own] + int(rng.integers(1, 10))) % 10
    torch.manual_seed(seed)
    model = network()
    optimiser = torch.optim.AdamW(model.parameters(), RATE)
    losses, margins = np.zeros((EPOCHS[-1], SAMPLES)), np.zeros((EPOCHS[-1], SAMPLES))
    for epoch in range(EPOCHS[-1]):
        for chosen in torch.from_numpy(rng.permutation(SAMPLES)).split(BATCH):
            logits, target = model(images[chosen]), labels[chosen]
            loss = torch.nn.functional.cross_entropy(logits, target, reduction="none")
            optimiser.zero_grad()
            loss.mean().backward()
            optimiser.step()
            own = logits.detach().gather(1, target[:, None])
            others = logits.detach().scatter(1, target[:, None], -np.inf).amax(1)
            losses[epoch, chosen], margins[epoch, chosen] = (
                loss.detach().numpy(),
                (own[:, 0] - others).numpy(),
            )
    return set(wrong), losses, margins


def scores(losses: np.ndarray, margins: np.ndarray) -> dict[str, np.ndarray]:
    """Return what samples are ranked by, the greatest first, by its name."""
    total = losses.sum(0)
    return {
        "share": np.mean([normalize_by_mean(epoch) for epoch in losses], axis=0),
        "sum": total,
        "margin": -margins.mean(0),
        "wrong": (margins < 0).sum(0) + total / (1 + total.max()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="20 plantings")
    parser.add_argument("--plantings", type=int, help="how many plantings (100)")
    given = parser.parse_args()
    count = given.plantings or (20 if given.quick else 100)
    torch.set_num_threads(1)
    found = {
        (name, epochs): 0 for name in scores(np.ones((1, 2)), np.ones((1, 2))) for epochs in EPOCHS
    }
    for seed in range(count):
        wrong, losses, margins = trained(seed)
        for epochs in EPOCHS:
            for name, values in scores(losses[:epochs], margins[:epochs]).items():
                found[name, epochs] += set(np.argsort(-values, kind="stable")[:2].tolist()) == wrong
    rows = [
        {
            "ranked by": name,
            **{f"{epochs} epochs": found[name, epochs] / count for epochs in EPOCHS},
        }
        for name in dict.fromkeys(name for name, _ in found)
    ]
    value, reference = (found[name, EPOCHS[-1]] / count for name in ("share", "sum"))
    goal = f"at least {GOAL:.2f} of the plantings after {EPOCHS[-1]} epochs"
    return report(
        rows,
        name="planted_labels",
        value=value,
        unit="share of plantings",
        reference=reference,
        ratio=value / max(reference, 1e-9),
        goal=goal,
        holds=value >= GOAL,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
