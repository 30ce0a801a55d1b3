"""Handwritten digits that come with nnpipe, for first experiments."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.tensors import DatasetSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples, make_image_classification_spec

_CLASSES = tuple("0123456789")


class DigitsDataset(InMemoryDataset):
    """1,797 scanned handwritten digits of 8 x 8 pixels, part of nnpipe: nothing to download.

    Pixels are uint8 from 0 (white) to 16 (black), as published.  These samples
    have no published split, so the split follows the fractions.
    """

    @property
    def spec(self) -> DatasetSpec:
        """Images ``(n, 8, 8, 1)`` and ten classes."""
        return make_image_classification_spec(8, 8, 1, _CLASSES, brightest=16)

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


_SHEET = 12  # pixels in each direction
_BLACK = 16
_SEED = 20_231  # of the simulated wear, which is part of the data set


class WornDigitsDataset(DigitsDataset):
    """The 1,797 digits at random positions on 12 x 12 pixels, with varying exposure and noise:
    nothing to download.

    Small networks classify the clean digits without errors, even after strong compression.  Here,
    every bit of precision matters, so that the cost of quantisation and pruning becomes visible.
    Pixels are uint8 from 0 (white) to 16 (black); the wear of each sample is reproducible.
    """

    noise: float = argument(
        1.5,
        help="standard deviation of the noise added to pixels, which are 0 to 16",
        minimum=0.0,
        maximum=16.0,
    )
    faintest: float = argument(
        0.3,
        help="exposure of the faintest scans, as a fraction of the full one",
        minimum=0.01,
        maximum=1.0,
    )

    @property
    def spec(self) -> DatasetSpec:
        """Images ``(n, 12, 12, 1)`` and ten classes."""
        return make_image_classification_spec(
            _SHEET, _SHEET, 1, super().spec.class_names, brightest=_BLACK
        )

    def load(self) -> Samples:
        """Return all samples from a file in the package, with simulated wear."""
        clean = super().load()
        scans = clean.inputs["image"]
        random = np.random.default_rng(_SEED)
        sheets = np.zeros((len(scans), _SHEET, _SHEET, 1))
        height, width = scans.shape[1:3]
        tops = random.integers(0, _SHEET - height + 1, len(scans))
        lefts = random.integers(0, _SHEET - width + 1, len(scans))
        exposures = random.uniform(self.faintest, 1, len(scans))
        for sheet, scan, top, left, exposure in zip(
            sheets, scans, tops, lefts, exposures, strict=True
        ):
            sheet[top : top + height, left : left + width] = exposure * scan
        sheets += random.normal(0, self.noise, sheets.shape)
        pixels = np.clip(np.rint(sheets), 0, _BLACK).astype(np.uint8)
        return Samples({"image": pixels}, clean.targets, clean.class_names)
