"""Every callback of the package, at a model and data at which each of them has something to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import digit_toys as digits
import numpy as np
import torch

from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import find_callback_classes
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler

_ARGUMENTS: dict[str, Callable[[Any], Callback]] = {
    "ActivationStatistics": lambda made: made(),
    "AttentionMaps": lambda made: made(count=2, grid=(4, 4)),
    "Augmentations": lambda made: made((0, 3), 2),
    "BestFigures": lambda made: made(),
    "ClassificationReport": lambda made: made(),
    "Confusions": lambda made: made(5),
    "DatasetSummary": lambda made: made(),
    "Embeddings": lambda made: made(20),
    "EpochSummary": lambda made: made(),
    "Explanations": lambda made: made("image", "digit", 2, ["grad-cam", "guided-backpropagation"]),
    "GradientNorms": lambda made: made(),
    "HistoryPlots": lambda made: made(),
    "HistoryTable": lambda made: made(),
    "Kernels": lambda made: made(4),
    "LearningRateFinder": lambda made: made(steps=8),
    "LearningRateRecorder": lambda made: made(),
    "MlflowLog": lambda made: made(),
    "ModelSummary": lambda made: made(),
    "NanWatch": lambda made: made(every=1),
    "OnnxExport": lambda made: made(["image"]),
    "ProfilerTrace": lambda made: made(skip=1, batches=2),
    "RandomSamples": lambda made: made(4),
    "ResourceMonitor": lambda made: made(0.01),
    "SampleLosses": lambda made: made(2),
    "SkipEpochs": lambda made: made(["NanWatch"], 2),
    "SourceSnapshot": lambda made: made([Path(__file__)]),
    "WeightStatistics": lambda made: made(),
    "WorstSamples": lambda made: made(4),
    "WandbLog": lambda made: made(),
    # These show what the others wrote.
    "TensorBoard": lambda made: made(),
    "RunPage": lambda made: made(),
}


def named() -> list[str]:
    return list(_ARGUMENTS)


def made(name: str) -> Callback:
    return _ARGUMENTS[name](find_callback_classes()[name])


FOREIGN = ("MlflowLog", "WandbLog")
"""They write into stores of other tools, with random names, and need packages of their own."""


def every() -> list[Callback]:
    return [made(name) for name in _ARGUMENTS if name not in FOREIGN]


class Net(torch.nn.Module):
    """Convolution, normalisation, dropout and attention, with features that are handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 2, stride=2),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(2),
        )
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.features = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(128, 16)
        )
        self.head = torch.nn.Linear(16, 10)

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        patches = self.patches(batch["image"]).transpose(1, 2)
        seen, _ = self.attention(patches, patches, patches, need_weights=False)
        features = self.features(patches + seen)
        return {
            "digit": ClassificationOutput(self.head(features), batch["label"]),
            "features": EmbeddingOutput(features, batch["label"]),
        }


def model() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return Net()


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return sample | {"image": sample["image"] + rng.normal(size=(1, 8, 8)).astype(np.float32) / 8}


def data() -> dict[str, Any]:
    train = ArraySequence(digits.arrays(0, 64), batch=16, sampler=RandomSampler(), seed=3).map(
        noisy, seed=4
    )
    return {"digits": {"train": train, "test": ArraySequence(digits.arrays(1200, 1230), batch=16)}}
