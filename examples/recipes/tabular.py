"""Rows of a table with gaps and categories: a small network with balanced classes, and its area
under the ROC curve.

    python examples/recipes/tabular.py runs/tabular [TABLE.csv]

Kill it whenever you like and start it again: it goes on where it was, to the bit.
"""

import sys
from pathlib import Path

import torch

from nnpipe.core.input_transform import transform_from
from nnpipe.datasets.synthetic import SyntheticTabularDataset
from nnpipe.datasets.tabular import TabularClassificationDataset
from nnpipe.training.callbacks.history import EpochSummary
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput, compute_balanced_weights
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.training.trainer import Trainer


class Net(torch.nn.Module):
    def __init__(self, columns, weights, width=64):
        super().__init__()
        self.register_buffer("weights", weights)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(columns, width),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, len(weights)),
        )

    def forward(self, batch):
        scores = self.layers(batch["features"])
        return {"label": ClassificationOutput(scores, batch["label"], class_weights=self.weights)}


if __name__ == "__main__":
    files = [TabularClassificationDataset(dataset_root=Path(path)) for path in sys.argv[2:]]
    data = files[0] if files else SyntheticTabularDataset(num_samples=2000)
    encoding = transform_from(data.spec.transforms["features"])  # fitted to the training samples

    def encoded(inputs):
        return {"features": encoding.apply(inputs["features"])}

    splits = {
        s: DatasetSequence(data, s, batch=32, shuffle=True, prepare=encoded)
        for s in ("train", "test")
    }
    rows, truth = data.read(data.split("train"))
    columns = encoded(rows)["features"].shape[1]
    weights = compute_balanced_weights(truth["label"], len(data.spec.class_names))
    options = {"num_epochs": 20, "monitor": "data/test/label/roc_auc", "patience": 5}
    trainer = Trainer(
        TrainerOptions(**options, weights="best", checkpoint_every=10), [EpochSummary()]
    )
    how = {"optimiser": AdamW(rate=3e-3), "metrics": {"label": ["roc_auc"]}}
    history = trainer.fit(trainer.build(Net, columns, weights), splits, folder=sys.argv[1], **how)
    print(f"area under the ROC curve: {history.about['data/test/label/roc_auc']:.1%}")
