"""The base of data sets of pictures with key points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.ragged import Ragged
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.datasets.listed_pictures import ListedPicturesDataset
from nnpipe.tasks.pose.settings import PoseSettings
from nnpipe.tasks.pose.task import Pose

MOST_PERSONS = 1000
"""Persons that a picture may have."""
MOST_POINTS = 1000
"""Key points that a person may have."""
MOST_NUMBERS = 1 << 26
"""Numbers of all key points: 256 MiB."""

COCO_POINTS = (
    "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow",
    "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle",
    "right_ankle",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class PoseListing:
    """Pictures with the key points of the persons in them.

    Attributes
    ----------
    paths
        One image file per sample.
    points
        x, y and visibility of each person's key points, ``(persons, points, 3)`` float32; in pixels, or in shares of
        the picture's width and height if ``shares`` is true.
    names
        Names of the key points.
    boxes
        Left, top, width and height of each person, in pixels; ``None``: those around the visible points.
    areas
        The area of each person in pixels; ``None``: 0.53 of the box.
    crowds
        Whether a person need not be found; ``None``: no one.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test samples; ``None`` without one.
    shares
        Whether points are in shares of the picture's size.
    """

    paths: tuple[Path, ...]
    points: Ragged
    names: tuple[str, ...]
    boxes: Ragged | None = None
    areas: Ragged | None = None
    crowds: Ragged | None = None
    official: npt.NDArray[np.integer] | None = None
    shares: bool = False


class PosedImagesDataset(PoseSettings, ListedPicturesDataset[PoseListing]):
    """Base of data sets of pictures with key points; a subclass writes :meth:`listing`."""

    abstract: ClassVar[bool] = True

    @property
    def task(self) -> Pose:
        """Poses, with these deviations and lengths."""
        return Pose(sigmas=self.sigmas, pck_fraction=self.pck_fraction, pck_length=self.pck_length)

    @property
    def spec(self) -> DatasetSpec:
        """Pictures of any size, their sizes, and the key points, padded to the greatest number of persons."""
        found = self.files
        most, number = self._most, len(found.names)
        boxes, areas, crowds = (
            TensorSpec("boxes", (None, most, 4), "float32"), TensorSpec("area", (None, most), "float64"),
            TensorSpec("crowd", (None, most), "uint8"),
        )  # fmt: skip
        known = zip((boxes, areas, crowds), (found.boxes, found.areas, found.crowds), strict=True)
        return DatasetSpec(
            Pose.name,
            inputs=self.pictures,
            targets=(
                TensorSpec("points", (None, most, number, 3), "float32"),
                TensorSpec("count", (None,), "int64"),
                TensorSpec("size", (None, 2), "int32"),
                *(spec for spec, rows in known if rows is not None),
            ),
            class_names=found.names,
        )

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """Whether a picture has none, one or several persons."""
        return np.minimum(self.files.points.counts, 2)

    @property
    def _most(self) -> int:
        return int(self.files.points.counts.max(initial=1))

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded pictures and their key points in pixels."""
        indices = checked_indices(indices, len(self))
        found = self.files
        inputs, sizes = self.decoded(indices)
        points = self._padded(found.points, indices).astype(np.float32)
        if found.shares:
            points[..., :2] *= sizes[:, None, None, ::-1]
        truth: dict[str, npt.NDArray[np.generic]] = {
            "points": points, "count": found.points.counts[indices], "size": sizes.copy(),
        }  # fmt: skip
        for name, rows in (("boxes", found.boxes), ("area", found.areas), ("crowd", found.crowds)):
            if rows is not None:
                truth[name] = self._padded(rows, indices)
        return inputs, truth

    def _padded(self, rows: Ragged, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.generic]:
        padded = np.zeros((len(indices), self._most, *rows.values.shape[1:]), rows.values.dtype)
        for place, index in zip(padded, indices.tolist(), strict=True):
            place[: int(rows.counts[index])] = rows[index]
        return padded
