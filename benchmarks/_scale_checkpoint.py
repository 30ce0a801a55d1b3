"""What a checkpoint costs as models and trainings grow: time and memory beside ``torch.save``, size
by epochs.

Each state is written and read in a process of its own, whose peak of memory is the kernel's own
figure.  Time is that of the processor, by turns with ``torch.save`` of the same state, the copy
that the training waits for included. Of each the least of all turns counts: in a virtual machine,
pages for a file that the machine has never touched take the processor three times as long as the
file, and whoever is at turn meets them by chance.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _growth import growth
from _table import EPYC

_TENSORS = 20
_PER_MB = 1_000_000

CHILD = """
import json, os, sys, time
from pathlib import Path
import torch
from nnpipe.training.checkpoints import CHECKPOINT, LAST, CheckpointWriter, read_checkpoint

size, rounds, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
torch.set_num_threads(1)
state = {"model": {f"layer.{n}": torch.randn(size // 4 // TENSORS) for n in range(TENSORS)}}
path = folder / LAST

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def more(work):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident()
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return peak() - before, time.process_time() - cpu, time.perf_counter() - clock

writer = CheckpointWriter()

def ours():
    writer.write(path, writer.copy_state(state), CHECKPOINT)
    writer.wait()

def theirs():
    torch.save(state, folder / "theirs.pt")
    with open(folder / "theirs.pt", "rb") as file:
        os.fsync(file.fileno())

def read():
    read_checkpoint(path)

start = resident()
first, _, _ = more(ours)  # takes the memory that later ones use again
theirs()
found = {"peak": first, "ours": [], "theirs": []}
for number in range(rounds):
    for name in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
        above, cpu, clock = more({"ours": ours, "theirs": theirs}[name])
        found[name].append([cpu, clock])
        found["peak"] = max(found["peak"], above)
found["resident"] = resident() - start
writer.close()
found["read"], _, _ = more(read)
print(json.dumps(found))
"""


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge time and memory of a checkpoint, and its size by epochs."""
    sizes, epochs = [10, 100] if quick else [50, 500], [3, 30]
    found = [checkpoint(size, 3) for size in sizes]
    bytes_after = [size_after(number) for number in epochs]
    return [
        growth(
            "checkpoint, megabytes",
            "times torch.save",
            sizes,
            [each["ratio"] for each in found],
            1.3,
            seen_on=EPYC,
        ),
        growth(
            "checkpoint, megabytes",
            "states more in memory",
            sizes,
            [each["states"] for each in found],
            1.3,
            seen_on=EPYC,
        ),
        growth(
            "checkpoint, epochs", "bytes", epochs, bytes_after, 1.02 * bytes_after[0], seen_on=EPYC
        ),
    ]


def checkpoint(megabytes: int, rounds: int = 7) -> dict[str, float]:
    """Return the figures of a state of so many megabytes.

    Returns
    -------
    dict
        ``ratio`` and ``clock_ratio``: processor time and time by the clock, as a part of
        ``torch.save``'s with the same state made durable; ``states``: the most memory above that of
        the training, in states, while one is written; ``read_states``: the same while one is read.
    """
    size = megabytes * _PER_MB
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run(
            [sys.executable, "-c", _child(), str(size), str(rounds), folder],
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, Any] = json.loads(answer.stdout)
    ratios = [
        min(turn[which] for turn in found["ours"]) / min(turn[which] for turn in found["theirs"])
        for which in (0, 1)
    ]
    return {
        "megabytes": megabytes,
        "ratio": ratios[0],
        "clock_ratio": ratios[1],
        "states": max(found["peak"], found["resident"]) / size,
        "read_states": found["read"] / size,
    }


def _child() -> str:
    return CHILD.replace("TENSORS", str(_TENSORS))


def size_after(epochs: int) -> int:
    """Return the bytes of the last checkpoint of a training of so many epochs, with the
    callbacks that keep rows.
    """
    import torch

    from nnpipe.training.callbacks.history import EpochSummary
    from nnpipe.training.checkpoints import LAST
    from nnpipe.training.options import TrainerOptions
    from nnpipe.training.outputs.classification import ClassificationOutput
    from nnpipe.training.sequences.array import ArraySequence
    from nnpipe.training.trainer import Trainer

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, batch: dict[str, Any]) -> Any:
            return ClassificationOutput(self.layer(batch["x"]), batch["label"])

    features = {"x": torch.zeros(8, 4).numpy(), "label": torch.zeros(8, dtype=torch.int64).numpy()}
    with tempfile.TemporaryDirectory() as folder:
        Trainer(TrainerOptions(num_epochs=epochs), [EpochSummary()]).fit(
            Net(), {"zeros": {"train": ArraySequence(features)}}, folder=folder
        )
        return (Path(folder) / "checkpoints" / LAST).stat().st_size


if __name__ == "__main__":
    print(checkpoint(100))
    print({epochs: size_after(epochs) for epochs in (3, 30)})
