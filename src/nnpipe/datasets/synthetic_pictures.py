"""Synthetic data sets of pictures: boxes, defects, masks, poses, and samples to be found by
their class.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.anomaly_map.task import AnomalyMaps
from nnpipe.tasks.detection.task import Detection
from nnpipe.tasks.embedding.metrics import GALLERY, QUERY
from nnpipe.tasks.embedding.task import EmbeddingSearch
from nnpipe.tasks.instance_segmentation.run_lengths import encode_mask_runs, pad_runs
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation
from nnpipe.tasks.pose.task import Pose

_SQUARES = 4


class SyntheticDetectionDataset(SyntheticDataset):
    """Detection: up to four red or green squares on a noisy grey background."""

    image_size: tuple[int, int] = argument(
        (64, 64), help="height and width of the images", minimum=16
    )
    noise: float = argument(
        0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0
    )

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
        """Return random images, uint8, with left, top, width and height of the squares in
        pixels.
        """
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        least = min(height, width)
        pixels = np.full((self.num_samples, height, width, 3), 0.5)
        boxes = np.zeros((self.num_samples, _SQUARES, 4))
        classes = np.full((self.num_samples, _SQUARES), -1, np.int64)
        for sample in range(self.num_samples):
            for place in range(rng.integers(0, _SQUARES + 1)):
                side, colour = int(rng.integers(least // 8, least // 3)), int(rng.integers(2))
                top, left = (
                    int(rng.integers(0, height - side + 1)),
                    int(rng.integers(0, width - side + 1)),
                )
                pixels[sample, top : top + side, left : left + side] = np.where(
                    np.arange(3) == colour, 0.9, 0.2
                )
                boxes[sample, place], classes[sample, place] = (left, top, side, side), colour
        pixels += self.noise * rng.standard_normal(pixels.shape)
        images = np.clip(np.rint(255 * pixels), 0, 255).astype(np.uint8)
        sizes = np.tile(np.array(self.image_size, np.int32), (self.num_samples, 1))
        return Samples(
            {"image": images},
            {"boxes": boxes, "class": classes, "size": sizes},
            self.spec.class_names,
        )


class SyntheticDefectsDataset(SyntheticDataset):
    """Anomaly maps: a striped surface with spots and scratches, which are in half of the test
    pictures only.

    The first two thirds of the pictures, all without a defect, are the training split.
    """

    image_size: tuple[int, int] = argument(
        (32, 32), help="height and width of the images", minimum=16
    )
    noise: float = argument(
        0.03, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0
    )

    @property
    def spec(self) -> DatasetSpec:
        """Grey images, which of their pixels are of a defect, and whether there is one."""
        return DatasetSpec(
            AnomalyMaps.name,
            inputs=(TensorSpec("image", (None, *self.image_size, 1), "uint8"),),
            targets=(
                TensorSpec("mask", (None, *self.image_size), "int8"),
                TensorSpec("anomalous", (None,), "int64"),
            ),
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
                # some are hard to see
                images[sample][defect] += rng.choice([-1, 1]) * rng.uniform(0.06, 0.4)
        images += self.noise * rng.standard_normal(images.shape)
        pixels = np.clip(np.rint(255 * images), 0, 255).astype(np.uint8)
        official = np.where(np.arange(count) < training, TRAIN, TEST)
        return Samples(
            {"image": pixels[..., None]},
            {
                "mask": masks.astype(np.int8),
                "anomalous": np.asarray(masks.any(axis=(1, 2)), np.int64),
            },
            self.spec.class_names,
            official,
        )


_THINGS = 3


class SyntheticInstancesDataset(SyntheticDataset):
    """Masks of single things: up to three discs and squares, which hide each other, on a noisy
    background.
    """

    image_size: tuple[int, int] = argument(
        (48, 48), help="height and width of the images", minimum=16
    )
    noise: float = argument(
        0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0
    )

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
                apart = (
                    np.abs(rows - rng.uniform(0, height)),
                    np.abs(columns - rng.uniform(0, width)),
                )
                inside = np.hypot(*apart) <= radius if label == 0 else np.maximum(*apart) <= radius
                owner[inside] = thing
                images[sample][inside] = (0.9, 0.1)[label] + rng.uniform(-0.1, 0.1)
            seen = np.unique(owner[owner >= 0])
            classes[sample, : len(seen)] = labels[seen]
            runs[sample, : len(seen)] = pad_runs(
                [encode_mask_runs(owner == thing) for thing in seen], self._runs
            )
        images += self.noise * rng.standard_normal(images.shape)
        pixels = np.clip(np.rint(255 * images), 0, 255).astype(np.uint8)
        sizes = np.tile(np.array(self.image_size, np.int32), (count, 1))
        targets: dict[str, npt.NDArray[np.generic]] = {
            "runs": runs,
            "class": classes,
            "size": sizes,
        }
        return Samples({"image": pixels[..., None]}, targets, self.spec.class_names)


_NAMES = ("centre", "first tip", "second tip")


class SyntheticPosesDataset(SyntheticDataset):
    """Poses: the hands of a clock, a red and a green one, on a noisy grey background; points are
    the tips.
    """

    image_size: tuple[int, int] = argument(
        (32, 32), help="height and width of the images", minimum=16
    )
    noise: float = argument(
        0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0
    )

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
        """Return random images, uint8, with x, y and visibility of the centre and both tips in
        pixels.
        """
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        least, count = min(height, width), self.num_samples
        centre = rng.uniform(0.4, 0.6, (count, 2)) * (width, height)
        angle = rng.uniform(0, 2 * np.pi, (count, 2))
        reach = rng.uniform(0.2, 0.35, (count, 2)) * least
        tips = centre[:, None] + reach[..., None] * np.stack(
            [np.cos(angle), np.sin(angle)], axis=-1
        )
        pixels = np.full((count, height, width, 3), 0.5)
        grid = np.stack(np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), axis=-1)
        for sample in range(count):
            for hand in range(2):
                # Pixels near the line from the centre to the tip: their nearest point on it is not
                # far away.
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


class SyntheticEmbeddingDataset(SyntheticDataset):
    """Embedding: each class is a direction, mixed with a few strong directions that all classes
    share.

    A third of the samples are queries, the others the gallery.  The vectors as they are find only
    some of their class; a model that suppresses what the classes share finds more.
    """

    num_classes: int = argument(20, help="number of classes", minimum=2, maximum=100_000)
    num_features: int = argument(32, help="length of the vectors", minimum=2, maximum=4096)
    shared: int = argument(
        4, help="number of directions that all classes share", minimum=0, maximum=4096
    )
    noise: float = argument(0.1, help="standard deviation of the noise of each number", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Vectors ``(n, num_features)``, and the class and the role of each."""
        return DatasetSpec(
            EmbeddingSearch.name,
            inputs=(TensorSpec("vector", (None, self.num_features), "float32"),),
            targets=(TensorSpec("label", (None,), "int64"), TensorSpec("role", (None,), "int64")),
            class_names=tuple(f"class {number}" for number in range(self.num_classes)),
        )

    def load(self) -> Samples:
        """Return random vectors, float32, with classes and roles, int64."""
        rng = np.random.default_rng(self.data_seed)
        centres = rng.standard_normal((self.num_classes, self.num_features)) / np.sqrt(
            self.num_features
        )
        shared = rng.standard_normal((self.shared, self.num_features)) / np.sqrt(self.num_features)
        label = rng.permutation(np.arange(self.num_samples) % self.num_classes)
        role = np.where(rng.random(self.num_samples) < 1 / 3, QUERY, GALLERY)
        vectors = centres[label] + 2 * rng.standard_normal((self.num_samples, self.shared)) @ shared
        vectors += self.noise * rng.standard_normal(vectors.shape)
        targets = {"label": label.astype(np.int64), "role": role.astype(np.int64)}
        return Samples({"vector": vectors.astype(np.float32)}, targets, self.spec.class_names)
