"""Train a small network on MNIST with every callback, and look at the run's page afterwards.

    python examples/mnist_tour.py ../shared/data/mnist runs/mnist

The first argument is a folder with the four files of MNIST (``train-images-idx3-ubyte.gz`` and
so on).  Kill it whenever you like and start it again: it goes on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from nnpipe.core.errors import NNPipeError
from nnpipe.training.callbacks.attention import AttentionMaps
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.classification_report import ClassificationReport, Confusions
from nnpipe.training.callbacks.embeddings import Embeddings
from nnpipe.training.callbacks.explanations import Explanations
from nnpipe.training.callbacks.history import BestFigures, EpochSummary, HistoryPlots, HistoryTable
from nnpipe.training.callbacks.learning_rate import LearningRateFinder, LearningRateRecorder
from nnpipe.training.callbacks.onnx_export import OnnxExport
from nnpipe.training.callbacks.resource_monitor import NanWatch, ProfilerTrace, ResourceMonitor
from nnpipe.training.callbacks.run_page import RunPage, SourceSnapshot
from nnpipe.training.callbacks.sample_losses import SampleLosses, WorstSamples
from nnpipe.training.callbacks.samples import Augmentations, RandomSamples
from nnpipe.training.callbacks.summaries import DatasetSummary, ModelSummary
from nnpipe.training.callbacks.tensorboard import TensorBoard
from nnpipe.training.callbacks.weights import (
    ActivationStatistics,
    GradientNorms,
    Kernels,
    WeightStatistics,
)
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer


class Net(torch.nn.Module):
    """Two convolutions, attention between the places that are left, and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 5, padding=2),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 5, padding=2),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(2),
        )
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.features = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(7 * 7 * 32, 64), torch.nn.ReLU()
        )
        self.head = torch.nn.Linear(64, 10)

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Give the digit, and the features that it is told by."""
        patches = self.patches(batch["image"]).transpose(1, 2)
        seen, _ = self.attention(patches, patches, patches, need_weights=False)
        features = self.features(patches + seen)
        return {
            "digit": ClassificationOutput(self.head(features), batch["label"]),
            "features": EmbeddingOutput(features, batch["label"]),
        }


def read_idx(path: Path) -> np.ndarray:
    """Read a file of MNIST's format: two zeros, the type 8 (bytes), the number of axes, their
    lengths, the values.
    """
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    shape = np.frombuffer(data, ">u4", axes, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_split(folder: Path, name: str, samples: int | None) -> dict[str, np.ndarray]:
    """Give pictures ``(n, 1, 28, 28)`` from 0 to 1, and labels ``(n,)``."""
    images = read_idx(folder / f"{name}-images-idx3-ubyte.gz")[:samples]
    labels = read_idx(folder / f"{name}-labels-idx1-ubyte.gz")[:samples]
    return {"image": images[:, None].astype(np.float32) / 255, "label": labels.astype(np.int64)}


def shifted(sample: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Move a picture by up to two pixels each way; its margin of four is black, so nothing comes
    round.
    """
    return sample | {"image": np.roll(sample["image"], random.integers(-2, 3, 2), (1, 2))}


def callbacks() -> list[Callback]:
    """Give all callbacks; TensorBoard and the page show what the others wrote, so they come
    last.
    """
    return [
        EpochSummary(),
        NanWatch(),
        ModelSummary(),
        DatasetSummary(),
        SourceSnapshot([__file__]),
        HistoryPlots(),
        HistoryTable(),
        BestFigures(),
        SampleLosses(),
        ResourceMonitor(),
        LearningRateFinder(),
        LearningRateRecorder(),
        GradientNorms(every=10),
        WeightStatistics(),
        ActivationStatistics(),
        Kernels(),
        RandomSamples(),
        Augmentations(epochs=4),
        WorstSamples(),
        Confusions(),
        ClassificationReport(),
        Embeddings(),
        Explanations("image", "digit"),
        AttentionMaps(grid=(7, 7)),
        ProfilerTrace(),
        OnnxExport(["image"]),
        TensorBoard(),
        RunPage(),
    ]


def main() -> int:
    """Train, and say how good it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the files of MNIST")
    parser.add_argument(
        "folder", type=Path, help="the run's folder; one that has a run already is gone on with"
    )
    parser.add_argument(
        "--epochs", type=int, default=3, help="how often to go through the samples (3)"
    )
    parser.add_argument("--samples", type=int, help="how many samples of each split to take (all)")
    given = parser.parse_args()
    if not (given.data / "train-images-idx3-ubyte.gz").is_file():
        print(
            f"{given.data}: has no train-images-idx3-ubyte.gz; give the folder of MNIST's files",
            file=sys.stderr,
        )
        return 2
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(1)
    train, test = (read_split(given.data, name, given.samples) for name in ("train", "t10k"))
    datasets = {
        "mnist": {
            "train": ArraySequence(train, batch=64, sampler=RandomSampler(), seed=1).map(
                shifted, seed=1
            ),
            "test": ArraySequence(test, batch=500),
        }
    }
    trainer = Trainer(
        TrainerOptions.from_json({"num_epochs": given.epochs, "clip_norm": 5.0}), callbacks()
    )
    try:
        history = trainer.fit(
            Net(),
            datasets,
            folder=given.folder,
            optimiser=AdamW(rate=2e-3),
            schedule=Cosine(warmup=50),
            progress=lambda items, what, total=None: tqdm(items, what, total, leave=False),
        )
    except NNPipeError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"test accuracy {history.last['mnist/test/digit/accuracy']:.4f}; see "
        f"{given.folder / 'index.html'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
