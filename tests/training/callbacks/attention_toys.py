"""Small transformers: one of PyTorch's own encoder, one that calls the attention function
itself.
"""

from __future__ import annotations

from typing import Any

import torch

from nnpipe.training.outputs.classification import ClassificationOutput


class PatchEncoder(torch.nn.Module):
    """Pictures ``(n, 1, 8, 8)`` in 4 x 4 patches of 2 x 2, a class token, two layers of two
    heads.
    """

    def __init__(self, layers: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(1, 16, 2, stride=2)
        self.token = torch.nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.places = torch.nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        layer = torch.nn.TransformerEncoderLayer(16, heads, 32, dropout=0.1, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, layers)
        self.head = torch.nn.Linear(16, 10)

    def embedded(self, images: Any) -> Any:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.places

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        tokens = self.encoder(self.embedded(batch["image"]))
        return {"digit": ClassificationOutput(self.head(tokens[:, 0]), batch["label"])}


class RowsAsTokens(torch.nn.Module):
    """A causal layer over the rows of a picture, whose attention is one call of PyTorch's
    function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 48)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        split = self.project(batch["image"][:, 0]).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        found = torch.nn.functional.scaled_dot_product_attention(*split, is_causal=True)
        return {
            "digit": ClassificationOutput(
                self.head(found.transpose(1, 2).flatten(2)[:, -1]), batch["label"]
            )
        }


def made(kind: type[Any]) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return kind()
