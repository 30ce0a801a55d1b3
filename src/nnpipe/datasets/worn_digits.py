"""The digits that come with nnpipe as a worn scanner gives them: a data set on which models differ."""

from __future__ import annotations

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import DatasetSpec
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.in_memory import Samples, image_classification

_SHEET = 12  # pixels in each direction
_BLACK = 16
_SEED = 20_231  # of the wear, which is part of the data set


class WornDigitsDataset(DigitsDataset):
    """The 1,797 digits anywhere on sheets of 12 x 12 pixels, of uneven exposure and noisy: nothing to download.

    Small networks tell the clean digits apart without fault, whatever is done to their weights.  Here every bit of
    precision counts, so that what quantising and pruning cost can be seen.  Pixels are uint8 from 0 (white) to 16
    (black); the same sample is worn in the same way every time.
    """

    noise: float = argument(
        1.5, help="standard deviation of what is added to every pixel, which go from 0 to 16", minimum=0.0, maximum=16.0
    )
    faintest: float = argument(
        0.3, help="exposure of the faintest scans as a part of the full one", minimum=0.01, maximum=1.0
    )

    @property
    def spec(self) -> DatasetSpec:
        """Images (12, 12, 1) of ten classes."""
        return image_classification(_SHEET, _SHEET, 1, super().spec.class_names)

    def load(self) -> Samples:
        """Read the file in the package, and wear its scans."""
        clean = super().load()
        scans = clean.inputs["image"]
        random = np.random.default_rng(_SEED)
        sheets = np.zeros((len(scans), _SHEET, _SHEET, 1))
        height, width = scans.shape[1:3]
        tops = random.integers(0, _SHEET - height + 1, len(scans))
        lefts = random.integers(0, _SHEET - width + 1, len(scans))
        exposures = random.uniform(self.faintest, 1, len(scans))
        for sheet, scan, top, left, exposure in zip(sheets, scans, tops, lefts, exposures, strict=True):
            sheet[top : top + height, left : left + width] = exposure * scan
        sheets += random.normal(0, self.noise, sheets.shape)
        pixels = np.clip(np.rint(sheets), 0, _BLACK).astype(np.uint8)
        return Samples({"image": pixels}, clean.targets, clean.class_names)
