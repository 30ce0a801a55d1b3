"""A synthetic data set of pictures with a mask of each thing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.instance_segmentation.runs import padded, runs_of
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation

_THINGS = 3


class SyntheticInstancesDataset(SyntheticDataset):
    """Masks of single things: up to three discs and squares, which hide each other, on a noisy background."""

    image_size: tuple[int, int] = argument((48, 48), help="height and width of the images", minimum=16)
    noise: float = argument(0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Grey images, and run lengths of the masks of the things, padded to three."""
        return DatasetSpec(
            InstanceSegmentation.name,
            inputs=(TensorSpec("image", (None, *self.image_size, 1), "uint8"),),
            targets=(
                TensorSpec("runs", (None, _THINGS, self._runs), "int64"),
                TensorSpec("class", (None, _THINGS), "int64"),
                TensorSpec("size", (None, 2), "int32"),
            ),
            class_names=("disc", "square"),
        )

    @property
    def _runs(self) -> int:
        # Two other things divide a column of a thing into three parts at most.
        return 2 * _THINGS * self.image_size[1] + 1

    def load(self) -> Samples:
        """Return random images, uint8, with the masks and classes of what is to be seen in them."""
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        least, count = min(height, width), self.num_samples
        rows, columns = np.mgrid[:height, :width]
        images = np.full((count, height, width), 0.5)
        runs = np.zeros((count, _THINGS, self._runs), np.int64)
        classes = np.full((count, _THINGS), -1, np.int64)
        for sample in range(count):
            owner = np.full((height, width), -1)
            labels = rng.integers(0, 2, int(rng.integers(1, _THINGS + 1)))
            for thing, label in enumerate(labels):
                radius = rng.uniform(least / 8, least / 4)
                apart = np.abs(rows - rng.uniform(0, height)), np.abs(columns - rng.uniform(0, width))
                inside = np.hypot(*apart) <= radius if label == 0 else np.maximum(*apart) <= radius
                owner[inside] = thing
                images[sample][inside] = (0.9, 0.1)[label] + rng.uniform(-0.1, 0.1)
            seen = np.unique(owner[owner >= 0])
            classes[sample, : len(seen)] = labels[seen]
            runs[sample, : len(seen)] = padded([runs_of(owner == thing) for thing in seen], self._runs)
        images += self.noise * rng.standard_normal(images.shape)
        pixels = np.clip(np.rint(255 * images), 0, 255).astype(np.uint8)
        sizes = np.tile(np.array(self.image_size, np.int32), (count, 1))
        targets: dict[str, npt.NDArray[np.generic]] = {"runs": runs, "class": classes, "size": sizes}
        return Samples({"image": pixels[..., None]}, targets, self.spec.class_names)
