"""The decoder of SSD models that give raw numbers of their anchors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.decoders._box_outputs import activated, boxes_and_scores
from nnpipe.decoders._class_numbers import coco_classes
from nnpipe.decoders.detection_decoder import Candidates, DetectionDecoder, corners, input_size


class SSDDecoder(DetectionDecoder):
    """SSD with raw outputs: offsets ``(n, anchors, 4)`` and class scores ``(n, anchors, classes + background)``.

    Anchors and offsets are those of TensorFlow's object detection (``multiple_grid_anchor_generator.py``,
    ``create_ssd_anchors``; ``faster_rcnn_box_coder.py``): y, x, height and width relative to the anchor, multiplied by
    10, 10, 5, 5.  Files that end with TensorFlow Lite's own postprocessing are for ``FinishedBoxesDecoder``.
    """

    overlap: float = argument(
        0.6, help="intersection over union with a more certain box of the class above which a box is dropped",
        minimum=0.0, maximum=1.0,
    )  # fmt: skip
    strides: tuple[int, ...] = argument(
        (16, 32, 64, 128, 256, 512), help="pixels between the cells of each grid, finest grid first", minimum=1
    )
    least_scale: float = argument(0.2, help="size of the anchors of the finest grid, as a share", minimum=0.0)
    greatest_scale: float = argument(0.95, help="size of the anchors of the coarsest grid, as a share", minimum=0.0)
    aspect_ratios: tuple[float, ...] = argument(
        (1.0, 2.0, 0.5, 3.0, 0.3333), help="width by height of the anchors of a cell", minimum=0.01
    )
    few_in_finest: bool = argument(True, help="whether the finest grid has three anchors in a cell only")
    activation: Literal["sigmoid", "softmax", "none"] = argument("sigmoid", help="how scores become probabilities")
    background: bool = argument(True, help="whether the first score is that of the background")
    numbering: Literal["own", "coco-ids"] = argument(
        "own", help="coco-ids: classes are COCO's 90 category numbers, and become the 80 classes in use"
    )

    def validate(self) -> None:
        """Check that scales ascend."""
        if not self.least_scale <= self.greatest_scale:
            raise ConfigError("least_scale should not exceed greatest_scale")

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of scores without the background's."""
        if self.numbering == "coco-ids":
            return 80
        shapes = {spec.name: spec.shape for spec in io.outputs}
        pair = boxes_and_scores(shapes)
        found = None if pair is None else shapes[pair[1]][-1]
        return None if found is None else found - self.background

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return the box of each anchor."""
        pair = boxes_and_scores({name: output.shape for name, output in outputs.items()})
        anchors = self.anchors(*input_size(io, inputs))
        if pair is None or any(outputs[name].shape[1] != len(anchors) for name in pair):
            shapes = ", ".join(f"{name} {output.shape}" for name, output in outputs.items())
            raise SpecMismatch(
                f"expected offsets (n, {len(anchors)}, 4) and scores (n, {len(anchors)}, classes); "
                f"the model gives {shapes}"
            )
        offsets, scores = (_flat(outputs[name], len(anchors)) for name in pair)
        moved = offsets.astype(np.float32) / np.array([10, 10, 5, 5], np.float32)
        centre = moved[..., :2] * anchors[:, 2:] + anchors[:, :2]
        with np.errstate(over="ignore"):  # boxes without end are dropped
            size = np.exp(moved[..., 2:]) * anchors[:, 2:]
        scores = activated(scores, self.activation)[..., int(self.background) :]
        if self.numbering == "coco-ids":
            numbers = coco_classes(np.arange(1, scores.shape[-1] + 1))
            scores = scores[..., numbers >= 0]
        return Candidates(corners(centre[..., ::-1], size[..., ::-1]), scores)

    def anchors(self, height: int, width: int) -> npt.NDArray[np.float32]:
        """Return y, x, height and width of each anchor, in shares of the input's size; ``(anchors, 4)``."""
        grids, least = len(self.strides), min(height, width)
        steps = [*np.linspace(self.least_scale, self.greatest_scale, grids).tolist(), 1.0]
        found = []
        for number, stride in enumerate(self.strides):
            if number == 0 and self.few_in_finest:
                sizes = [(0.1, 1.0), (steps[0], 2.0), (steps[0], 0.5)]
            else:
                sizes = [(steps[number], ratio) for ratio in self.aspect_ratios]
                sizes.append((math.sqrt(steps[number] * steps[number + 1]), 1.0))
            # A size is a share of the shorter side.
            extents = np.array(
                [(scale / math.sqrt(ratio) * least / height, scale * math.sqrt(ratio) * least / width)
                 for scale, ratio in sizes]
            )  # fmt: skip
            rows, columns = math.ceil(height / stride), math.ceil(width / stride)
            y, x = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij")
            middle = np.stack([y, x], axis=-1).reshape(-1, 1, 2)
            both = np.concatenate(np.broadcast_arrays(middle, extents[None]), axis=-1)
            found.append(both.reshape(-1, 4))
        return np.concatenate(found).astype(np.float32)


def _flat(output: npt.NDArray[Any], anchors: int) -> npt.NDArray[Any]:
    return output.reshape(len(output), anchors, output.shape[-1])
