"""A training that makes a good job: it tells how far it is, saves when it is asked to end, and can
go on.

    nnpipe jobs submit examples/job.py --output classifier.npz --watch -- --epochs 300
    nnpipe jobs cancel job.py
    nnpipe jobs resume job.py --watch

It needs numpy alone, and nothing of nnpipe.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np


def two_moons(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Give points of two half circles, as features (count, 5), and which circle each is of."""
    random = np.random.default_rng(seed)
    angle, label = random.uniform(0, np.pi, count), np.arange(count) % 2
    x = np.where(label, 1 - np.cos(angle), np.cos(angle)) + random.normal(0, 0.1, count)
    y = np.where(label, 0.5 - np.sin(angle), np.sin(angle)) + random.normal(0, 0.1, count)
    return np.stack([np.ones(count), x, y, x * x * x, x * x], 1), label


def save(path: Path, **arrays: object) -> None:
    """Write arrays under another name first, so that a kill leaves no half of a file."""
    temporary = path.with_name(f".{path.name}.npz")
    np.savez(temporary, **arrays)
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Tell two half circles apart by logistic regression."
    )
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=Path("classifier.npz"))
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.npz"))
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--progress", type=Path, help="a file for whoever watches")
    options = parser.parse_args()

    features, label = two_moons(2000, seed=1)
    weights, epoch = np.zeros(features.shape[1]), 0
    if options.resume and options.checkpoint.exists():
        with np.load(options.checkpoint) as stored:
            weights, epoch = stored["weights"], int(stored["epoch"])
        print(f"going on after epoch {epoch}", flush=True)

    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(True))
    while epoch < options.epochs:
        probability = 1 / (1 + np.exp(-features @ weights))
        weights = weights - options.rate * features.T @ (probability - label) / len(label)
        epoch += 1
        accuracy = float(np.mean((probability > 0.5) == label))
        if options.progress:
            with open(options.progress, "a") as file:
                file.write(
                    json.dumps(
                        {"fraction": epoch / options.epochs, "metrics": {"accuracy": accuracy}}
                    )
                    + "\n"
                )
        if asked_to_end or epoch % 50 == 0:
            save(options.checkpoint, weights=weights, epoch=epoch)
        if asked_to_end:
            sys.exit(f"asked to end after epoch {epoch}")
    save(options.output, weights=weights)
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
