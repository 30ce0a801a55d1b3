"""Handwritten digits that come with nnpipe, for first experiments."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples, image_classification

_CLASSES = tuple("0123456789")


class DigitsDataset(InMemoryDataset):
    """1,797 scanned handwritten digits of 8 x 8 pixels, part of nnpipe: nothing to download.

    Pixels are uint8 from 0 (white) to 16 (black), as published.  These samples
    have no published split, so the split follows the fractions.
    """

    @property
    def spec(self) -> DatasetSpec:
        """Images ``(n, 8, 8, 1)`` and ten classes."""
        return image_classification(8, 8, 1, _CLASSES, brightest=16)

    def load(self) -> Samples:
        """Return all samples, from a file in the package."""
        source = resources.files("nnpipe.datasets") / "data" / "digits.npz"
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            images, labels = content["images"], content["labels"]
        return Samples({"image": images[..., None]}, {"label": labels.astype(np.int64)}, _CLASSES)

    def download(self) -> None:
        """Do nothing: the samples are part of nnpipe."""

    def origin(self) -> Mapping[str, Any]:
        """Return the source of the scans."""
        return {
            "name": "Optical Recognition of Handwritten Digits (test set)",
            "url": "https://doi.org/10.24432/C50P49",
            "licence": "CC BY 4.0",
        }
