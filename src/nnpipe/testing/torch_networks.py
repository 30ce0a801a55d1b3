"""A small exported PyTorch program for tests of readers and runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.files import write_bytes
from nnpipe.core.tensors import Batch
from nnpipe.testing.model_files import NETWORK_IO


def torch_network(seed: int = 0, channels: int = 6) -> Any:
    """Return a convolutional network from and to dicts with the names of ``NETWORK_IO``; requires ``torch``.

    It has the usual parts: convolutions with normalisation, some of them depthwise,
    a residual connection, a clipped activation, pooling, two inputs and two outputs.

    Parameters
    ----------
    seed
        Seed of the weights.
    channels
        Number of channels of the convolutions.
    """
    import torch
    from torch import nn

    def block(given: int, kernel: int, groups: int = 1) -> Any:
        padding = kernel // 2
        convolution = nn.Conv2d(given, channels, kernel, padding=padding, bias=False, groups=groups)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU6())

    class Network(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for the type check
        def __init__(self) -> None:
            super().__init__()
            self.first = block(1, 3)
            self.depthwise = block(channels, 3, channels)
            self.pointwise = block(channels, 1)
            self.pool = nn.MaxPool2d(2)
            self.dense = nn.Linear(4 * channels + 3, 5)

        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            x = self.first(given["image"])
            x = x + self.pointwise(self.depthwise(x))
            x = nn.functional.avg_pool2d(self.pool(x), 2).flatten(1)
            scores = self.dense(torch.cat([x, given["extra"]], 1))
            # In a different order than NETWORK_IO, so that binding by position fails.
            return {"total": scores.sum(1, keepdim=True), "scores": scores}

    generator = torch.Generator().manual_seed(seed)
    network = Network().eval()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2, generator=generator)
            elif tensor.is_floating_point():
                fan = tensor[0].numel() if tensor.ndim > 1 else 16
                tensor.normal_(0, 2 / fan**0.5, generator=generator)
    return network


def write_torch_network(path: Path, network: Any = None) -> Artifact:
    """Export a network with the tensors of ``NETWORK_IO``, by default :func:`torch_network`, and return the file.

    The number of samples is free.
    """
    import io

    import torch

    network = torch_network() if network is None else network
    batch = torch.export.Dim("batch", min=1)
    # In a different order than the network uses them.
    given = {"extra": torch.zeros(2, 3), "image": torch.zeros(2, 1, 8, 8)}
    program = torch.export.export(network, (given,), dynamic_shapes=({name: {0: batch} for name in given},))
    program.example_inputs = None  # the only part that would be pickled
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    write_bytes(path, buffer.getvalue())
    return Artifact.of(path, "torch-export", NETWORK_IO, frameworks=(("torch", str(torch.__version__)),))


def outputs_of_network(network: Any, batch: Batch) -> dict[str, Any]:
    """Return the network's own outputs; inputs and outputs are arrays."""
    import torch

    with torch.no_grad():
        found = network({name: torch.from_numpy(array) for name, array in batch.items()})
    return {name: tensor.numpy() for name, tensor in found.items()}
