"""What long and large trainings cost: the folder and the page of many short epochs, and the order
of many samples.

Epochs are so short that files cost more than learning.  Some are trained with the default
callbacks, and what each of their files would be after all epochs is computed: some have a line an
epoch, some grow with the epochs after which files are written, and all others, pictures among them,
do not grow.
"""

from __future__ import annotations

import csv
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from _growth import growth
from _table import EPYC

from nnpipe.training.callbacks.callback import is_write_due
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.run_page import write_run_page
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer
from report import in_browser

EPOCHS = 100_000
_SAMPLES, _CLASSES = 300, 3  # more than the worst samples, of which each epoch keeps some


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge the bytes of a run's folder by epochs, its page, and the time until shuffled samples
    go on.
    """
    epochs = 10 if quick else 60
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder, epochs)
        files = [path for path in folder.rglob("*") if path.is_file()]
        megabytes = [
            sum(size(path) for path in files) / 1e6
            for size in (bytes_of, lambda path: grown(path, epochs))
        ]
        page, seconds = page_of(folder)
    sizes, orders = [epochs, EPOCHS], [100_000, 10_000_000]
    found = [
        growth(
            "short epochs, default callbacks",
            "MB in the folder",
            sizes,
            megabytes,
            100,
            seen_on=EPYC,
        ),
        growth("short epochs, page", "MB", sizes, page, 1, seen_on=EPYC),
        growth(
            "samples, shuffled and resumed",
            "s",
            orders,
            [resumed(n) for n in orders],
            1,
            1.5,
            seen_on=EPYC,
        ),
    ]
    if seconds is not None:
        found.append(
            growth(
                "short epochs, page in a browser", "s", sizes, [seconds, seconds], 2, seen_on=EPYC
            )
        )
    return found


def bytes_of(path: Path) -> int:
    return path.stat().st_size


def grown(path: Path, epochs: int) -> float:
    """Return the bytes that a file of a training of so many epochs would have after all epochs."""
    size, lines = bytes_of(path), path.read_bytes().count(b"\n")
    if path.suffix in (".jsonl", ".json") and "worst" in path.name.lower():
        return size * written(EPOCHS) / written(epochs)
    if path.suffix in (".jsonl", ".csv", ".txt") and lines >= epochs:
        return size / lines * EPOCHS + 5.0 * EPOCHS  # greater numbers have more digits
    return size


def written(epochs: int) -> int:
    """Return the number of epochs after which files that show all epochs are written."""
    fit: Any = SimpleNamespace(
        options=TrainerOptions(num_epochs=epochs), stopping="", step=0, final=None
    )
    number = 0
    for fit.epoch in range(1, epochs + 1):
        number += is_write_due(fit)
    return number


def train(folder: Path, epochs: int) -> None:
    """Train for short epochs with the default callbacks."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, _CLASSES)

        def forward(self, batch: dict[str, Any]) -> Any:
            return ClassificationOutput(self.layer(batch["x"]), batch["label"])

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    arrays = {
        "x": random.random((_SAMPLES, 4), np.float32),
        "label": random.integers(0, _CLASSES, _SAMPLES),
    }
    data = {split: ArraySequence(arrays, batch=_SAMPLES) for split in ("train", "test")}
    Trainer(TrainerOptions(num_epochs=epochs)).fit(Net(), data, folder=folder)


def page_of(folder: Path) -> tuple[list[float], float | None]:
    """Return the megabytes of a run's page, now and after all epochs; and the seconds to open
    the latter.
    """
    before = write_run_page(folder).stat().st_size
    history = folder / "tables" / "history.csv"
    rows = list(csv.DictReader(history.read_text().splitlines()))
    with history.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**rows[n % len(rows)], "epoch": n + 1} for n in range(EPOCHS))
    lines = folder / "tables" / "epochs.txt"
    known = lines.read_text().splitlines()
    lines.write_text("".join(f"{known[n % len(known)]}\n" for n in range(EPOCHS)))
    page = write_run_page(folder)
    return [before / 1e6, page.stat().st_size / 1e6], in_browser(page)["load, s"]


def resumed(samples: int) -> float:
    """Return the processor's seconds until a shuffled sequence is where it was left, amid an
    epoch.
    """
    features = {"x": np.zeros(samples, np.uint8)}

    def sequence() -> ArraySequence:
        return ArraySequence(features, batch=100, sampler=RandomSampler(), seed=1)

    left = sequence()
    left.set_epoch(3)
    batches = iter(left)
    expected = [next(batches)["sample_id"] for _ in range(11)]
    state = None
    left = sequence()
    left.set_epoch(3)
    for number, _ in enumerate(left):
        if number == 9:
            state = left.state_dict()
            break
    taken = []
    for _ in range(3):
        began = time.process_time()
        other = sequence()
        other.load_state_dict(state)
        batch = next(iter(other))
        taken.append(time.process_time() - began)
        assert np.array_equal(batch["sample_id"], expected[10])
    return min(taken)


if __name__ == "__main__":
    for part in parts(quick=True):
        print(part)
