"""A synthetic data set of pictures of a surface, some of which have defects."""

from __future__ import annotations

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.anomaly_map.task import AnomalyMaps


class SyntheticDefectsDataset(SyntheticDataset):
    """Anomaly maps: a striped surface with spots and scratches, which are in half of the test pictures only.

    The first two thirds of the pictures, all without a defect, are the training split.
    """

    image_size: tuple[int, int] = argument((32, 32), help="height and width of the images", minimum=16)
    noise: float = argument(0.03, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Grey images, which of their pixels are of a defect, and whether there is one."""
        return DatasetSpec(
            AnomalyMaps.name,
            inputs=(TensorSpec("image", (None, *self.image_size, 1), "uint8"),),
            targets=(TensorSpec("mask", (None, *self.image_size), "int8"), TensorSpec("anomalous", (None,), "int64")),
            class_names=("usual", "anomalous"),
        )

    def load(self) -> Samples:
        """Return random images, uint8, with the masks of their defects."""
        rng = np.random.default_rng(self.data_seed)
        count, (height, width) = self.num_samples, self.image_size
        rows, columns = np.mgrid[:height, :width]
        training = 2 * count // 3
        masks = np.zeros((count, height, width), bool)
        phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
        images = 0.5 + 0.15 * np.sin(2 * np.pi * columns / 8 + phase)
        for sample in range(training + 1, count, 2):
            for _ in range(int(rng.integers(1, 3))):
                row, column = rng.uniform(3, height - 3), rng.uniform(3, width - 3)
                across, angle = rng.uniform(1, 1.6), rng.uniform(0, np.pi)
                along = rng.choice([across + 1, min(height, width) / 4])  # a spot or a scratch
                one = (rows - row) * np.sin(angle) + (columns - column) * np.cos(angle)
                other = (rows - row) * np.cos(angle) - (columns - column) * np.sin(angle)
                defect = (one / along) ** 2 + (other / across) ** 2 <= 1
                masks[sample] |= defect
                images[sample][defect] += rng.choice([-1, 1]) * rng.uniform(0.06, 0.4)  # some are hard to see
        images += self.noise * rng.standard_normal(images.shape)
        pixels = np.clip(np.rint(255 * images), 0, 255).astype(np.uint8)
        official = np.where(np.arange(count) < training, TRAIN, TEST)
        return Samples(
            {"image": pixels[..., None]},
            {"mask": masks.astype(np.int8), "anomalous": np.asarray(masks.any(axis=(1, 2)), np.int64)},
            self.spec.class_names,
            official,
        )
