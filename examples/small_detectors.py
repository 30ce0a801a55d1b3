"""Train two tiny networks that find things in synthetic pictures, and write them as ONNX files.

    python examples/small_detectors.py boxes build/tasks/detection/boxes.onnx
    python examples/small_detectors.py masks build/tasks/instance_segmentation/masks.onnx

The first one gives boxes as YOLOX does, of the squares of ``SyntheticDetectionDataset``.  The
second one gives a mask of each class of ``SyntheticInstancesDataset``: two things of one class in a
picture share one.  They take pixels from 0 to 1, ``(n, channels, height, width)``.
``examples/tasks`` has the pipelines that compile and measure them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nnpipe.datasets import SyntheticDetectionDataset, SyntheticInstancesDataset

STRIDE = 8  # pixels of a cell
CLASSES = 2


class Boxes(nn.Module):
    """The centre, the logarithm of the size, the objectness and the classes of a box for each
    cell.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5, 1, 2),
            nn.ReLU(),
            nn.Conv2d(32, 5 + CLASSES, 1),
        )

    def logits(self, image: Tensor) -> Tensor:
        """Return the numbers of each cell, row by row, ``(n, cells, 5 + classes)``."""
        return self.layers(image).flatten(2).transpose(1, 2)

    def forward(self, image: Tensor) -> Tensor:
        """Return what ``YOLOXDecoder`` reads."""
        found = self.logits(image)
        return torch.cat([found[..., :4], torch.sigmoid(found[..., 4:])], dim=2)


class Masks(nn.Module):
    """A mask for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, 1, 2),
            nn.ReLU(),
            nn.Conv2d(16, 16, 5, 1, 2),
            nn.ReLU(),
            nn.Conv2d(16, CLASSES, 1),
        )

    def logits(self, image: Tensor) -> Tensor:
        """Return ``(n, classes, height, width)``."""
        return self.layers(image)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return masks, their classes, and the mean probability of the pixels inside of each."""
        masks = torch.sigmoid(self.logits(image))
        inside = (masks > 0.5).float()
        scores = (masks * inside).sum(dim=(2, 3)) / (inside.sum(dim=(2, 3)) + 1)
        return masks, torch.arange(CLASSES).repeat(image.shape[0], 1), scores


def box_targets(truth: dict[str, np.ndarray], side: int) -> Tensor:
    """Return what each cell should give, as :class:`Boxes` does; the objectness is 1 in cells
    with a centre.
    """
    count, cells = len(truth["class"]), side // STRIDE
    found = np.zeros((count, cells, cells, 5 + CLASSES), np.float32)
    for picture, box in zip(*np.nonzero(truth["class"] >= 0), strict=True):
        left, top, width, height = truth["boxes"][picture, box] / STRIDE
        x, y = left + width / 2, top + height / 2
        column, row = min(int(x), cells - 1), min(int(y), cells - 1)
        cell = found[picture, row, column]
        cell[:5] = x - column, y - row, np.log(width), np.log(height), 1
        cell[5:] = np.arange(CLASSES) == truth["class"][picture, box]
    return torch.from_numpy(found.reshape(count, -1, 5 + CLASSES))


def box_loss(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the loss of boxes: where they are counts in cells that have one."""
    there = wanted[..., 4] > 0
    of_cells = nn.functional.binary_cross_entropy_with_logits
    return (
        of_cells(found[..., 4], wanted[..., 4])
        + nn.functional.l1_loss(found[there][:, :4], wanted[there][:, :4])
        + of_cells(found[there][:, 5:], wanted[there][:, 5:])
    )


def mask_targets(truth: dict[str, np.ndarray], height: int, width: int) -> Tensor:
    """Return the pixels of each class, ``(n, classes, height, width)``."""
    found = np.zeros((len(truth["class"]), CLASSES, height, width), np.float32)
    for picture, thing in zip(*np.nonzero(truth["class"] >= 0), strict=True):
        runs = truth["runs"][picture, thing]
        flat = np.repeat(np.arange(len(runs)) % 2, runs)  # column by column
        mask = found[picture, truth["class"][picture, thing]]
        np.maximum(mask, flat.reshape(width, height).T, out=mask)
    return torch.from_numpy(found)


def train(
    network: Any,
    images: Tensor,
    wanted: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
) -> float:
    """Train a network, and return the loss of the last batch."""
    optimiser = torch.optim.Adam(network.parameters(), 0.003)
    last = float("nan")
    for _ in range(epochs):
        for places in torch.randperm(len(images)).split(32):
            optimiser.zero_grad()
            found = loss(network.logits(images[places]), wanted[places])
            found.backward()
            optimiser.step()
            last = float(found.detach())
    return last


def main() -> None:
    """Train one of the two and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=("boxes", "masks"), help="what to find")
    parser.add_argument("path", type=Path, help="the ONNX file")
    parser.add_argument("--epochs", type=int, default=20, help="how often all samples are seen")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = (
        SyntheticDetectionDataset() if options.kind == "boxes" else SyntheticInstancesDataset()
    )
    inputs, truth = dataset.read(dataset.split("train"))
    images = torch.from_numpy(inputs["image"].transpose(0, 3, 1, 2) / np.float32(255))
    if options.kind == "boxes":
        network, wanted, loss = Boxes(), box_targets(truth, images.shape[2]), box_loss
        outputs = ["boxes"]
    else:
        network, wanted = Masks(), mask_targets(truth, *images.shape[2:])
        loss, outputs = nn.functional.binary_cross_entropy_with_logits, ["masks", "class", "scores"]
    last = train(network, images, wanted, loss, options.epochs)
    options.path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        network.eval(),
        (images[:2],),
        str(options.path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=["image"],
        output_names=outputs,
        dynamic_shapes={"image": {0: torch.export.Dim("n")}},
    )
    print(f"{options.path}: loss {last:.3f}")


if __name__ == "__main__":
    main()
