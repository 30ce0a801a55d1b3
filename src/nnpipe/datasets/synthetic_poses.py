"""A synthetic data set of poses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.pose.task import Pose

_NAMES = ("centre", "first tip", "second tip")


class SyntheticPosesDataset(SyntheticDataset):
    """Poses: the hands of a clock, a red and a green one, on a noisy grey background; points are the tips."""

    image_size: tuple[int, int] = argument((32, 32), help="height and width of the images", minimum=16)
    noise: float = argument(0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Colour images, and the points of the one thing in each."""
        return DatasetSpec(
            Pose.name,
            inputs=(TensorSpec("image", (None, *self.image_size, 3), "uint8"),),
            targets=(
                TensorSpec("points", (None, 1, len(_NAMES), 3), "float32"),
                TensorSpec("count", (None,), "int64"),
                TensorSpec("size", (None, 2), "int32"),
            ),
            class_names=_NAMES,
        )

    def load(self) -> Samples:
        """Return random images, uint8, with x, y and visibility of the centre and both tips in pixels."""
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        least, count = min(height, width), self.num_samples
        centre = rng.uniform(0.4, 0.6, (count, 2)) * (width, height)
        angle = rng.uniform(0, 2 * np.pi, (count, 2))
        reach = rng.uniform(0.2, 0.35, (count, 2)) * least
        tips = centre[:, None] + reach[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        pixels = np.full((count, height, width, 3), 0.5)
        grid = np.stack(np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), axis=-1)
        for sample in range(count):
            for hand in range(2):
                # Pixels near the line from the centre to the tip: their nearest point on it is not far away.
                way = tips[sample, hand] - centre[sample]
                along = np.clip((grid - centre[sample]) @ way / (way @ way), 0, 1)
                apart = np.linalg.norm(grid - centre[sample] - along[..., None] * way, axis=-1)
                pixels[sample, apart <= least / 20] = np.where(np.arange(3) == hand, 0.9, 0.2)
        pixels += self.noise * rng.standard_normal(pixels.shape)
        points = np.ones((count, 1, len(_NAMES), 3), np.float32)
        points[:, 0, :, :2] = np.concatenate([centre[:, None], tips], axis=1)
        targets: dict[str, npt.NDArray[np.generic]] = {
            "points": points,
            "count": np.ones(count, np.int64),
            "size": np.tile(np.array(self.image_size, np.int32), (count, 1)),
        }
        images = np.clip(np.rint(255 * pixels), 0, 255).astype(np.uint8)
        return Samples({"image": images}, targets, _NAMES)
