"""Test-time augmentation."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.segmentation import SegmentationOutput
from nnpipe.training.trainer import Trainer
from nnpipe.training.view_average import BatchView, average_views, make_mirror_view


class Images(torch.nn.Module):
    """A class and a mask for images, which depend on where things are."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.head, self.mask = (
                torch.nn.Linear(16, 3),
                torch.nn.Conv2d(1, 2, (1, 3), padding=(0, 1)),
            )

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        images = batch["image"]
        return {
            "kind": ClassificationOutput(self.head(images.flatten(1)), batch["label"]),
            "mask": SegmentationOutput(self.mask(images[:, None]), batch["mask"]),
        }


def data() -> Any:
    random = np.random.default_rng(0)
    arrays = {
        "image": random.random((21, 4, 4), np.float32),
        "label": random.integers(0, 3, 21),
        "mask": random.integers(0, 2, (21, 4, 4)),
    }
    return {"d": {"test": toys.ArraySequence(arrays, 8, shuffle=False)}}


def test_figures_are_those_of_the_mean_over_the_views() -> None:
    model, arrays = Images(), data()["d"]["test"].arrays
    with torch.no_grad():
        image = torch.from_numpy(arrays["image"])
        batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
        one, other = model(batch), model({**batch, "image": image.flip(-1)})
        logits = (one["kind"].output + other["kind"].output) / 2
        masks = (one["mask"].output + other["mask"].output.flip(-1)) / 2
        expected = {
            "d/test/kind/loss": float(ClassificationOutput(logits, batch["label"]).loss()),
            "d/test/mask/loss": float(SegmentationOutput(masks, batch["mask"]).loss()),
        }

    found = Trainer().evaluate(
        average_views(model, [make_mirror_view("image", maps=["mask"])]), data()
    )
    plain = Trainer().evaluate(model, data())
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5)
        assert plain[name] != pytest.approx(value, rel=1e-4)


def test_views_that_cannot_be_averaged_are_refused() -> None:
    with pytest.raises(ConfigError, match="give at least one"):
        average_views(Images(), [])
    half = BatchView(lambda batch: {name: value[:4] for name, value in batch.items()})
    with pytest.raises(
        ConfigError, match=r"a view makes the output 'kind' \(4, 3\), which is \(8, 3\)"
    ):
        Trainer().evaluate(average_views(Images(), [half]), data())
    with pytest.raises(ConfigError, match="BatchView: change takes a function"):
        BatchView("flip")  # type: ignore[arg-type]
