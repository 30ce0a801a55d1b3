"""Decoders of models that give key points: as heat maps, or as numbers, as MoveNet does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, show_shape
from nnpipe.decoders._input_frames import compute_frames, get_input_size
from nnpipe.decoders.detection_decoder import get_only_output, get_only_shape
from nnpipe.tasks.pose.task import Pose

_EXPECTED = "(n, rows, columns, points) or (n, points, rows, columns)"


class HeatMapDecoder(OutputDecoder):
    """Heat maps of the key points of one person: simple baselines, HRNet and models like them.

    The output is ``(n, rows, columns, points)`` or ``(n, points, rows, columns)``.  A point is in
    the middle of the cell with the greatest value, which is its score.  With ``refine``, it is
    moved by a quarter of a cell towards the greater neighbour in each direction (B. Xiao, H. Wu, Y.
    Wei: Simple Baselines for Human Pose Estimation and Tracking, ECCV 2018).
    """

    tasks: ClassVar[tuple[str, ...]] = (Pose.name,)

    maps: Literal["last", "first"] = argument(
        "last",
        help="whether the axis of key points is the last, or the first behind that of samples",
    )
    refine: bool = argument(
        True, help="whether points are moved by a quarter of a cell towards the greater neighbour"
    )

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that there are as many heat maps as key points in the data set."""
        known = get_only_shape(io, 4, _EXPECTED)[3 if self.maps == "last" else 1]
        if known not in (None, len(spec.class_names)) and spec.class_names:
            other = "first" if self.maps == "last" else "last"
            raise ConfigError(
                f"the model gives {known} heat maps, and the data set has {len(spec.class_names)} "
                f"key points; perhaps --decoder-options maps={other}"
            )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``points`` of one person in each picture, and ``frame``."""
        output = get_only_output(outputs, io, 4, _EXPECTED).astype(np.float32)
        maps = output.transpose(0, 3, 1, 2) if self.maps == "last" else output
        count, number, rows, columns = maps.shape
        flat = maps.reshape(count, number, rows * columns)
        best = flat.argmax(axis=2)
        place = np.stack([best % columns, best // columns], axis=-1).astype(np.float32) + 0.5
        if self.refine:
            sample, point = np.indices(best.shape)
            row, column = best // columns, best % columns
            across = np.pad(maps, ((0, 0), (0, 0), (0, 0), (1, 1)), mode="edge")
            down = np.pad(maps, ((0, 0), (0, 0), (1, 1), (0, 0)), mode="edge")
            place[..., 0] += (
                0.25
                * np.sign(
                    across[sample, point, row, column + 2] - across[sample, point, row, column]
                )
                * ((column > 0) & (column < columns - 1))
            )
            place[..., 1] += (
                0.25
                * np.sign(down[sample, point, row + 2, column] - down[sample, point, row, column])
                * ((row > 0) & (row < rows - 1))
            )
        scores = np.take_along_axis(flat, best[..., None], axis=2)
        points = np.concatenate([place / np.array([columns, rows], np.float32), scores], axis=-1)
        return {"points": points[:, None], "frame": compute_frames(count, io, inputs)}


_BOX = 5  # numbers behind the points: top, left, bottom, right and score


class MoveNetDecoder(OutputDecoder):
    """Key points as numbers: MoveNet and models like it.

    The output is ``(n, persons, points, 3)`` or ``(n, points, 3)``: y, x and score of each point;
    or, as of MoveNet MultiPose, ``(n, persons, 3 * points + 5)``, with a box and a score of the
    person behind the points.
    """

    tasks: ClassVar[tuple[str, ...]] = (Pose.name,)

    order: Literal["yx", "xy"] = argument("yx", help="whether y or x comes first")
    coordinates: Literal["shares", "pixels"] = argument(
        "shares", help="whether points are in shares of the input's size, or in pixels of the input"
    )
    score_threshold: float = argument(0.0, help="least score of a person", minimum=0.0, maximum=1.0)

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that there is one such output, and as many key points as in the data set."""
        shape = io.outputs[0].shape
        if len(io.outputs) != 1 or len(shape) not in (3, 4):
            raise ConfigError(
                f"{type(self).__name__} reads one output (n, persons, points, 3), not "
                f"{show_shape(shape)}"
            )
        if (known := _count_points(shape)) not in (
            None,
            len(spec.class_names),
        ) and spec.class_names:
            raise ConfigError(
                f"the model gives {known} key points, and the data set has {len(spec.class_names)}"
            )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``points``, ``scores`` and ``count`` of each picture, most certain persons
        first, and ``frame``.
        """
        output = outputs[io.outputs[0].name].astype(np.float32)
        if output.ndim not in (3, 4) or (number := _count_points(output.shape)) is None:
            raise SpecMismatch(f"expected (n, persons, points, 3); the model gives {output.shape}")
        if output.ndim == 4 or output.shape[-1] == 3:
            points = output if output.ndim == 4 else output[:, None]
            scores = points[..., 2].mean(axis=2)
        else:
            points = output[..., : 3 * number].reshape(*output.shape[:2], number, 3)
            scores = output[..., -1]
        if self.order == "yx":
            points = points[..., [1, 0, 2]]
        if self.coordinates == "pixels":
            height, width = get_input_size(io, inputs)
            points = (points / np.array([width, height, 1])).astype(np.float32)
        order = np.argsort(-scores, axis=1, kind="stable")
        scores = np.take_along_axis(scores, order, axis=1)
        return {
            "points": np.take_along_axis(points, order[..., None, None], axis=1),
            "scores": scores,
            "count": (scores >= self.score_threshold).sum(axis=1).astype(np.int64),
            "frame": compute_frames(len(points), io, inputs),
        }


def _count_points(shape: Sequence[int | None]) -> int | None:
    """Return the number of key points of an output of this shape; ``None`` if it has another
    form.
    """
    last = shape[-1]
    if last == 3:
        return shape[-2]
    fits = len(shape) == 3 and last is not None and last > _BOX and (last - _BOX) % 3 == 0
    return (last - _BOX) // 3 if fits and last is not None else None
