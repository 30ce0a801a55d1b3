"""The decoder of FastestDet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.decoders.detection_decoder import (
    Candidates,
    DetectionDecoder,
    cells,
    corners,
    only_output,
    only_shape,
    sigmoid,
)

_EXPECTED = "(n, 5 + classes, rows, columns), of FastestDet"


class FastestDetDecoder(DetectionDecoder):
    """FastestDet: one box for each cell of one grid, its score from objectness and class.

    The output is ``(n, 5 + classes, rows, columns)``: objectness, four numbers of the box, and the probabilities of the
    classes.  As in dog-qiuqiu/FastestDet, ``utils/tool.py``, ``handle_preds``.
    """

    overlap: float = argument(
        0.45, help="intersection over union with a more certain box of the class above which a box is dropped",
        minimum=0.0, maximum=1.0,
    )  # fmt: skip

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of channels without objectness and box."""
        channels = only_shape(io, 4, _EXPECTED)[1]
        return None if channels is None else channels - 5

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return the box of each cell."""
        output = only_output(outputs, io, 4, _EXPECTED).astype(np.float32)
        count, channels, rows, columns = output.shape
        flat = output.reshape(count, channels, rows * columns).transpose(0, 2, 1)
        centre = (np.tanh(flat[..., 1:3]) + cells(rows, columns)) / np.array([columns, rows], np.float32)
        scores = np.clip(flat[..., :1], 0, None) ** 0.6 * np.clip(flat[..., 5:], 0, None) ** 0.4
        return Candidates(corners(centre, sigmoid(flat[..., 3:5])), scores)
