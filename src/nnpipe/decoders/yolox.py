"""The decoder of YOLOX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.decoders.detection_decoder import (
    Candidates,
    DetectionDecoder,
    cells,
    corners,
    input_size,
    only_output,
    only_shape,
)

_EXPECTED = "(n, cells, 5 + classes), of YOLOX"


class YOLOXDecoder(DetectionDecoder):
    """YOLOX: one box for each cell of several grids, relative to its cell.

    The output is ``(n, cells, 5 + classes)``: four numbers of the box, objectness, and the probabilities of the
    classes; the cells of the grids follow each other row by row, finest grid first.  As in
    Megvii-BaseDetection/YOLOX, ``yolox/utils/demo_utils.py``, ``demo_postprocess``.
    """

    strides: tuple[int, ...] = argument((8, 16, 32), help="pixels between the cells of each grid", minimum=1)

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of values of a cell without box and objectness."""
        values = only_shape(io, 3, _EXPECTED)[2]
        return None if values is None else values - 5

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return the box of each cell."""
        output = only_output(outputs, io, 3, _EXPECTED).astype(np.float32)
        height, width = input_size(io, inputs)
        grids = [(cells(height // stride, width // stride), stride) for stride in self.strides]
        cell = np.concatenate([each for each, _ in grids])
        stride = np.concatenate([np.full((len(each), 1), step, np.float32) for each, step in grids])
        if output.shape[1] != len(cell):
            raise SpecMismatch(
                f"the model gives {output.shape[1]:,} boxes; strides {', '.join(map(str, self.strides))} make "
                f"{len(cell):,} cells of {height} x {width} pixels: give its strides as decoder option"
            )
        extent = np.array([width, height], np.float32)
        with np.errstate(over="ignore"):  # boxes without end are dropped
            size = np.exp(output[..., 2:4]) * stride / extent
        centre = (output[..., :2] + cell) * stride / extent
        return Candidates(corners(centre, size), output[..., 4:5] * output[..., 5:])
