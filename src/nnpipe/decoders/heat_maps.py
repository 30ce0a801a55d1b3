"""The decoder of models that give a heat map for each key point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.decoders._input_frames import frames
from nnpipe.decoders.detection_decoder import only_output, only_shape
from nnpipe.tasks.pose.task import Pose

_EXPECTED = "(n, rows, columns, points) or (n, points, rows, columns)"


class HeatMapDecoder(OutputDecoder):
    """Heat maps of the key points of one person: simple baselines, HRNet and models like them.

    The output is ``(n, rows, columns, points)`` or ``(n, points, rows, columns)``.  A point is in the middle of the
    cell with the greatest value, which is its score.  With ``refine``, it is moved by a quarter of a cell towards the
    greater neighbour in each direction (B. Xiao, H. Wu, Y. Wei: Simple Baselines for Human Pose Estimation and
    Tracking, ECCV 2018).
    """

    tasks: ClassVar[tuple[str, ...]] = (Pose.name,)

    maps: Literal["last", "first"] = argument(
        "last", help="whether the axis of key points is the last, or the first behind that of samples"
    )
    refine: bool = argument(True, help="whether points are moved by a quarter of a cell towards the greater neighbour")

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check that there are as many heat maps as key points in the data set."""
        known = only_shape(io, 4, _EXPECTED)[3 if self.maps == "last" else 1]
        if known not in (None, len(spec.class_names)) and spec.class_names:
            other = "first" if self.maps == "last" else "last"
            raise ConfigError(
                f"the model gives {known} heat maps, and the data set has {len(spec.class_names)} key points; perhaps "
                f"--decoder-options maps={other}"
            )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
        """Return ``points`` of one person in each picture, and ``frame``."""
        output = only_output(outputs, io, 4, _EXPECTED).astype(np.float32)
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
                * np.sign(across[sample, point, row, column + 2] - across[sample, point, row, column])
                * ((column > 0) & (column < columns - 1))
            )
            place[..., 1] += (
                0.25
                * np.sign(down[sample, point, row + 2, column] - down[sample, point, row, column])
                * ((row > 0) & (row < rows - 1))
            )
        scores = np.take_along_axis(flat, best[..., None], axis=2)
        points = np.concatenate([place / np.array([columns, rows], np.float32), scores], axis=-1)
        return {"points": points[:, None], "frame": frames(count, io, inputs)}
