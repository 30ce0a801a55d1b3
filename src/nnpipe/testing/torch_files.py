"""A small exported PyTorch program, for tests of what compiles and runs such programs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.model import random_batch
from nnpipe.testing.model_files import NETWORK_IO


def write_torch_network(path: Path, seed: int = 0) -> Artifact:
    """Write a small convolutional network with two inputs and two outputs as an exported program; needs ``torch``.

    It takes and gives what :func:`~nnpipe.testing.model_files.write_onnx_network`'s does, but lists its inputs in
    another order, so that binding them by place fails.

    Parameters
    ----------
    path
        The file to write.
    seed
        Of the weights.
    """
    import torch

    class Network(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be there to be checked
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 6, 3)
            self.norm = torch.nn.BatchNorm2d(6)
            self.dense = torch.nn.Linear(6 * 9 + 3, 5)

        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            pooled = torch.nn.functional.max_pool2d(self.norm(self.conv(given["image"])).relu(), 2)
            scores = self.dense(torch.cat([pooled.flatten(1), given["extra"]], 1))
            return {"total": scores.sum(1, keepdim=True), "scores": scores}

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network().eval()
        with torch.no_grad():
            network.norm.running_mean.normal_()
            network.norm.running_var.uniform_(0.5, 2)
    batch = random_batch(NETWORK_IO, 2)
    example = {name: torch.from_numpy(batch[name]) for name in ("extra", "image")}
    free = {0: torch.export.Dim("batch", min=1)}
    with torch.no_grad():
        program = torch.export.export(network, (example,), dynamic_shapes=({"extra": free, "image": free},))
    program.example_inputs = None  # the only part that would be pickled
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    path.write_bytes(buffer.getvalue())
    return Artifact.of(path, "torch-export", NETWORK_IO, frameworks=(("torch", str(torch.__version__)),))
