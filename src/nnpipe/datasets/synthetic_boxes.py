"""A synthetic data set of pictures with boxes."""

from __future__ import annotations

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.detection.task import Detection

_SQUARES = 4


class SyntheticDetectionDataset(SyntheticDataset):
    """Detection: up to four red or green squares on a noisy grey background."""

    image_size: tuple[int, int] = argument((64, 64), help="height and width of the images", minimum=16)
    noise: float = argument(0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Colour images and the boxes of the squares, padded to four."""
        return DatasetSpec(
            Detection.name,
            inputs=(TensorSpec("image", (None, *self.image_size, 3), "uint8"),),
            targets=(
                TensorSpec("boxes", (None, _SQUARES, 4), "float64"),
                TensorSpec("class", (None, _SQUARES), "int64"),
                TensorSpec("size", (None, 2), "int32"),
            ),
            class_names=("red", "green"),
        )

    def load(self) -> Samples:
        """Return random images, uint8, with left, top, width and height of the squares in pixels."""
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        least = min(height, width)
        pixels = np.full((self.num_samples, height, width, 3), 0.5)
        boxes = np.zeros((self.num_samples, _SQUARES, 4))
        classes = np.full((self.num_samples, _SQUARES), -1, np.int64)
        for sample in range(self.num_samples):
            for place in range(rng.integers(0, _SQUARES + 1)):
                side, colour = int(rng.integers(least // 8, least // 3)), int(rng.integers(2))
                top, left = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
                pixels[sample, top : top + side, left : left + side] = np.where(np.arange(3) == colour, 0.9, 0.2)
                boxes[sample, place], classes[sample, place] = (left, top, side, side), colour
        pixels += self.noise * rng.standard_normal(pixels.shape)
        images = np.clip(np.rint(255 * pixels), 0, 255).astype(np.uint8)
        sizes = np.tile(np.array(self.image_size, np.int32), (self.num_samples, 1))
        return Samples({"image": images}, {"boxes": boxes, "class": classes, "size": sizes}, self.spec.class_names)
